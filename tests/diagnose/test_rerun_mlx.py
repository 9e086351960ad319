"""One change on a real mlx_lm server, which tells nothing of its settings over HTTP: started again with one flag changed, and measured again."""

from __future__ import annotations

import json
import shlex
import sys

import psutil
import pytest

from diagnose import look
from diagnose.case import Case
from diagnose.cli import command_line
from diagnose.separating import command_of
from diagnose.snapshots import snapshot_of
from probes.process import free_port, listener
from tests.backends.tiny_mlx import make_model

pytestmark = [pytest.mark.real_server, pytest.mark.slow]
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")


def test_one_flag_of_mlx_lm_is_changed_measured_again_and_read_back(tmp_path, monkeypatch, capsys):
    """Law: exactly that variable differs; all else is read from the process and is as before; the server is gone afterwards."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    real = look.read_host
    still = {"load_1min": 0.1, "other_servers": (), "busy_processes": ()}
    monkeypatch.setattr(look, "read_host", lambda *a, **k: (r := real(*a, **k)).model_copy(
        update={**still, "ram_available_bytes": (r.ram_bytes or 0) // 2}))  # fmt: skip
    folder = tmp_path / "my model"
    folder.mkdir()
    make_model(folder)
    port = free_port()
    command = (
        f"HF_HUB_OFFLINE=1 HF_HOME={tmp_path}/hub nice -n 1 {sys.executable} -m mlx_lm server --model {shlex.quote(str(folder))} "
        f"--port {port} --prefill-step-size=256"
    )
    asked = (
        "--tokenizer",
        str(folder),
        "--target",
        "512",
        "--ladder",
        "300",
        "--budget",
        "15s",
        "--quiet",
        "--format",
        "json",
    )
    command_line(["run", "--launch", command, "--case", "mlx", *asked])
    first = json.loads(capsys.readouterr().out)
    assert first["subject"]["backend"]["name"] == "mlx_lm"
    assert [one["result"] for one in first["rungs"]]
    command_line(["rerun", "mlx", "--set", "batch=512", *asked])
    second = json.loads(capsys.readouterr().out)
    (line,) = second["changes"]
    assert [(one["name"], one["before"], one["after"]) for one in line["variables"]] == [("batch", 256, 512)]
    assert line["single"] is True
    assert any(row["name"].startswith("Prefill at") for row in line["comparison"])
    with Case.open("mlx", read_only=True) as case:
        assert "--prefill-step-size=512" in command_of(case, 2)
        assert command_of(case, 2)[:4] == command_of(case, 1)[:4]  # variables and nice stay
        assert snapshot_of(case, 2).values["batch"].source == "process"
    assert listener(port) is None
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or ())]
