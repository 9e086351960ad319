"""Laws of the guided walk: few questions, a way back from each, nothing sent unseen, nothing asked in vain, nothing lost."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose import interview
from diagnose.answers_file import check_answers
from diagnose.case import Case
from diagnose.detect import Seen, find_servers, look_at
from diagnose.forecast import forecast
from diagnose.interview import Talk, core_of, guided, help_of, put, screen_of, worth_asking
from diagnose.options import RunOptions
from diagnose.prompter import Plain, Screen, Way, prompter
from diagnose.questions import QUESTIONS, question
from diagnose.running import Walk
from probes.evidence.answers import Answer
from probes.evidence.rungs import Criteria
from tests.backends.loopback import Loopback
from tests.diagnose.llama_like import LlamaLike

SYMPTOMS = ("immediate-oom", "fixed-length-error", "slow-long-context", "forgetting", "flaky")
SERVER = Seen("http://127.0.0.1:8080", "llama.cpp", "some-model", 32768, 131072, 32768, 4)


class Scripted:
    """A person who answers by a script: title → what is given; what is not in it is "I don't know"."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = {title: list(given) if isinstance(given, list) else [given] for title, given in script.items()}
        self.screens: list[Screen] = []
        self.told: list[str] = []

    def ask(self, screen: Screen) -> Any:
        self.screens.append(screen)
        assert len(self.screens) < 60, "it never ends"
        for part, given in self.script.items():
            if part in screen.title and given:
                answer = given.pop(0) if len(given) > 1 else given[0]
                if answer is KeyboardInterrupt:
                    raise KeyboardInterrupt
                return answer
        if screen.chosen and screen.kind != "several":
            return screen.chosen[0]
        return Way.DO_NOT_KNOW if screen.do_not_know else screen.options[0][0]

    def tell(self, text: str) -> None:
        self.told.append(text)

    @property
    def titles(self) -> list[str]:
        return [screen.title for screen in self.screens]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def walked(person: Scripted, servers: list[Seen] | None = None, **more: Any) -> int:
    given: dict[str, Any] = {
        "url": None,
        "api_key": None,
        "model": None,
        "backend": None,
        "logs": (),
        "launch": None,
        "answers": (),
        "case_name": "one",
        "budget_s": 60.0,
        "lang": "en",
        "seed": 0,
        "yes": False,
        "quiet": True,
    }
    return guided(**(given | more), prompt=person, look=lambda _key: servers or [])


def performed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunOptions, Criteria]]:
    """Stand in for the measuring: note what it was called with, and end the run."""
    runs: list[tuple[RunOptions, Criteria]] = []

    def run(case: Case, options: RunOptions, criteria: Criteria, answers: Any, terminal: Any, **more: Any) -> Walk:
        assert not answers
        runs.append((options, criteria))
        options, criteria, _resumed = interview.begin(case, options, criteria)
        one = Walk(case, options, terminal, criteria, mode=more["mode"])
        interview.judge_run(one)
        case.append("run-ended", {"could_not_look": None})
        return one

    monkeypatch.setattr(interview, "perform", run)
    return runs


@pytest.mark.parametrize("symptom", SYMPTOMS)
@pytest.mark.parametrize("servers", [[], [SERVER], [SERVER, Seen("http://127.0.0.1:11434", "ollama")]])
def test_there_are_at_most_seven_screens_before_the_first_probe_and_the_symptom_is_first(
    symptom: str, servers: list[Seen], monkeypatch: pytest.MonkeyPatch
):
    runs = performed(monkeypatch)
    person = Scripted({"What goes wrong": symptom, "Which one is it about": "nothing", "Stop": Way.STOP})
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    walked(person, servers)
    before = [title for title in person.titles if title != "Start?"]
    assert len(before) <= 7
    assert "What goes wrong" in before[0]
    assert [re.match(r"\[(\d)/(\d)\]", title).groups() for title in before] == [
        (str(n), str(len(before))) for n in range(1, len(before) + 1)
    ]
    assert bool(runs) is bool(servers)


def test_every_question_says_why_and_takes_i_dont_know_and_help():
    for one in QUESTIONS:
        screen = screen_of(one, back=True)
        assert screen.why
        assert screen.do_not_know
        assert screen.help
        assert len(help_of(one)) >= 4
        person = Scripted({one.words.english: [Way.HELP, Way.DO_NOT_KNOW]})
        talk = Talk(person, interview.Terminal(quiet=True))
        assert put(talk, one, screen) is None
        assert str(one.why) in person.told[0]


def test_what_is_detected_is_offered_as_the_answer_and_nothing_is_sent_before_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
):
    runs = performed(monkeypatch)
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    person = Scripted({"What goes wrong": "fixed-length-error", "tokens per second": "12"})
    walked(person, [SERVER])
    wanted = next(screen for screen in person.screens if "How long should the window be" in screen.title)
    assert wanted.chosen == ("131072",)
    slots = next(screen for screen in person.screens if "same time" in screen.title)
    assert slots.chosen == ("4",)
    assert not any("Which server" in title for title in person.titles)
    said = person.told[-1]
    assert "http://127.0.0.1:8080" in said
    assert re.search(r"At most \d+ requests with \d+ prompt tokens", said)
    assert "Nothing of yours is sent" in said
    assert runs == [(runs[0][0], Criteria(min_generation_tps=12.0))]
    assert runs[0][0].url == "http://127.0.0.1:8080"


def test_a_server_elsewhere_is_said_to_be_elsewhere(monkeypatch: pytest.MonkeyPatch):
    performed(monkeypatch)
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    person = Scripted({"What goes wrong": "flaky", "Start": "start"})
    walked(person, [Seen("http://10.1.2.3:8080", "vllm", window=8192)])
    assert "another machine" in person.told[-1]


def test_back_goes_to_the_question_before_and_the_last_answer_counts(monkeypatch: pytest.MonkeyPatch):
    performed(monkeypatch)
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    person = Scripted({"What goes wrong": ["flaky", "forgetting"], "When does": [Way.BACK, ("over-time",)]})
    walked(person, [SERVER])
    assert [title[6:20] for title in person.titles[:4]] == ["What goes wron", "When does it h"] * 2
    assert not person.screens[0].back
    assert person.screens[1].back
    assert person.screens[2].chosen == ("flaky",)
    with Case.open("one", read_only=True) as case:
        assert case.symptom == "forgetting"


def test_an_answer_can_be_changed_at_the_end_and_leaving_keeps_the_answers(monkeypatch: pytest.MonkeyPatch):
    runs = performed(monkeypatch)
    person = Scripted(
        {"What goes wrong": "flaky", "Which kind of program": ["script", "agent"], "Start": ["change", "leave"]}
    )
    with pytest.raises(KeyboardInterrupt):
        walked(person, [SERVER])
    assert not runs
    with Case.open("one", read_only=True) as case:
        answers = {answer.question: answer.value for answer in case.payloads(Answer)}
    assert answers["client"] == "agent"
    assert len(answers) == 7


def test_an_interrupted_interview_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch):
    runs = performed(monkeypatch)
    first = Scripted({"What goes wrong": "slow-long-context", "What changed": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        walked(first, [SERVER])
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    second = Scripted({})
    walked(second, [SERVER])
    assert "What changed" in second.titles[0]
    assert not any("What goes wrong" in title for title in second.titles)
    assert len(runs) == 1


def test_a_run_that_was_interrupted_goes_on_with_its_own_options_and_without_a_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    runs = performed(monkeypatch)
    whole = interview.perform

    def cut_short(case: Case, options: RunOptions, criteria: Criteria, *_more: Any, **_named: Any) -> Walk:
        interview.begin(case, options, criteria)
        raise KeyboardInterrupt

    monkeypatch.setattr(interview, "perform", cut_short)
    with pytest.raises(KeyboardInterrupt):
        walked(Scripted({"What goes wrong": "flaky"}), [SERVER], yes=True)
    # the run itself says how it is gone on with, and one way is enough
    assert "Go on with" not in capsys.readouterr().err
    monkeypatch.setattr(interview, "perform", whole)
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    again = Scripted({})
    walked(again, [])
    assert again.screens == []
    assert [options.url for options, _criteria in runs] == [SERVER.url]
    with Case.open("one", read_only=True) as case:
        assert case.run == 1


def test_a_measured_case_is_not_measured_again_when_it_is_gone_on_with(monkeypatch: pytest.MonkeyPatch):
    runs = performed(monkeypatch)
    # the follow-up after the first is where the person leaves
    first = Scripted(
        {"What goes wrong": "slow-long-context", "[": Way.DO_NOT_KNOW, "Start?": "start", "": KeyboardInterrupt}
    )
    with pytest.raises(KeyboardInterrupt):
        walked(first, [SERVER])
    assert len(runs) == 1
    second = Scripted({"": Way.STOP})
    walked(second, [SERVER])
    assert len(runs) == 1
    assert len(second.screens) == 1
    assert second.screens[0].stop


def test_follow_ups_come_only_while_they_can_change_the_verdict_and_then_it_stops():
    person = Scripted(
        {"What goes wrong": "slow-long-context", "Which one is it about": "nothing", "Which part is slow": "reading"}
    )
    code = walked(person)
    assert code in {0, 1, 3, 4}
    asked = [screen for screen in person.screens if screen.stop]
    assert asked, "nothing was asked although nothing is known"
    assert len({screen.title for screen in asked}) == len(asked) <= interview.MOST_AFTER
    with Case.open("one") as case:
        answered = {answer.question: answer.value for answer in case.payloads(Answer)}
        assert len(list(case.of("verdict"))) == 1 + len(asked)
        one = Walk(case, RunOptions(), interview.Terminal(quiet=True), Criteria(), mode="triage")
        if len(asked) < interview.MOST_AFTER:
            assert worth_asking(one, answered) == []
    assert list(Path.cwd().glob("ctxdoctor-report*.md"))


def test_a_question_that_makes_no_sense_after_an_answer_is_not_asked():
    person = Scripted({"What goes wrong": "immediate-oom", "Which one is it about": "nothing"})
    walked(person)
    assert not any("slow" in screen.title for screen in person.screens if screen.stop)


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_the_next_test_of_a_report_is_never_a_question_that_makes_no_sense(symptom: str):
    person = Scripted({"What goes wrong": symptom, "Which one is it about": "nothing"})
    walked(person)
    with Case.open("one", read_only=True) as case:
        answers = {answer.question: answer.value for answer in case.payloads(Answer)}
        for step in case.of("next-test"):
            if step.data.get("kind") == "answer" and step.data["variable"] in {q.id for q in QUESTIONS}:
                assert question(step.data["variable"]).applies(answers) is not False


def test_answers_from_a_file_are_not_asked_again(monkeypatch: pytest.MonkeyPatch):
    performed(monkeypatch)
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    person = Scripted({})
    answers = check_answers({"symptom": "flaky", "when": ["over-time"], "client": "script"})
    walked(person, [SERVER], answers=answers, yes=True)
    assert [title[6:16] for title in person.titles] == ["What chang", "How long s", "How many t", "How many r"]


def test_a_wrong_answer_is_told_and_asked_again():
    person = Scripted({"How long": ["a lot", "96k"]})
    talk = Talk(person, interview.Terminal(quiet=True))
    assert put(talk, question("window_wanted"), screen_of(question("window_wanted"))) == 98304
    assert "cannot be used" in person.told[0]


@pytest.mark.parametrize("symptom", [None, *SYMPTOMS])
def test_what_will_be_sent_is_at_least_the_top_rung_with_its_repeats(symptom: str | None):
    told = forecast(SERVER, symptom, 16384, Criteria(repeats=3), 600.0)
    assert told is not None
    assert told.prompt_tokens >= 3 * told.rungs[-1]
    assert told.rungs[-1] < 16384
    assert told.seconds > 0
    assert forecast(Seen("http://127.0.0.1:1"), symptom, None, Criteria(), 600.0) is None


def test_a_session_of_many_turns_is_announced_where_the_answers_ask_for_one():
    told = [
        forecast(SERVER, "forgetting", 16384, Criteria(), 600.0, check_answers({"when": when}))
        for when in (["long-prompt"], ["over-time"])
    ]
    assert told[1].prompt_tokens > told[0].prompt_tokens + 16384
    assert told[1].seconds > told[0].seconds


def test_plain_prompts_understand_numbers_ids_ways_and_nothing():
    screen = Screen(
        "Which?", "Because.", "several", (("one", "The first"), ("two", "The second")), back=True, stop=True
    )

    def typed(text: str, **more: Any) -> Any:
        sink = io.StringIO()
        shown = Screen(**({f: getattr(screen, f) for f in Screen.__slots__} | more))
        given = Plain(io.StringIO(text), sink).ask(shown)
        return given, sink.getvalue()

    assert typed("1, 2\n")[0] == ("one", "two")
    assert typed("two\n")[0] == ("two",)
    assert typed("7\n\n")[0] is Way.DO_NOT_KNOW
    assert typed("b\n")[0] is Way.BACK
    assert typed("h\n")[0] is Way.HELP
    assert typed("?\n")[0] is Way.DO_NOT_KNOW
    assert typed("s\n")[0] is Way.STOP
    assert typed("\n", chosen=("two",))[0] == ("two",)
    assert typed("1 2\n2\n", kind="one")[0] == "two"
    assert typed("first line\n\nlast line\n.\nnot read\n", kind="lines", options=())[0] == "first line\n\nlast line"
    said = typed("1\n")[1]
    assert "Because." in said
    assert "I don't know" in said
    with pytest.raises(KeyboardInterrupt):
        typed("")


@pytest.mark.parametrize("name", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_numbered_lines(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", name)
    assert isinstance(prompter(), Plain)


def test_arrow_keys_that_cannot_be_had_fall_back_to_numbered_lines():
    def broken() -> Any:
        raise OSError("no console")

    assert isinstance(prompter([broken]), Plain)


def test_arrow_keys_choose_go_back_and_mark():
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    from diagnose.prompter import Keys

    one = Screen("Which?", "", "one", (("first", "The first"), ("second", "The second")), back=True)
    several = Screen("Which?", "", "several", one.options)
    line = Screen("How many?", "", "line")
    with create_pipe_input() as keys:
        person = Keys(keys, DummyOutput())
        for pressed, screen, given in [
            ("\x1b[B\r", one, "second"),
            ("b", one, Way.BACK),
            ("h", one, Way.HELP),
            (" \x1b[B \r", several, ("first", "second")),
            ("\r", several, Way.DO_NOT_KNOW),
            ("?", several, Way.DO_NOT_KNOW),
            ("128K\r", line, "128K"),
            ("\r", line, Way.DO_NOT_KNOW),
        ]:
            keys.send_text(pressed)
            assert person.ask(screen) == given, pressed
        keys.send_text("\x03")
        with pytest.raises(KeyboardInterrupt):
            person.ask(one)


def test_servers_are_found_by_what_answers_and_nothing_else_is_taken_for_one():
    with Loopback.playing("llama.cpp-b11434") as server, Loopback({}) as other:
        ports = [int(server.url.rsplit(":", 1)[1]), int(other.url.rsplit(":", 1)[1])]
        found = find_servers(ports=ports)
    assert [seen.url for seen in found] == [server.url]
    assert found[0].backend == "llama.cpp"
    assert found[0].window
    assert not any(method == "POST" for method, _path, _body in server.asked)
    assert look_at("http://127.0.0.1:9") is None


def test_looking_around_ends_in_time_when_something_never_answers():
    with Loopback({}) as silent:
        silent.faults["*"] = lambda _handler: silent.stopping.wait(20)
        began = time.monotonic()
        assert find_servers(ports=[int(silent.url.rsplit(":", 1)[1])], within_s=0.5) == []
        assert time.monotonic() - began < 2


def test_the_whole_walk_against_a_server_sends_about_what_was_announced(monkeypatch: pytest.MonkeyPatch):
    from diagnose import look as looking

    monkeypatch.setattr(looking, "find_process", lambda _url: (None, "not looked for"))
    with LlamaLike(window=2048) as server:
        seen = look_at(server.url)
        assert seen is not None
        assert (seen.backend, seen.window) == ("llama.cpp", 2048)
        before = len(server.asked)
        person = Scripted({"What goes wrong": "forgetting", "How long": "2048", "Start": "start"})
        code = walked(person, [seen], budget_s=40.0)
        announced = re.search(
            r"At most (\d+) requests with (\d+) prompt tokens", next(t for t in person.told if "At most" in t)
        )
        sent = [asked for asked in server.asked[before:] if asked[1] in {"/completion", "/v1/chat/completions"}]
    assert code in {0, 1, 3, 4}
    assert 0 < len(sent) <= int(announced[1])
    with Case.open("one", read_only=True) as case:
        assert case.has_ended(1)
        assert {"look", "recall"} <= case.done_probes(1)
        assert (case.folder / "report.md").is_file()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_the_whole_walk_in_a_dumb_terminal(home: Path):
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "LC_ALL": "C.UTF-8", "CTXDOCTOR_LANG": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "diagnose"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=home,
        env={**environment, "PYTHONPATH": str(Path(interview.__file__).parents[1])},
        close_fds=True,
    )
    os.close(slave)
    shown, screen, ends = "", "", time.monotonic() + 60
    try:
        while time.monotonic() < ends:
            try:
                piece = os.read(master, 65536).decode("utf-8", "replace")
            except OSError:
                break  # the other end was closed
            if not piece:
                break
            shown += piece
            screen += piece
            if screen.endswith("> "):
                typed = (
                    "3"
                    if "What goes wrong" in screen
                    else "nothing"
                    if "about?" in screen or "Start?" in screen
                    else "?"
                )
                typed = "s" if " s) " in screen else typed
                screen = ""
                os.write(master, typed.encode() + b"\n")
        code = process.wait(30)
    finally:
        process.kill()
        os.close(master)
    assert "\x1b[" not in shown.replace("\x1b[?2004", "")
    assert "What goes wrong?" in shown
    assert "I don't know" in shown
    assert code in {1, 3, 4}, shown[-2000:]
    assert list(home.glob("ctxdoctor-report*.md"))


def test_the_number_of_core_questions_makes_room_for_choosing_the_server():
    for symptom in (None, *SYMPTOMS):
        assert (
            len(core_of({"symptom": symptom}, choose=True)) == len(core_of({"symptom": symptom}, choose=False)) - 1 == 6
        )
