"""A server that we start: whatever the command does, it is watched, bounded in what it costs, and nothing of it is left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest

from probes.evidence.errors import InputError, InterruptedByUserError, LaunchFailedError
from probes.launch import MARKER, Output, Server, address_of, alive, end_launch, holder_of, marked, split_command
from probes.process import free_port

SERVE = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'ok')
    def log_message(self, *a): pass
def serve(port):
    http.server.HTTPServer(('127.0.0.1', port), Answer).serve_forever()
"""


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=1).status == 200
    except OSError:
        return False


def healthy(pid):
    return address_of(pid, answers)


@pytest.fixture
def launched(tmp_path):
    """Start a Python child; stops it at the end and says whether anything of it still runs."""
    servers = []

    def start(code, *arguments, **more):
        script = tmp_path / f"child{len(servers)}.py"
        script.write_text(SERVE + code)
        server = Server(
            [sys.executable, str(script), *map(str, arguments)], log_path=tmp_path / "logs" / "s.log", **more
        )
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop(grace_s=1.0)
        assert marked(server.marker) == []


def test_a_server_is_started_watched_and_stopped(launched):
    """Health, log, environment shown and given, no shell; stopping takes no longer than the server itself needs."""
    port = free_port()
    server = launched(
        "import os; print('told', os.environ['TOLD'], flush=True); serve(int(sys.argv[1]))",
        port,
        environment={"TOLD": "$HOME;x"},
    )
    launch = server.wait_healthy(healthy, 20)
    assert launch.healthy
    assert server.url == f"http://127.0.0.1:{port}"
    assert server.ended() is None
    begun = time.monotonic()
    took = server.stop()
    assert took < 2.0
    assert time.monotonic() - begun < 2.0
    assert server.ended().signal == "SIGTERM"
    assert "told $HOME;x" in server.log_path.read_text()


def test_starting_and_stopping_adds_at_most_two_seconds(launched):
    """Law: over what the server itself needs to load and to end, we add at most two seconds."""
    needs = 0.6
    server = launched(f"import time; time.sleep({needs}); serve(int(sys.argv[1]))", free_port())
    launch = server.wait_healthy(healthy, 20)
    plain = time.monotonic()
    subprocess.run([sys.executable, "-c", "import http.server"], check=True)
    interpreter = time.monotonic() - plain
    assert launch.seconds + server.stop() < needs + interpreter + 2.0


def test_variables_in_front_of_a_command_are_its_environment(tmp_path):
    server = Server(
        ["TOLD=here", sys.executable, "-c", "import os; print(os.environ['TOLD'])"], log_path=tmp_path / "s.log"
    )
    with server:
        server.start()
        launch = server.wait_healthy(healthy, 20)
    assert (launch.healthy, launch.exit_code) == (False, 0)
    assert server.log_path.read_text().strip() == "here"
    with pytest.raises(LaunchFailedError, match="no program"):
        Server(["A=1"], log_path=tmp_path / "s.log").start()


def test_a_command_that_goes_into_the_background_is_found_watched_and_ended(launched):
    """Law: a daemon that left parent, group and session behind is still this launch's, and is ended with it."""
    port = free_port()
    server = launched(
        "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nserve(int(sys.argv[1]))", port
    )
    launch = server.wait_healthy(healthy, 20)
    assert launch.healthy
    assert "background" in launch.why
    assert server.url == f"http://127.0.0.1:{port}"
    (daemon,) = marked(server.marker)
    assert daemon.pid != server.pid
    assert server.ended() is None
    server.stop()
    assert not alive(daemon)
    assert server.ended() is not None
    assert holder_of(port) is None


def test_a_command_that_forks_is_ended_with_all_its_children(launched):
    """Also with a child that was born in a group of its own, and whose parent ended first."""
    server = launched(
        "import os, time\n"
        "for n in range(3):\n"
        "    if not os.fork():\n"
        "        if n == 2: os.setsid()\n"
        "        time.sleep(600)\n"
        "serve(int(sys.argv[1]))",
        free_port(),
    )
    assert server.wait_healthy(healthy, 20).healthy
    everyone = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    assert len(everyone) == 4
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    assert not any(alive(one) for one in everyone)


def test_only_what_was_launched_is_ended(launched, tmp_path):
    """Law: a process like it, in the same folder, by the same user, is left alone; so is one that got the old process id."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        server = launched("serve(int(sys.argv[1]))", free_port())
        assert server.wait_healthy(healthy, 20).healthy
        server.stop()
        assert bystander.poll() is None
        assert end_launch("", bystander.pid, psutil.Process(bystander.pid).create_time() - 100, 1.0) is False
        assert end_launch("", 0, 0.0, 1.0) is False
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_command_that_needs_a_terminal_gets_none_and_says_so(launched):
    server = launched("open('/dev/tty'); serve(0)")
    launch = server.wait_healthy(healthy, 20)
    assert not launch.healthy
    assert launch.exit_code == 1
    assert "terminal" in launch.why


def test_a_command_that_reads_from_a_terminal_does_not_wait_for_one(launched):
    """Input is empty: a prompt gets its end at once."""
    server = launched("print('Continue? ', end='', flush=True); input(); serve(0)")
    launch = server.wait_healthy(healthy, 20)
    assert (launch.healthy, launch.exit_code) == (False, 1)


def test_a_server_that_never_answers_is_given_up_at_the_deadline(launched):
    seen = []
    server = launched("import time; time.sleep(600)")
    begun = time.monotonic()
    launch = server.wait_healthy(healthy, 0.7, lambda waited, deadline: seen.append((waited, deadline)))
    assert time.monotonic() - begun < 3
    assert not launch.healthy
    assert "within" in launch.why
    assert seen
    assert launch.exit_code is None


def test_how_a_process_ended_is_told(launched):
    """Exit code or the signal's name, also after it had answered."""
    server = launched("serve(int(sys.argv[1]))", free_port())
    assert server.wait_healthy(healthy, 20).healthy
    os.kill(server.pid, signal.SIGKILL)
    ends = time.monotonic() + 10
    while server.ended() is None and time.monotonic() < ends:
        time.sleep(0.01)
    assert server.ended().signal == "SIGKILL"
    launch = launched("raise SystemExit(7)").wait_healthy(healthy, 20)
    assert (launch.healthy, launch.exit_code) == (False, 7)


@pytest.mark.skipif(not hasattr(signal, "SIGILL") or os.name == "nt", reason="no such signal here")
def test_a_build_for_another_processor_is_told_by_its_signal(launched):
    """Law: a server that ends by an illegal instruction is said not to fit the processor, also where nothing of it stands in its log."""
    launch = launched("import os, signal; os.kill(os.getpid(), signal.SIGILL)").wait_healthy(healthy, 20)
    assert (launch.healthy, launch.signal) == (False, "SIGILL")
    assert "does not fit the processor" in launch.why


def test_a_gigabyte_of_output_costs_two_files_of_the_limit(tmp_path):
    """Law: what is kept is at most twice the limit, the newest is there, and the child is never blocked."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os\nb = b'x' * 63 + b'\\n'\nfor _ in range(1024): os.write(1, b * 16384)\nos.write(1, b'the end\\n')",
        ],
        stdout=subprocess.PIPE,
    )
    output = Output(child.stdout, tmp_path / "big.log", limit=4 << 20)
    begun = time.monotonic()
    assert child.wait(60) == 0
    output.finish(10)
    child.stdout.close()
    assert output.total >= 1 << 30
    kept = list(tmp_path.iterdir())
    assert sum(path.stat().st_size for path in kept) <= 2 * (4 << 20)
    assert (tmp_path / "big.log").read_bytes().endswith(b"the end\n")
    assert time.monotonic() - begun < 60


def test_a_server_on_another_port_than_asked_for_is_found(launched):
    port, other = free_port(), free_port()
    server = launched("serve(int(sys.argv[1]))", other)
    launch = server.wait_healthy(lambda pid: address_of(pid, answers, port), 20)
    assert launch.healthy
    assert server.url == f"http://127.0.0.1:{other}"


def test_another_server_on_the_port_is_never_taken_for_ours(launched):
    """The port is held by somebody else: our child ends, and the answer of the other one is not its health."""
    port = free_port()
    other = launched("serve(int(sys.argv[1]))", port)
    assert other.wait_healthy(healthy, 20).healthy
    assert str(other.pid) in holder_of(port)
    ours = launched("serve(int(sys.argv[1]))", port)
    launch = ours.wait_healthy(lambda pid: address_of(pid, answers, port), 20)
    assert not launch.healthy
    assert "in use" in launch.why
    assert other.ended() is None


def test_who_holds_a_port_is_told_or_nobody():
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", 0))
        mine.listen()
        assert str(os.getpid()) in holder_of(mine.getsockname()[1])
    assert holder_of(free_port()) is None


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(launched):
    server = launched(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); serve(int(sys.argv[1]))", free_port()
    )
    assert server.wait_healthy(healthy, 20).healthy
    took = server.stop(grace_s=0.5)
    assert 0.4 < took < 3.0
    assert server.ended().signal == "SIGKILL"


def test_a_second_interrupt_ends_it_at_once(launched, monkeypatch):
    server = launched(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); serve(int(sys.argv[1]))", free_port()
    )
    assert server.wait_healthy(healthy, 20).healthy
    real, calls = time.sleep, []

    def interrupted(seconds):
        calls.append(seconds)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(seconds)

    monkeypatch.setattr("probes.launch.time.sleep", interrupted)
    begun = time.monotonic()
    with pytest.raises(InterruptedByUserError):
        server.stop(grace_s=60)
    assert time.monotonic() - begun < 10
    monkeypatch.undo()
    assert marked(server.marker) == []


def test_what_cannot_be_started_says_what_to_do(tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    for command, said in (["no-such-program-anywhere"], "no program"), ([str(plain)], "executable"):
        with pytest.raises(LaunchFailedError, match=said):
            Server(command, log_path=tmp_path / "s.log").start()


@pytest.mark.parametrize("text", ["a | b", "a && b", "a > log", "a; b", "a `b`", "a $(b)", "", "a 'b", "a 2>&1"])
def test_a_command_that_needs_a_shell_is_refused(text):
    with pytest.raises(InputError):
        split_command(text)


def test_a_command_is_split_and_nothing_in_it_is_run():
    assert split_command("srv -m 'my model.gguf' --x \"a b\" '$HOME'") == [
        "srv",
        "-m",
        "my model.gguf",
        "--x",
        "a b",
        "$HOME",
    ]
    assert MARKER not in os.environ
