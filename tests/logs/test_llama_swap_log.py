"""The settings that llama-swap's log prints at each start are those of the server that it starts."""

from __future__ import annotations

from pathlib import Path

from probes.logs import read_log, tail_events
from probes.logs.told import settings_told

RECORDED = Path(__file__).parents[1] / "recordings" / "logs" / "llama-swap-250.log"
START = "[DEBUG] <coder> Executing start command: /opt/llama-server --port 41000 -m /m.gguf -c 65536 -np 2 -ctk q8_0, env: A=b"


def test_the_command_of_the_newest_start_is_read():
    """Window, slots and cache types as on a command line; the environment, which may hold keys, is not read."""
    older = START.replace("65536", "4096")
    told = settings_told(tail_events(f"{older}\n{START}\n"))
    assert told is not None
    event, read = told
    assert event.line == 2
    expected = {"ctx": 65_536, "parallel": 2, "kv_type_k": "q8_0", "model_path": "/m.gguf"}
    assert {name: read.settings[name].value for name in expected} == expected
    assert {setting.source for setting in read.settings.values()} == {"log"}
    assert "A=b" not in read.model_dump_json()


def test_another_server_behind_is_read_in_its_own_words():
    """vLLM, or whatever else it starts."""
    told = settings_told(tail_events("[DEBUG] <a> Executing start command: vllm serve m --max-model-len 32768, env: "))
    assert told is not None
    assert told[1].settings["ctx"].value == 32_768
    assert settings_told(tail_events("[DEBUG] <a> Executing start command: sleep 5, env: ")) is None


def test_a_recorded_log():
    """A model that does not start, one that does, its time to live, and the proxy's own requests."""
    events = list(read_log(RECORDED))
    failed = [event for event in events if event.event == "load-failed"]
    assert ("broken", "upstream command exited prematurely") in {(event.name, event.reason) for event in failed}
    assert [(event.name, event.key) for event in events if event.event == "slept"] == [("author/small", "idle")]
    assert {event.status for event in events if event.event == "http"} >= {200, 500}
    told = settings_told(events)
    assert told is not None
    assert (told[1].settings["ctx"].value, told[1].settings["parallel"].value) == (2048, 1)
    assert {2048} == {event.tokens for event in events if event.event == "window" and event.which == "in-force"}
