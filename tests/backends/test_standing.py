"""Settings that are changed through a running server's own interface, and put back: Ollama, LM Studio, llama-manager."""

from __future__ import annotations

import pytest

from probes.backends import standing
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.ollama import Ollama
from probes.backends.recognise import recognise
from probes.backends.standing import (
    LlamaManagerStanding,
    LmStudioStanding,
    OllamaStanding,
    find_router,
    reload_steps,
    standing_at,
    standing_of,
)
from probes.evidence.errors import LaunchFailedError, NotOfferedError, RefusedSettingError

from .loopback import Loopback
from .standing_like import LmStudioLike, OllamaLike, RouterLike


def test_ollama_loads_with_options_and_is_put_back():
    """Law: what is not changed stays as it was loaded; afterwards the window is the one before."""
    with OllamaLike(window=4096) as server, Http(server.url) as http:
        one = standing_of(recognise(http))
        before = one.before()
        assert before == {"loaded": True, "num_ctx": 4096}
        one.put({"batch": 128})
        assert server.options == {"num_ctx": 4096, "num_batch": 128}
        one.put({"ctx": 16_384})
        assert server.options == {"num_ctx": 16_384}
        one.put_back(before)
        assert server.options == {"num_ctx": 4096}
        assert all(not body.get("prompt") for body in server.bodies("/api/generate"))


def test_ollama_is_unloaded_again_where_it_was_not_loaded():
    with OllamaLike(loaded=False) as server, Http(server.url) as http:
        one = OllamaStanding(http, "tiny:latest")
        before = one.before()
        one.put({"ctx": 8192})
        assert server.options == {"num_ctx": 8192}
        one.put_back(before)
        assert server.options is None


def test_each_request_to_ollama_repeats_the_options():
    """Else the model would be loaded anew between two requests."""
    with OllamaLike() as server, Http(server.url) as http:
        backend = recognise(http)
        assert isinstance(backend, Ollama)
        one = standing_of(backend)
        one.put({"ctx": 2048, "batch": 64})
        backend.options = one.written({"ctx": 2048, "batch": 64})
        loads = len(server.loads)
        backend.complete(Ask(prompt="a b c", max_tokens=1))
        backend.complete(Ask(messages=({"role": "user", "content": "hi"},), max_tokens=1))
        assert len(server.loads) == loads
        assert server.options == {"num_ctx": 2048, "num_batch": 64}


def test_a_model_that_does_not_load_is_told_in_the_servers_words():
    with OllamaLike(fits=8192) as server, Http(server.url) as http:
        one = standing_of(recognise(http))
        with pytest.raises(LaunchFailedError, match="more system memory"):
            one.put({"ctx": 16_384})
    with LmStudioLike(fits=8192) as server, Http(server.url) as http:
        one = standing_of(recognise(http))
        before = one.before()
        with pytest.raises(LaunchFailedError, match="insufficient"):
            one.put({"ctx": 16_384})
        assert server.instances == {}
        one.put_back(before)
        assert server.instances["m"]["context_length"] == 4096


def test_lm_studio_unloads_before_it_loads_and_keeps_the_rest():
    """Law: never two instances; what is not changed is as before; put back twice does nothing more."""
    with LmStudioLike(parallel=4) as server, Http(server.url) as http:
        one = standing_of(recognise(http))
        before = one.before()
        one.put({"ctx": 16_384, "flash_attention": "off"})
        assert server.instances == {
            "m": {"context_length": 16_384, "eval_batch_size": 512, "flash_attention": False, "parallel": 4}
        }
        LmStudioStanding(http, "m").put_back(before)
        assert server.instances["m"] == before["config"]
        asked = len(server.asked)
        LmStudioStanding(http, "m").put_back(before)
        assert [method for method, _path, _body in server.asked[asked:]] == ["GET"]


def test_llama_manager_reloads_in_place_what_can_be_read_before():
    with RouterLike() as router, Http(router.url) as http:
        one = LlamaManagerStanding(http, "big", router=http)
        before = one.before()
        one.put({"ctx": 32_768})
        assert router.n_ctx == 32_768
        assert router.bodies("/reload") == [{"n_ctx": 32_768, "model": "big"}]
        one.put_back(before)
        assert router.n_ctx == 8192
        assert not one.takes("kv_type")
        with pytest.raises(NotOfferedError, match="kv_type"):
            one.put({"kv_type": "q8_0"})
        with pytest.raises(LaunchFailedError, match="failed to create context"):
            one.put({"ctx": 1 << 21})


@pytest.mark.parametrize("router", [RouterLike(slots=2), Loopback()])
def test_what_could_not_be_put_back_is_not_changed(router):
    with router, Http(router.url) as http, pytest.raises(NotOfferedError):
        LlamaManagerStanding(http, "big", router=http).before()


def test_an_ordinary_llama_server_has_no_reload():
    with (
        RouterLike(reloads=False) as router,
        Http(router.url) as http,
        pytest.raises(NotOfferedError, match="no /reload"),
    ):
        LlamaManagerStanding(http, "big", router=http).put({"ctx": 4096})


def test_the_router_is_a_child_of_the_managers_process(monkeypatch):
    """By its presets flag; the models' own processes have none. Elsewhere it cannot be seen."""
    from probes import process

    children = {
        11: ("llama-server", "-m", "x.gguf", "--port", "9001"),
        12: ("/opt/llama-server", "--models-preset", "p.ini", "--host", "127.0.0.1", "--port", "9002"),
    }

    class Read:
        def __init__(self, argv, children=()):
            self.argv, self.environment, self.children = argv, {}, children

    monkeypatch.setattr(process, "process_behind", lambda _url: Read(("node",), (11, 12)))
    monkeypatch.setattr(process, "read_process", lambda pid: Read(children[pid]))
    with Http("http://127.0.0.1:1") as http:
        assert find_router(http).base_url == "http://127.0.0.1:9002"
        del children[12]
        children[12] = ("sleep", "1")
        with pytest.raises(NotOfferedError, match="no llama-server"):
            find_router(http)
    with Http("http://192.0.2.1:1") as http, pytest.raises(NotOfferedError, match="own machine"):
        find_router(http)


def test_other_servers_change_nothing_while_they_run():
    with Loopback() as server, Http(server.url) as http, pytest.raises(NotOfferedError, match="--launch"):
        standing_at("vllm", http, "m")


def test_a_setting_without_a_value_or_without_a_place_is_refused():
    with OllamaLike() as server, Http(server.url) as http:
        one = standing_of(recognise(http))
        with pytest.raises(RefusedSettingError):
            one.put({"ctx": None})
        with pytest.raises(NotOfferedError, match="tensor_split"):
            one.put({"tensor_split": "1,1"})
        assert server.loads == []


def test_what_is_sent_is_told_before():
    with OllamaLike() as server, Http(server.url) as http:
        assert standing_of(recognise(http)).request({"ctx": 8192}) == 'each request with "options": {"num_ctx": 8192}'
    with LmStudioLike() as server, Http(server.url) as http:
        assert '{"context_length": 8192}' in standing_of(recognise(http)).request({"ctx": 8192})
    (step,) = reload_steps("ctx", 8192, "big")
    assert '"n_ctx": 8192' in str(step)
    with pytest.raises(NotOfferedError):
        reload_steps("kv_type", "q8_0", "big")
    assert set(standing.KINDS) == {"ollama", "lm-studio", "llama-manager"}
