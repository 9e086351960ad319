"""The guided walk as a person sees it: a real pseudo-terminal with arrow keys, and a real llama.cpp behind it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest

from tests.tiny_model import make_model, server_command

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal"),
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs the embedded llama.cpp"),
]
ROOT = Path(__file__).resolve().parents[2]
DOWN, ENTER, CTRL_C = "\x1b[B", "\r", "\x03"
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>78]|\x1b\][^\x07]*\x07|\r")


class Screen:
    """A program in a pseudo-terminal of 80 by 30, what it has shown, and keys for it."""

    open: ClassVar[list[Screen]] = []
    """Those that were started and not ended."""

    def __init__(self, home: Path, *arguments: str, term: str = "xterm-256color") -> None:
        import pty

        self.master, slave = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        environment = {
            **os.environ, "TERM": term, "LC_ALL": "C.UTF-8", "CTXDOCTOR_LANG": "", "PYTHONPATH": str(ROOT),
            "CTXDOCTOR_HOME": str(home / "data"), "PROMPT_TOOLKIT_NO_CPR": "1", "HOME": str(home),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "diagnose", *arguments],
            stdin=slave, stdout=slave, stderr=slave, cwd=home, env=environment, close_fds=True, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        Screen.open.append(self)
        self.shown = ""
        self.read_to = 0

    def read(self, seconds: float) -> bool:
        """Read what comes within so many seconds; False where the program has ended."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return self.process.poll() is None
        try:
            piece = os.read(self.master, 65536).decode("utf-8", "replace")
        except OSError:
            return False
        self.shown += CONTROLS.sub("", piece)
        return bool(piece)

    def wait_for(self, sign: str, seconds: float = 60) -> str:
        """Wait until something new that fits is shown; gives everything new up to then."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            match = re.search(sign, self.shown[self.read_to :])
            if match is not None:
                while self.read(0.3) and len(self.shown) < 1_000_000 and select.select([self.master], [], [], 0)[0]:
                    pass
                new = self.shown[self.read_to :]
                self.read_to = len(self.shown)
                return new
            if not self.read(0.5):
                break
        raise AssertionError(f"waited for {sign!r} and saw: {self.shown[self.read_to :][-1500:]}")

    def press(self, *keys: str) -> None:
        """Press keys one after another, as a person does."""
        for key in keys:
            os.write(self.master, key.encode())
            time.sleep(0.05)

    def end(self, seconds: float = 30) -> int:
        """Wait for the program's end, reading what it still says."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and self.process.poll() is None:
            self.read(0.2)
        code = self.process.wait(1)
        self.read(0.2)
        os.close(self.master)
        Screen.open.remove(self)
        return code


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    while Screen.open:
        screen = Screen.open.pop()
        screen.process.kill()
        screen.process.wait()
        os.close(screen.master)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("server")
    from socket import socket

    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = make_model(folder / "tiny.gguf")
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(server_command(model, "-c", "2048", port=port), stdout=log, stderr=log)
    try:
        ends = time.monotonic() + 60
        while b"listening" not in (folder / "server.log").read_bytes():
            assert time.monotonic() < ends
            time.sleep(0.2)
        yield port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def choose_server(screen: Screen, shown: str, port: int) -> None:
    """Move down to the server on that port: other servers may run on this machine."""
    ports = list(dict.fromkeys(re.findall(r"https?://[^\s:]+:(\d+)", shown[shown.rindex("Which server") :])))
    at = ports.index(str(port)) if str(port) in ports else None
    assert at is not None, shown
    screen.press(*[DOWN] * at, ENTER)


def is_typed(shown: str) -> bool:
    """Say whether the question that was shown last is answered by typing: then Enter ends it."""
    compact = re.sub(r"\s", "", shown)
    return "(spacemarks" not in compact and "(arrowkeys" not in compact


def test_the_walk_with_arrow_keys_is_finished_in_seven_questions_and_goes_on_after_ctrl_c(
    tmp_path: Path, server: int
) -> None:
    screen = Screen(tmp_path)
    first = screen.wait_for(r"\[1/7\].*[\s\S]*Help \[h\]")
    assert "out of memory" in first
    screen.press("h")
    assert "an unknown counts neither for nor against" in re.sub(r"\s+", " ", screen.wait_for(r"Its? name|name is"))
    screen.press(DOWN, DOWN, DOWN, ENTER)  # forgets
    screen.wait_for(r"\[2/7\]")
    screen.press("?")
    screen.wait_for(r"\[3/7\]")
    screen.press("b")
    screen.wait_for(r"\[2/7\]")
    screen.press(CTRL_C)
    left = screen.wait_for(r"Go on with: ctxdoctor --case \S+")
    assert screen.end() == 130
    name = re.sub(r"\s", "", left.split("--case")[1].split("\n\n")[0])
    folder = next((tmp_path / "data" / "cases").iterdir())
    assert name.startswith(folder.name[:20])

    screen = Screen(tmp_path, "--case", folder.name)
    seen = set()
    for _ in range(9):
        shown = screen.wait_for(r"\[\d/7\]|What happens next")
        if "What happens next" in shown:
            break
        number, question = re.findall(r"\[(\d)/7\] ([^\n(]*)", shown)[-1]
        assert "What goes wrong" not in question  # that was answered, and kept
        seen.add(int(number))
        if "Which server" in question:
            shown += "" if "address" in shown else screen.wait_for("another address")
            choose_server(screen, shown, server)
        elif "How long should" in question:
            screen.press("1", "2", "0", "0", ENTER)  # in the place of the window that the server told
        else:
            screen.press("?", *([ENTER] if is_typed(shown) else []))
    assert max(seen) <= 7
    shown += "" if "Leave;" in shown else screen.wait_for("Leave;")
    assert re.search(r"At most \d+ requests", shown)
    assert f"127.0.0.1:{server}" in shown
    screen.press(ENTER)
    screen.wait_for(r"go\s+on\s+with")
    time.sleep(0.7)
    os.killpg(screen.process.pid, signal.SIGINT)
    assert screen.end() == 130
    assert (folder / "journal.jsonl").is_file()

    screen = Screen(tmp_path, "--case", folder.name)
    ends = time.monotonic() + 120
    while screen.process.poll() is None and time.monotonic() < ends:
        screen.read(0.3)
        new = screen.shown[screen.read_to :]
        if re.search(r"s = stop asking|Stop asking", new):
            screen.read_to = len(screen.shown)
            screen.press("s", *([ENTER] if is_typed(new) else []))
    code = screen.end()
    assert code in {0, 1, 3, 4}, screen.shown[-1500:]
    assert list(tmp_path.glob("ctxdoctor-report*.md"))
    assert "Next test" in screen.shown
    # No line is wider than the terminal but those that are there to be copied.
    assert (folder / "report.md").is_file()


def test_an_interrupt_that_comes_as_a_signal_ends_a_choice_too(server: int, tmp_path: Path) -> None:
    """Law: what is waited for may be a key or a request; an interrupt ends it with 130 either way."""
    screen = Screen(tmp_path)
    screen.wait_for(r"\[1/7\]")
    time.sleep(0.5)
    os.killpg(screen.process.pid, signal.SIGINT)
    assert screen.end() == 130
