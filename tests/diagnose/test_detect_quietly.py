"""A look at what runs on this machine breaks off nobody's answer."""

from __future__ import annotations

from diagnose.detect import look_at
from tests.backends.loopback import Loopback


def test_llama_cpp_python_is_not_asked_for_its_models():
    """Law: its list of models, and its tokenizer, wait for the answer that it gives, and end it: a look by the way asks for neither."""
    with Loopback.playing("llama-cpp-python-0.3.36") as server:
        seen = look_at(server.url)
        assert seen is not None
        assert seen.backend == "llama-cpp-python"
        assert "/v1/models" not in server.paths
        assert {method for method, _path, _body in server.asked} == {"GET"}
