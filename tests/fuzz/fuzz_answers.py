"""Fuzz target of the readers of servers' answers: streams, refusals, lists of models, metrics: ``python tests/fuzz/fuzz_answers.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as a server's answer, in every server's way: a record that holds no impossible sum, or a typed error."""
    from probes.backends.base import Ask
    from probes.backends.http import Reply, StreamPiece, strict_json
    from probes.backends.llama_router import read_models
    from probes.backends.llama_swap import read_running
    from probes.backends.llamacpp import _Reading
    from probes.backends.openai_compatible import parse_metrics
    from probes.backends.recognise import BACKENDS
    from probes.backends.refusals import type_refusal
    from probes.evidence.errors import CtxDoctorError
    from probes.evidence.request import Completion

    text = data.decode("utf-8", "replace")
    ask = Ask(prompt="a", max_tokens=4, logprobs=2)
    parse_metrics(text, ("vllm:x", "sglang:x"))
    type_refusal(500, text)
    try:
        told = strict_json(text)
    except CtxDoctorError:
        told = text
    type_refusal(400, told)
    read_models(told)
    read_running(told)
    kinds = {_Reading, *(cls.reading for cls in BACKENDS.values() if hasattr(cls, "reading"))}
    for kind in sorted(kinds, key=lambda cls: cls.__name__):
        for whole in (True, False):
            reading = kind(ask)
            try:
                if whole:
                    reading.whole(Reply(200, {}, data, 0.1))
                else:
                    for number, line in enumerate(text.splitlines()[:50]):
                        if reading.piece(StreamPiece(0.01 * number, line.removeprefix("data:").strip())):
                            break
                answer = reading.result(1.0)
            except CtxDoctorError:
                continue
            assert json.loads(answer.model_dump_json())
            assert Completion.model_validate_json(answer.model_dump_json()) == answer
            for part in (answer.cached_tokens, answer.processed_tokens):
                assert part is None or answer.prompt_tokens is None or part <= answer.prompt_tokens or kind is _Reading


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes", "diagnose"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
