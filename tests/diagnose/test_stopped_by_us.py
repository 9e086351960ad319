"""What a server prints while we end it is none of its troubles; what it printed before is."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from diagnose.cli import command_line
from probes.process import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import signal, sys, threading
from http.server import ThreadingHTTPServer
from tests.backends.loopback import Loopback
played = Loopback.playing("vllm-0.32.0")
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), played._server.RequestHandlerClass)
def end(*_):
    print("ERROR AsyncLLM output_handler failed.", flush=True)
    print("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(sys.argv[2], flush=True)
server.serve_forever()
"""
TROUBLE = "RuntimeError: CUDA out of memory. Tried to allocate 1.15 GiB."


@pytest.mark.parametrize("before", ["all is well", TROUBLE])
def test_a_crash_that_we_brought_about_is_left_out(before, tmp_path, monkeypatch, capsys):
    """Law: failures after the moment at which we end a server are not kept; those before it are."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    script, port = tmp_path / "server.py", free_port()
    script.write_text(SCRIPT)
    launch = shlex.join([sys.executable, str(script), str(port), before])
    url = f"http://127.0.0.1:{port}"
    command_line(["run", url, "--launch", launch, "--budget", "5", "--quiet", "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    told = [one["data"] for one in document["evidence"] if one["kind"] == "log_event"]
    [log] = (tmp_path / "home").rglob("server-run1-1.log")
    assert "EngineDeadError" in log.read_text()
    assert not [one for one in told if "EngineDeadError" in one["text"]]
    assert any(one["event"] == "alloc-failed" for one in told) is (before == TROUBLE)
