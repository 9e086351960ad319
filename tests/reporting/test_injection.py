"""Everything from outside stays text: whatever stands in any field of a document, what is parsed out of the report has the same form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.check import UNSEEN, check, check_html, parser
from reports.document import CaseDocument
from reports.escape import Markdown, cell, code, fence, finalize, prose, visible
from reports.forms import FORMS
from reports.render import render, table
from tests.reporting.samples import SAMPLES, bare, spill

HOSTILE = (
    "@everyone and @org/team look",
    "fixes #1, org/repo#22 and GH-333",
    "commit 42b4109e1f7f5d4e3a2b1c0d9e8f7a6b5c4d3e2f",
    "deadbee",
    "http://evil.example/x https://evil.example www.evil.example ftp://a.b mailto:a@b.example",
    "<http://evil.example> <a@b.example>",
    "![x](http://evil.example/p.png) [click](javascript:alert(1)) [a][b]\n\n[b]: http://evil.example",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</details></summary></td></table><details open><summary>x",
    "\n\n</details>\n\n# Heading\n\n",
    "```\n\n# out\n\n```mermaid\ngraph TD\n",
    "~~~\n# out\n~~~",
    "`` ` ``` ```` `````",
    "`",
    "a | b | c\n|---|---|\n| x | y |",
    "\\| \\\\| \\\\\\| |",
    "trailing \\",
    "**bold** __bold__ *it* _it_ ~~gone~~",
    "$x^2$ $$y$$ $`z`$",
    ":smile: :+1: a:tada:b",
    "- [ ] task\n- item\n1. one\n> quote\n***\n---\n===",
    "-",
    "1.",
    "+ x",
    "# h",
    "    indented code",
    "&lt;b&gt; &#64;user &commat;user &amp;",
    "[^1] text\n\n[^1]: note",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200b\u200d\ufeff\u00ad",
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x07\x08\x00",
    "line\r\nline\rline\u2028line\u2029line\x85line\x0bline\x0c",
    "\U000e0041\U000e0042\U000f0000",
    "Z" + "\u0301" * 40,
    '"]\n    line [1,2]\n  click A "http://evil.example"',
    'xychart-beta\n    title "x"',
    "%%{init: {}}%%",
    "{{ 7*7 }} {% raw %} {0.__class__} %(x)s ${HOME}",
    "<!-- comment --> <![CDATA[x]]> <?php ?>",
    "</style></pre></code></svg></title><svg onload=alert(1)>",
    "' onclick='x' \" onmouseover=\"y",
    "javascript:alert(1) data:text/html,x vbscript:x",
    "!123 %4 &5 ~label ^alert",
    "ㅤ\u115f\u2800 blank letters",
    "한국어 문장 @사용자 #1",
    "Closes: #7, resolves gh-8, see ggml-org/llama.cpp#9, ggml-org/llama.cpp@42b4109e and \uff03\u0031",
    "https://github.com/ggml-org/llama.cpp/pull/1 github.com/a/b/issues/2 HTTPS://EVIL.EXAMPLE //evil.example/x",
    "\uff20everyone @\u200bhere \u0040org &#x40;team @-dash @a_b",
    "<details><summary>x</summary> <br> <a href=x> <b> <sub> <img/src=x> <svg/onload=x> <iframe> <style>*{} <form> <input> <kbd>",
    "```suggestion\nx\n```",
    "> [!WARNING]\n> act now",
    "::: spoiler\n:::\n>! hidden !<",
    "| - |\n|---|\n|x|",
    "Term\n: definition\n\n*[HTML]: abbr",
    "[x]: http://evil.example 'title'\n[x]",
    "[^note]: http://evil.example\n\nsee[^note]",
    "!\\[x](y) \\@user \\#1 \\<b>",
    "a`b``c```d````e",
    "`` `x` ``",
    "\ttab code\n\n    four\n",
    "&NewLine;&Tab;&lpar;x&rpar; &lsqb;a&rsqb;&lpar;b&rpar; &#91;a&#93;(b) &num;1",
    "\u2028@everyone\u2029#1\u0085- item",
    "\x9b31mred \x1b]0;title\x07 \x1bP+q\x1b\\ \x1b[2J\x1b[H",
    "\u202e\u2066\u2067\u061c\u200e\u200f\u2060\u00ad\ufe0f\u034f\u17b4\u180e\U000e0100",
    "H\u0335\u0321\u0353e\u0336\u0322\u0354 \u20dd\u20e3",
    "\ud7ff\ue000\uffff\U0010ffff \ufffd",
    "flowchart TD; A[<img src=x onerror=alert(1)>]-->B; click A callback",
    "%%{init: {'securityLevel': 'loose'}}%%\nxychart-beta\n  title \"x\\\"]\"",
    "---\nconfig:\n  theme: dark\n---\nxychart-beta",
    "```geojson\n{}\n``` ```stl\nsolid\n``` ```math\nx\n```",
    "$$\\href{javascript:alert(1)}{x}$$ \\(x\\) \\[y\\]",
    "{% include x %} {{config}} {# c #} <%= x %> #{x} ${x} `${x}` [[x]] {{<x>}}",
    "SGVsbG8= data:image/svg+xml;base64,PHN2Zz4= blob:x file:///etc/passwd",
    "tel:+1 sms:1 magnet:?x xmpp:a@b.example irc://x slack://x vscode://x",
    'user@example.com, a@b, @a/b, (@x) [@x] "@x" *@x* _@x_ ~@x~ /@x -@x',
    "1\\. x 1) y\n2) z\n+ a\n* b",
    "a  \nhard break\\\nanother",
    "Setext\n===\nSetext\n---",
    "![][x] ![x] [x][] [](x) <x:y> <a+b:c>",
    "[[wiki]] [bracket] (paren) {brace}",
    "x" * 5_000,
    "a\n" * 500,
)
KEPT_ENUM = re.compile(r"band|truth|result|kind|prediction|quality|symptom|why|why_unknown|basis|style|source")


def poison(value: Any, texts: Iterator[str], key: str = "") -> Any:
    """Put the next text into every place that takes one."""
    if isinstance(value, dict):
        if key == "unknown":
            return {next(texts)[:200] or "x": {**v, "note": next(texts)} for v in list(value.values())[:1]}
        return {k: poison(v, texts, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(v, texts, key) for v in value]
    if isinstance(value, str) and not KEPT_ENUM.fullmatch(key) and key not in {"at", "created", "fixed_at"}:
        return next(texts)
    return value


def poisoned(document: CaseDocument, *given: str) -> CaseDocument:
    """Put texts into every field of a document, in turn."""
    texts = cycle(given)
    whole = document.model_dump(mode="json", by_alias=True)
    symptom, evidence = whole["case"]["symptom"], whole.pop("evidence")
    whole = poison(whole, texts)
    whole["case"].update(symptom=symptom)
    whole["evidence"] = evidence
    for device, before in zip(whole["subject"]["hardware"]["devices"], document.subject.hardware.devices, strict=True):
        device["id"] = before.id
    whole["subject"]["placement"].update(overrides=[next(texts), next(texts)])
    whole["subject"]["runtime"].update(rope={next(texts)[:100]: next(texts)}, speculation=next(texts))
    whole["subject"]["backend"]["environment"] = {next(texts)[:50]: next(texts)}
    whole["window"]["statement"] = next(texts)
    if whole["next_test"]:
        whole["next_test"].update({name: next(texts) for name in ("from", "to", "command", "undo", "variable")})
    whole["messages"] = [{"english": next(texts), "text": next(texts), "values": {"x": next(texts)}}]
    return CaseDocument.model_validate(whole)


def turned(by: int) -> tuple[str, ...]:
    """Give the corpus from another place on, so that each field gets another text."""
    short = tuple(text for text in HOSTILE if len(text) < 1_000)
    return short[by % len(short) :] + short[: by % len(short)]


def skeleton(markdown: str) -> list[tuple[str, str, str]]:
    """Give the blocks of a text, without their words: code spans and plain text count as the same."""
    return [(t.type, t.tag, t.info if t.type == "fence" else "") for t in parser().parse(markdown)]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_markdown_keeps_its_form_whatever_stands_in_every_field(text: str) -> None:
    report = render(poisoned(spill(), text), redact=False)
    assert check(report) == ()
    plain = render(poisoned(spill(), "word"), redact=False)
    if len(text) < 1_000:
        assert skeleton(report) == skeleton(plain)
    else:
        assert report.startswith("## ")


@pytest.mark.parametrize("by", range(0, len(HOSTILE), 5))
def test_html_holds_only_the_tags_of_a_report(by: int) -> None:
    page = render(poisoned(spill(), *turned(by)), "html", redact=False)
    assert check_html(page) == ()
    assert "<script" not in page
    assert "<pre>## " not in page
    assert page.count("<h2>") == 1


@pytest.mark.parametrize("target", FORMS)
def test_bug_reports_keep_their_form(target: str) -> None:
    plain = skeleton(render(poisoned(bare(), "word"), "bug-report", target=target, redact=False))
    for by in range(0, len(HOSTILE), 12):
        report = render(poisoned(bare(), *turned(by)), "bug-report", target=target, redact=False)
        assert check(report) == ()
        assert skeleton(report) == plain


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_terminal_gets_no_control_characters(text: str) -> None:
    shown = render(poisoned(spill(), text), "terminal", redact=False)
    assert not UNSEEN.search(shown.replace("\n", ""))


@pytest.mark.parametrize("format_", ["md", "html", "bug-report"])
def test_redaction_does_not_open_what_escaping_closed(format_: Any) -> None:
    for by in range(0, len(HOSTILE), 9):
        report = render(poisoned(spill(), *turned(by)), format_, target="llama.cpp")
        assert (check_html if format_ == "html" else check)(report) == ()


def test_a_lone_surrogate_is_shown_by_its_number() -> None:
    assert visible("a\ud800b") == "a⟨U+D800⟩b"


nasty = st.text(alphabet=st.sampled_from(list("`|\\*_[]<>()#@!$~&:-+=.1a \n\t{}/%^\"'한\u202e")), max_size=60)


@settings(max_examples=80, deadline=None)
@given(nasty)
def test_a_code_span_is_one_code_span_with_the_text_as_it_is(text: str) -> None:
    tokens = parser().parse("x " + code(text))[1].children or []
    wanted = visible(text)
    if wanted:
        assert [t.content for t in tokens if t.type == "code_inline"] == [wanted]
    assert {t.type for t in tokens} <= {"text", "code_inline"}


@settings(max_examples=80, deadline=None)
@given(nasty)
def test_prose_is_one_paragraph_with_nothing_active(text: str) -> None:
    assert check(f"- {prose(text)}\n") == ()
    assert skeleton(f"- {prose(text)}\n") == skeleton("- word\n")


@settings(max_examples=80, deadline=None)
@given(nasty, nasty)
def test_a_table_has_as_many_cells_as_it_was_given(first: str, second: str) -> None:
    from probes.evidence.words import words

    drawn = table([words("a"), words("b")], [[code(first), prose(second)], [prose(first), code(second)]])
    assert check(drawn) == ()
    assert [t.type for t in parser().parse(drawn)].count("td_open") == 4


@settings(max_examples=60, deadline=None)
@given(nasty)
def test_a_pipe_in_a_cell_is_escaped_by_an_odd_number_of_backslashes(text: str) -> None:
    for run in re.findall(r"(\\*)\|", cell(code(text))):
        assert len(run) % 2 == 1


@settings(max_examples=60, deadline=None)
@given(nasty)
def test_a_fence_is_one_fence(text: str) -> None:
    tokens = parser().parse("a\n\n" + fence(text) + "\n\nb\n")
    assert [t.type for t in tokens if t.type in {"fence", "heading_open", "html_block", "code_block"}] == ["fence"]
    assert [t.type for t in tokens].count("paragraph_open") == 2


def test_only_what_was_made_as_markdown_passes_unescaped() -> None:
    assert finalize(Markdown("**x**")) == "**x**"
    assert finalize("**x**") == "`**x**`"


@pytest.mark.parametrize(
    "text",
    [
        "see [x](y)", "![x](y)", "<b>x</b>", "a @user b", "a #12 b", "GH-12", "deadbeef1", "http://x.example", "www.x.example", "$x$", ":smile:",
        "<details>\n<summary>x</summary>\n\nnever closed", "</details>\n", "> quote", "    indented", "a\n===\n", "a *b* c", "```js\nx\n```", "a@b.example",
        "```mermaid\ngraph TD\n```", "x\u202ey", "a ~~b~~", "- [x] task", "~~~\nx\n~~~ \n\n<p>", "[^1]", "x" * 60_001,
    ],
)  # fmt: skip
def test_the_check_finds_what_is_active(text: str) -> None:
    assert check(text + "\n") != ()


@pytest.mark.parametrize(
    "html",
    [
        "<p onclick=x>", "<script>", "<a href=x>x</a>", "<img src=x>", "<p style='x'>", "<iframe>", "<svg><use href='#x'/></svg>", "<!-- x -->", "<p>", "</p>",
        "<meta http-equiv=refresh content='0;url=x'>",
    ],
)  # fmt: skip
def test_the_check_of_pages_finds_what_could_load_or_run(html: str) -> None:
    good = render(bare(), "html")
    assert check_html(good) == ()
    assert check_html(good.replace("<main>", "<main>" + html)) != ()


def test_every_sample_is_clean() -> None:
    for name, make in SAMPLES.items():
        assert check(render(make())) == (), name


@pytest.mark.parametrize("format_", ["md", "html"])
def test_a_report_that_does_not_pass_the_check_is_shown_as_text(format_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.escape._RISKY", re.compile("(?!)"))
    monkeypatch.setattr("reports.escape._STARTS_BLOCK", re.compile("(?!)"))
    report = render(poisoned(bare(), "@everyone <b>x</b> ![x](http://evil.example) #1"), format_, redact=False)
    assert "This report is shown as plain text" in report
    assert (check_html if format_ == "html" else check)(report) == ()
