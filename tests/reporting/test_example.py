"""The example in docs/ is what today's code makes of a case that was really measured, and the README shows its beginning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.check import check, check_html
from reports.document import CaseDocument
from reports.redact import Redactor
from reports.render import render

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "example"


def document() -> CaseDocument:
    return CaseDocument.model_validate_json((EXAMPLE / "case.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "format_"), [("report.md", "md"), ("report.html", "html"), ("bug-report.md", "bug-report")]
)
def test_the_example_is_drawn_by_todays_code(file: str, format_: str, update_golden: bool) -> None:
    drawn = render(document(), format_, target="llama.cpp", redactor=Redactor(local=False))  # type: ignore[arg-type]
    assert (check_html(drawn) if format_ == "html" else check(drawn)) == ()
    if update_golden:
        (EXAMPLE / file).write_text(drawn, encoding="utf-8")
    assert drawn == (EXAMPLE / file).read_text(encoding="utf-8")


def test_the_example_was_measured() -> None:
    case = document()
    assert case.sent.prompt_tokens > 1_000
    assert len({rung.input_tokens for rung in case.rungs}) >= 3
    assert case.subject.backend.name == "llama.cpp"
    assert case.verdict.causes


def test_the_readme_shows_the_beginning_of_the_real_report() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    report = (EXAMPLE / "report.md").read_text(encoding="utf-8")
    for file in ("report.md", "report.html", "bug-report.md", "case.json"):
        assert f"(docs/example/{file})" in readme
    quoted = re.findall(r"(?m)^> ?(.*)$", readme)
    said = [line.lstrip("#- ").strip() for line in quoted if line.strip("# -")]
    assert len(said) >= 5
    assert [line for line in said if line not in report] == []
