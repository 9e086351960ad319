"""The document holds every key of the published contract, always, under its own name."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from probes.evidence.words import words
from reports.document import CaseDocument, CauseFound, NextTest, message
from tests.reporting.samples import bare, spill

CONTRACT = {
    "": "schema_version tool case subject criteria rungs window verdict verdicts next_test changes evidence sent unknown",
    "tool": "name version",
    "case": "id symptom created runs",
    "case.runs.0": "id at",
    "subject": "model backend window kv_cache hardware placement runtime",
    "subject.model": "name path size_bytes quantization architecture trained_window header_hash",
    "subject.backend": "name version build",
    "subject.window": "asked trained per_slot slots in_force",
    "subject.kv_cache": "type_k type_v placement bytes_per_token unified",
    "subject.hardware": "devices ram_bytes os",
    "subject.hardware.devices.0": "id name vendor total_bytes free_bytes driver link",
    "subject.placement": "gpu_layers tensor_split split_mode overrides",
    "subject.runtime": "batch ubatch flash_attention parallel speculation projector rope threads sampling output_tokens",
    "criteria": "repeats min_canaries min_of_own_base min_constraints min_prefill_tps min_generation_tps max_first_token_s margin_bytes fixed_at hash",
    "rungs.0": "run input_tokens output_tokens cached_tokens attempt result error prefill_tps generation_tps first_token_s canaries constraints "
    "devices host_peak_bytes",
    "rungs.0.canaries": "hit asked by_depth",
    "rungs.0.canaries.by_depth.0": "depth hit",
    "rungs.0.constraints": "met asked",
    "rungs.0.devices.0": "id peak_bytes",
    "window": "asked trained in_force verified_input_tokens output_tokens fits fast_enough recalls statement",
    "window.fits": "tokens ok",
    "verdict": "run named confirmed abstained_because causes",
    "verdict.causes.0": "id family band low now high explains clues",
    "verdict.causes.0.clues.0": "words truth weight facts",
    "verdict.causes.0.clues.0.facts.0": "id found source why_unknown",
    "next_test": "kind variable from to command undo keep expects cost reason",
    "next_test.expects.0": "cause words",
    "next_test.cost": "minutes tokens quality",
    "evidence.0": "run kind source at data",
    "sent": "requests prompt_tokens generated_tokens",
}


def at(data: object, path: str) -> dict[str, object]:
    for step in path.split(".") if path else ():
        data = data[int(step)] if isinstance(data, list) else data[step]  # type: ignore[index]
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("path", CONTRACT)
def test_every_key_of_the_contract_is_there(path: str) -> None:
    data = json.loads(spill().to_json())
    assert set(CONTRACT[path].split()) <= set(at(data, path))


def test_a_change_has_the_keys_of_the_contract() -> None:
    change = json.loads(bare().to_json())["changes"][0]
    assert {"run", "variables", "single", "prediction", "conclusion", "kept"} <= set(change)
    assert {"name", "before", "after", "source"} <= set(change["variables"][0])


def test_an_empty_case_has_every_part_too() -> None:
    data = json.loads(CaseDocument.model_validate({"tool": {"version": "0"}, "case": {"id": "x"}}).to_json())
    for path, keys in CONTRACT.items():
        if "0" not in path and not path.startswith("next_test"):
            assert set(keys.split()) <= set(at(data, path)), path


def test_a_document_is_read_back_as_it_was_written() -> None:
    for make in (spill, bare):
        assert CaseDocument.model_validate_json(make().to_json()) == make()


def test_the_schema_names_from_as_the_contract_does() -> None:
    schema = CaseDocument.model_json_schema()
    assert "from" in schema["$defs"]["NextTest"]["properties"]
    assert json.loads(NextTest(kind="change", from_="f16").model_dump_json())["from"] == "f16"


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError):
        CaseDocument.model_validate({"tool": {"version": "0"}, "case": {"id": "x"}, "extra": 1})


def test_a_band_may_be_written_with_a_blank() -> None:
    assert CauseFound(id="a", family="b", band="ruled out", low=0, now=0, high=0).band == "ruled-out"  # type: ignore[arg-type]


def test_a_message_keeps_its_sentence_and_its_values() -> None:
    kept = message(words("{n} of {all} passed", n=2, all=words("three")))
    assert (kept.english, kept.text, kept.values) == (
        "2 of three passed",
        "{n} of {all} passed",
        {"n": 2, "all": "three"},
    )
