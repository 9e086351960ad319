"""A Korean report is Korean: what is left in English is a name, a setting, or what a server printed."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.cli import command_line
from diagnose.language import catalogue
from probes.evidence.words import use_translation, words
from reports.document import CaseDocument
from reports.forms import FORMS
from reports.redact import Redactor
from reports.render import render

LOGS = Path(__file__).parents[1] / "recordings" / "logs"
ANSWERS = """\
symptom = "fixed-length-error"
when = ["long-prompt"]
fails_at = 75000
same_length = "about"
error_kind = "gpu-memory"
several_gpus = "several"
gpu_maker = "amd"
estimate = "wrong"
os = "linux"
backend = "ollama"
"""
CASES = {
    "oom": [str(LOGS / "llamacpp-b0-xllamacpp-2026.10.11549-oom.log"), "--symptom", "immediate-oom"],
    "ollama": [str(LOGS / "ollama-0.33-llama-server.log"), "--symptom", "slow-long-context"],
    "vllm": [str(LOGS / "vllm-0.33.log"), "--symptom", "flaky"],
    "sglang": [str(LOGS / "sglang-0.5.23.log"), "--symptom", "forgetting"],
    "answers": ["--answers", "answers.toml"],
}
# Four words of a sentence in a row, small letters, with nothing but blanks and commas between: no name and no option looks so.
ENGLISH = re.compile(r"(?:\b[A-Za-z][a-z']+,? ){3,}[a-z']{2,}\b")
TERMS = re.compile("flash attention|speculative decoding|sliding window")
"""Terms that Korean texts on the matter write so."""
NAMES = re.compile("|".join(re.escape(title) for form in FORMS.values() for title, _ in form.fields))


def told(text: str) -> str:
    """Give what the report says itself: without blocks of lines, names in code, and the titles of another project's form."""
    text = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "–", text)
    return TERMS.sub("–", NAMES.sub("", text))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers.toml").write_text(ANSWERS)
    yield
    use_translation(None)


@pytest.mark.parametrize("case", CASES)
def test_no_english_sentence_is_left_in_a_korean_report(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, list[str]] = {}
    for format_ in ("md", "html", "bug-report"):
        arguments = ["triage", *CASES[case], "--lang", "ko", "--format", format_]
        command_line([*arguments, *(["--for", "llama.cpp"] if format_ == "bug-report" else [])])
        report = capsys.readouterr().out
        assert re.search("[가-힣]", report)
        if format_ == "html":
            report = re.sub(r"(?s)<(style|pre|code)\b.*?</\1>", "–", report)
            report = html.unescape(re.sub(r"<[^>]+>", "\n", report))
        left = [match.group() for match in ENGLISH.finditer(told(report))]
        if left:
            found[format_] = left
    assert found == {}


def test_a_measured_case_is_told_in_korean_with_its_notes() -> None:
    case = (Path(__file__).parents[2] / "docs" / "example" / "case.json").read_text(encoding="utf-8")
    document = CaseDocument.model_validate_json(case)
    report = render(document, "md", lang="ko", translate=catalogue("ko"), redactor=Redactor(local=False))
    assert document.notes
    assert [match.group() for match in ENGLISH.finditer(told(report))] == []


def test_the_search_for_english_finds_a_sentence_and_lets_names_be() -> None:
    assert ENGLISH.search(told("이유: The report names this itself: its author saw it"))
    assert not ENGLISH.search(told("KV Cache 형식: `the cache type is f16`, flash attention, micro-batch × window"))
    assert not ENGLISH.search(told("```text\nfailed to allocate buffer for kv cache\n```\n끝"))


def test_a_bug_report_is_english_whatever_the_interface_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    command_line(["triage", *CASES["oom"], "--format", "bug-report", "--for", "llama.cpp"])
    report = capsys.readouterr().out
    assert not re.search("[가-힣]", report)
    assert "What this report is" in report


def test_what_is_kept_in_english_is_english_throughout() -> None:
    said = words("It is {what}.", what=words("unknown"))
    use_translation(lambda text: {"unknown": "알 수 없음", "It is {what}.": "{what}"}.get(text, text))
    assert str(said) == "알 수 없음"
    assert said.english == "It is unknown."
