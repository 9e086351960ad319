"""Laws of the catalogues: none missing, none stale, every place filled, and both languages say the same things."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po as babel_read
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import language
from diagnose.language import LANGUAGES, LOCALES, catalogue, choose, document_of, in_force, spoken
from diagnose.locales.po import read_po
from diagnose.locales.sentences import Sentences, place_names
from diagnose.questions import QUESTIONS
from probes.evidence.errors import InputError
from probes.evidence.words import speaking, use_translation, words
from rules.catalogue import HEADINGS, all_rules
from tests.tools import catalogues as build

ROOT = Path(language.__file__).parents[1]
KO = LOCALES / "ko" / "LC_MESSAGES" / "ctxdoctor.po"


@pytest.fixture(autouse=True)
def _english() -> Iterator[None]:
    yield
    use_translation(None)


@pytest.fixture(scope="module")
def state() -> dict[str, list[str]]:
    return build.state("ko")


def test_no_message_is_missing(state: dict[str, list[str]]):
    assert state["missing"] == [], "run `python -m tests.tools.catalogues` and translate what it added"


def test_no_message_is_stale(state: dict[str, list[str]]):
    assert state["stale"] == [], "run `python -m tests.tools.catalogues`"


def test_the_places_of_every_translation_are_those_of_its_message(state: dict[str, list[str]]):
    assert state["places"] == []


def test_every_translation_can_be_filled():
    for message, said in build.load(KO).items():
        if re.search(r"\{\w+\}", message):
            filled = dict.fromkeys(place_names(message), "…")
            if not any(name.isdigit() for name in filled):
                said.format_map(filled)


def test_korean_is_korean():
    """A sentence of several words is translated, not copied: it holds Hangul."""
    copied = [
        message
        for message, said in build.load(KO).items()
        if said
        and len(re.findall(r"[a-z]{2,}", re.sub(r"\{\w+\}|`[^`]*`", "", message))) >= 4
        and not re.search(r"[가-힣]", said)
    ]
    assert copied == []


def test_no_particle_hangs_on_a_value():
    """After a value nothing may depend on how it sounds: 은/는, 이/가, 을/를, 과/와, 으로/로."""
    hanging = [
        said
        for said in build.load(KO).values()
        if re.search(r"\{\w+\}(?:은|는|이|가|을|를|과|와|으로|로|이라|라)(?![가-힣])", said)
    ]
    assert hanging == []


def test_the_readable_catalogue_is_read_as_babel_reads_it():
    with KO.open("rb") as file:
        catalog = babel_read(file)
    assert read_po(KO.read_text(encoding="utf-8")) == {str(m.id): str(m.string) for m in catalog if m.id and m.string}


def test_a_compiled_catalogue_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "ko" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "ctxdoctor.po").write_bytes(KO.read_bytes())
    monkeypatch.setattr(language, "LOCALES", tmp_path)
    readable = catalogue("ko")
    with KO.open("rb") as file, (folder / "ctxdoctor.mo").open("wb") as out:
        write_mo(out, babel_read(file))
    os.utime(folder / "ctxdoctor.mo", (time.time() + 10,) * 2)
    compiled = catalogue("ko")
    (folder / "ctxdoctor.po").unlink()
    alone = catalogue("ko")
    for message in list(build.load(KO))[::50]:
        assert readable(message) == compiled(message) == alone(message)
    assert compiled("What goes wrong?") != "What goes wrong?"


def test_a_catalogue_is_read_in_a_moment():
    took = []
    for _ in range(3):
        began = time.process_time()
        catalogue("ko")
        took.append(time.process_time() - began)
    assert min(took) < 0.25


def test_what_is_fuzzy_or_empty_is_not_said():
    source = 'msgid ""\nmsgstr "x"\n\n#, fuzzy\nmsgid "a b"\nmsgstr "wrong"\n\nmsgid "c"\nmsgstr ""\n\nmsgid "d"\n"e\\n\\"f\\""\nmsgstr "ok"\n\n#~ msgid "old"\n#~ msgstr "gone"\n'
    assert read_po(source) == {'de\n"f"': "ok"}


def test_the_language_is_the_one_asked_for_else_the_locales(monkeypatch: pytest.MonkeyPatch):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "ko_KR.UTF-8")
    assert choose(None) == "ko" == in_force()
    assert str(QUESTIONS[0].words) == "무엇이 문제인가요?"
    assert QUESTIONS[0].words.english == "What goes wrong?"
    assert choose("en") == "en" == in_force()
    assert str(QUESTIONS[0].words) == "What goes wrong?"
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert choose(None) == "en"
    with pytest.raises(InputError):
        choose("xx")
    assert set(LANGUAGES) == {"en", "ko"}


def test_a_sentence_with_its_values_in_it_is_told_by_its_form():
    choose("ko")
    said = spoken("nothing answers at http://127.0.0.1:1 (refused); start the server or give its address with --url")
    assert "http://127.0.0.1:1" in said
    assert "(refused)" in said
    assert re.search(r"[가-힣]", said)
    assert spoken("no sentence of ours at all") == "no sentence of ours at all"
    assert spoken("no log was given; add it with --log FILE") != "no log was given; add it with --log FILE"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=2, max_size=2))
def test_values_come_through_a_told_sentence_unchanged(values: list[str]):
    form = "cannot read {0}: {1}"
    said = Sentences([form], lambda text: "읽을 수 없음 {0} – {1}" if text == form else text).say(form.format(*values))
    if values[0] and values[1] and ": " not in values[0] and not values[0].endswith(":"):
        assert said == f"읽을 수 없음 {values[0]} – {values[1]}"


def test_a_long_hostile_sentence_costs_nothing():
    choose("ko")
    began = time.process_time()
    spoken("cannot read " + ": " * 100_000)
    spoken("{0} " * 50_000)
    spoken(": ".join("a" * 20 for _ in range(80)))
    assert time.process_time() - began < 1


def test_braces_in_a_value_choose_no_place():
    with speaking(lambda text: {"cannot read {0}: {1}": "읽을 수 없음 {0}: {1}"}.get(text, text)):
        assert str(words("{a} is {b}", a="{b}", b=1)) == "{b} is 1"
    look_up = Sentences(["cannot read {0}: {1}"], lambda text: text.replace("cannot read", "못 읽음"))
    assert look_up.say("cannot read {1}: {0}") == "못 읽음 {1}: {0}"


def test_help_and_questions_speak_korean(tmp_path: Path):
    environment = {**os.environ, "CTXDOCTOR_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}

    def said(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "diagnose", *arguments],
            capture_output=True,
            env=environment,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        return (done.stdout + done.stderr).decode()

    for overview in (said("--help", "--lang", "ko"), said("--lang=ko", "--help")):
        assert "사용법" in overview
        assert "Commands" not in overview
    run = said("run", "--help", "--lang", "ko")
    assert "사용법: ctxdoctor run" in run
    assert "서버 주소" in run
    assert "Show this message" not in run
    refused = said("run", "9", "--lang", "ko", "--budget", "never")
    assert "시간이 아닙니다" in refused


def test_a_report_is_drawn_in_korean_with_its_own_words_and_the_documents():
    from reports.document import CaseDocument
    from reports.render import render
    from tests.reporting import samples

    document = next(made for name in dir(samples) if callable(made := getattr(samples, name)) and name == "spill")()
    assert isinstance(document, CaseDocument)
    choose("ko")
    korean, english = render(document, lang="ko"), render(document, lang="en")
    for heading in ("검증된 window", "다음 시험", "서버에 보낸 것"):
        assert heading in korean
        assert heading not in english
    titles = {cause.words for cause in document.verdict.causes}
    headings = [line for line in korean.splitlines() if line.startswith(("#", "<summary>"))]
    ours = [line for line in headings if not any(title in line for title in titles)]
    assert len(ours) > 5
    assert all(re.search(r"[가-힣]", line) for line in ours), ours


def test_a_bug_report_is_english_unless_asked(monkeypatch: pytest.MonkeyPatch):
    from reports.render import render
    from tests.reporting import samples

    choose("ko")
    report = render(samples.spill(), "bug-report")
    assert not re.search(r"[가-힣]", report)


def test_a_rules_korean_page_has_the_same_headings_and_names_what_the_rule_names():
    headings = {"무엇을 찾는가", "왜 일어나는가", "틀렸음을 보여 주는 것", "참고"}
    for rule in all_rules():
        path = ROOT / "rules" / rule.family.replace("-", "_") / f"{rule.id.replace('-', '_')}.ko.md"
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        assert headings <= set(text.splitlines()), path.name
        for named in re.findall(r"`[^`]+`", rule.document):
            assert named in text, (path.name, named)
        assert len(re.findall(r"^ +- ", text, re.MULTILINE)) == len(
            re.findall(r"^ +- ", rule.document, re.MULTILINE)
        ), path.name


def test_a_rules_page_is_shown_in_the_language_in_force():
    rule = all_rules()[0]
    assert document_of(rule.id, rule.family, rule.document) == rule.document
    choose("ko")
    assert re.search(r"[가-힣]", document_of("slots-divide-ctx", "window-limits", "English"))
    assert document_of("no-such-rule", "window-limits", "English") == "English"
    assert len(HEADINGS) == 4


def test_every_rule_has_its_korean_page():
    missing = [
        rule.id
        for rule in all_rules()
        if not (ROOT / "rules" / rule.family.replace("-", "_") / f"{rule.id.replace('-', '_')}.ko.md").exists()
    ]
    assert missing == []


def test_the_catalogue_is_written_the_same_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = KO.read_bytes()
    folder = tmp_path / "ko" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "ctxdoctor.po").write_bytes(before)
    monkeypatch.setattr(build, "LOCALES", tmp_path)
    assert build.renew("ko") == ([], [])
    assert (folder / "ctxdoctor.po").read_bytes() == before
    assert io.BytesIO(before).read(1) == b"#"


def test_the_language_of_one_command_is_not_that_of_the_next(capsys):
    """Law: a command that speaks Korean leaves the process as it was."""
    from diagnose.cli import command_line

    assert command_line(["--lang", "ko", "cases"]) == 0
    assert in_force() == "en"
    capsys.readouterr()
