"""Law: a real server whose weights are pushed out of memory while it works is seen to read them back, to be slower, and to be judged so."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from probes.evidence.records import EvidenceSet, found
from probes.gpu.sampler import Sampler
from probes.model_file import read_model
from rules.catalogue import facts_of
from rules.facts import MAJOR_FAULTS, READ_OF_WEIGHTS
from tests.tiny_model import make_model, server_command

_PROCESS_MADVISE, _PAGEOUT = 440, 21
TEXT = "The quick brown fox jumps over the lazy dog. "


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def push_out(pid, path):
    """Push the pages of that file out of a process's memory, as a kernel short of memory does."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    try:
        with Path(f"/proc/{pid}/maps").open(encoding="utf-8") as maps:
            for line in maps:
                if str(path) in line:
                    first, last = (int(part, 16) for part in line.split()[0].split("-"))
                    one = _Range(first, last - first)
                    if libc.syscall(_PROCESS_MADVISE, handle, ctypes.byref(one), 1, _PAGEOUT, 0) < 0:
                        pytest.skip(f"memory may not be pushed out here: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)


def complete(url, tokens, number):
    body = {"prompt": f"{number} {TEXT}", "n_predict": tokens, "cache_prompt": False, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["timings"]["predicted_per_second"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    if sys.platform != "linux":
        pytest.skip("only Linux lets a test push another process's pages out")
    path = make_model(tmp_path_factory.mktemp("model") / "paged.gguf", layers=3, heads=8, head_size=64)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)  # what is not written yet cannot be dropped
    os.close(descriptor)
    command = server_command(path, "-c", "2048", "-np", "1")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{command[command.index('--port') + 1]}"
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
                if answer.status == 200:
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                pytest.fail("the server did not start")
            time.sleep(0.1)
        yield process.pid, path, url
    finally:
        process.kill()
        process.wait()


@pytest.mark.real_server
def test_weights_that_are_read_back_again_and_again(served):
    pid, path, url = served
    complete(url, 8, 0)  # reads what was not read yet
    stop = threading.Event()
    evidence = [found(read_model(path), source="file")]
    speeds = {}
    with Sampler(pid) as sampler:
        for rung, paged in ((1024, False), (2048, True)):
            stop.clear()

            def push(stop=stop):
                while not stop.is_set():
                    push_out(pid, path)
                    time.sleep(0.01)

            thread = threading.Thread(target=push)
            with sampler.phase(f"rung {rung} attempt 1", rung=rung, attempt=1) as phase:
                if paged:
                    push_out(pid, path)  # skips here, not in a thread, where it may not
                    thread.start()
                try:
                    speeds[paged] = complete(url, 12 if paged else 48, rung)
                finally:
                    stop.set()
                    if paged:
                        thread.join()
            evidence.append(found(phase.peaks, source="measured"))
            if not paged:
                before = facts_of(EvidenceSet(evidence)).value(READ_OF_WEIGHTS)
    facts = facts_of(EvidenceSet(evidence))
    read = facts.value(READ_OF_WEIGHTS)
    if not read:
        pytest.skip("this file system keeps everything in memory")
    assert before < 0.1
    assert read > 2.0
    assert speeds[True] < 0.8 * speeds[False]
    assert facts.value(MAJOR_FAULTS) > 0
