"""A log that was appended to over several starts: what is placed is what the last one placed."""

from __future__ import annotations

from probes.logs.reader import collect_log

START = """build_info: b11434-abcdef0
llama_model_loader: loaded meta data with 22 key-value pairs and 20 tensors from m.gguf (version GGUF V3 (latest))
load_tensors:        CUDA0 model buffer size =  1000.00 MiB
llama_context: n_ctx         = {ctx}
llama_kv_cache:      CUDA0 KV buffer size =   {kv}.00 MiB
sched_reserve:      CUDA0 compute buffer size =   300.00 MiB
"""
FAILED = """build_info: b11434-abcdef0
llama_model_loader: failed to load model from m.gguf
"""


def kv(tmp_path, text):
    log = tmp_path / "server.log"
    log.write_text(text)
    events, _summary = collect_log(log)
    return [event.size_bytes // 2**20 for event in events if event.event == "buffer" and event.component == "kv"]


def test_what_an_earlier_start_placed_was_given_back(tmp_path):
    """Law: a server that is started three times into one log holds one cache, the last one's."""
    text = "".join(START.format(ctx=4096 * n, kv=512 * n) for n in (1, 2, 3))
    assert kv(tmp_path, text) == [1536]
    events, _summary = collect_log(tmp_path / "server.log")
    # what was said of windows stays: it is no memory
    assert [event.tokens for event in events if event.event == "window"] == [4096, 8192, 12288]


def test_a_last_start_that_placed_nothing_leaves_what_stood_before(tmp_path):
    assert kv(tmp_path, START.format(ctx=4096, kv=512) + FAILED) == [512]


def test_two_caches_of_one_start_are_both_kept(tmp_path):
    """A model with sliding layers has two; a program that prints its name once begins once."""
    more = "llama_kv_cache:      CUDA0 KV buffer size =    64.00 MiB\n"
    assert kv(tmp_path, START.format(ctx=4096, kv=512) + more) == [512, 64]
    # the beginning of a log may be missing: its start began before its first line
    assert kv(tmp_path, more + START.format(ctx=4096, kv=512)) == [512]
