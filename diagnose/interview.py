"""The guided walk: a few questions, what will be sent, the run, and then only the questions that can still change the verdict.

Every answer is in the journal before the next question is put, so a walk that was interrupted goes on where it was. Nothing is sent to the server
before the person has seen what it is and how long it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.answers_file import as_evidence, check_value
from diagnose.case import Case
from diagnose.clients import add_named, at_home, read_allowed, told_of
from diagnose.console import Terminal
from diagnose.detect import Seen, find_servers, look_at
from diagnose.finish import tell
from diagnose.forecast import Forecast, forecast, told
from diagnose.judging import judge_run, judged
from diagnose.language import spoken
from diagnose.options import RunOptions
from diagnose.perform import open_or_create, perform
from diagnose.plan import QUESTION_MINUTES, settled
from diagnose.prompter import Given, Prompter, Screen, Way, prompter
from diagnose.questions import (
    Question,
    Value,
    closes,
    core_questions,
    follow_ups,
    question,
)
from diagnose.run_logs import read_logs
from diagnose.running import Walk, begin
from probes.backends.http import is_loopback, normalise_url
from probes.client_config import known_places
from probes.evidence.answers import Answer
from probes.evidence.client import ClientSettings
from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria
from probes.evidence.subject import BackendIdentity
from probes.evidence.words import Words, words
from rules.engine import Closer, can_change_verdict, openings
from rules.facts import VOCABULARY
from rules.verdict import Verdict

MOST_BEFORE = 7
"""Screens before the first probe, choosing the server among them."""
MOST_AFTER = 12
"""Follow-up questions in a row, at the most; a person's patience ends before a rule's curiosity."""

LEAST_TELLING = {
    # the core question that is left out where the server has to be chosen as well, so that there are never more than seven
    "immediate-oom": "speed_wanted",  # nothing has a speed yet
    "fixed-length-error": "speed_wanted",
    "slow-long-context": "requests_at_once",  # asked in another form later, if it matters
    "forgetting": "speed_wanted",
    "flaky": "speed_wanted",
}

ALL_FACTS = tuple(fact.id for fact in VOCABULARY)

Look = Callable[[str | None], list[Seen]]


@dataclass
class Talk:
    """An interview under way. ``asked``: core questions that were asked here, oldest first: the way back."""

    prompt: Prompter
    terminal: Terminal
    case: Case | None = None
    answers: dict[str, Value] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def keep(self, answer: Answer) -> None:
        """Take an answer down: into the journal, which is begun with the first one."""
        self.answers[answer.question] = answer.value
        if self.case is None:
            self.begin(None)
        else:
            self.case.add_all(as_evidence([answer], run=0))

    def begin(self, name: str | None) -> Case:
        """Open the case of that name and take its answers, or make it; what was answered already is written into it."""
        symptom = self.answers.get("symptom")
        self.case = case = open_or_create(name, str(symptom) if symptom else None)
        said = self.answers
        self.answers = {answer.question: answer.value for answer in case.payloads(Answer)}
        for question_id, value in said.items():
            self.keep(Answer(question=question_id, value=value))
        return case

    def say(self, said: Words) -> None:
        """Tell one thing."""
        self.terminal.say(said)


# -- one question ----------------------------------------------------------------------------------------------------------------------


def screen_of(
    asked: Question, *, number: str = "", suggested: Value = None, back: bool = False, stop: bool = False
) -> Screen:
    """Make the screen of a question."""
    kind: Any = {"choice": "one", "yes-no": "one", "many": "several", "text": "lines"}.get(asked.type, "line")
    if asked.type == "text" and asked.example:
        kind = "line"  # one line of pairs, not a pasted log
    options = tuple((choice.id, str(choice.words)) for choice in asked.choices)
    if asked.type == "yes-no":
        options = (("yes", str(words("Yes"))), ("no", str(words("No"))))
    return Screen(
        f"{number}{asked.words}",
        str(asked.why),
        kind,
        options,
        hint=str(_format(asked) or ""),
        chosen=_shown(suggested),
        back=back,
        stop=stop,
    )


def _shown(value: Value) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return ("yes" if value else "no",)
    if isinstance(value, tuple):
        return value
    return (f"{value:g}" if isinstance(value, float) else str(value),)


def _format(asked: Question) -> Words | None:
    example = asked.example.replace(" or ", ", ")
    if asked.type == "tokens":
        return words("A number of tokens, for example {example}", example=example)
    if asked.type == "number":
        unit = UNITS.get(asked.unit or "", asked.unit or "")
        return words("A number ({unit}), for example {example}", unit=unit, example=example)
    if asked.type == "text" and asked.example:
        return words("For example: {example}", example=asked.example)
    return None


UNITS = {
    "tokens": words("tokens"),
    "tokens/s": words("tokens per second"),
    "requests": words("requests"),
    "slots": words("slots"),
    "s": words("seconds"),
}


def help_of(asked: Question) -> list[Words]:
    """Give what "help" shows: why it is asked, how it is answered, and what happens with it."""
    lines = [asked.why]
    how: dict[str, Words] = {
        "choice": words("Choose the one that fits best."),
        "many": words("Choose everything that fits; several are allowed."),
        "tokens": words("Lengths may be written as 8192, 8k or 128K (times 1024)."),
        "number": words("A rough number is enough."),
        "text": words("Copy it exactly as it stands, with the lines before and after it."),
        "yes-no": words("Choose yes or no."),
    }
    lines.append(how[asked.type])
    if asked.unit == "GiB":
        lines.append(words("Sizes may carry their unit: 24 GB, 800 MiB."))
    if asked.detectable:
        lines.append(words("If a probe or a log tells it, what was measured counts more than what is answered here."))
    lines.append(words("If you do not know, say so: an unknown counts neither for nor against any cause."))
    lines.append(
        words("The answer stays in the case on this machine. In an answers file its name is: {name}", name=asked.id)
    )
    return lines


def put(talk: Talk, asked: Question, screen: Screen) -> Value | Way:
    """Put one question until it is answered; gives the value (None: "I don't know"), BACK or STOP."""
    while True:
        given: Given = talk.prompt.ask(screen)
        if given is Way.HELP:
            talk.prompt.tell("\n".join(f"  {line}" for line in help_of(asked)))
            continue
        if given is Way.DO_NOT_KNOW:
            return None
        if isinstance(given, Way):
            return given
        try:
            return check_value(asked, given)
        except ValueError as wrong:
            talk.prompt.tell(str(words("That cannot be used: {why}", why=spoken(str(wrong)))))


def ask_in_order(
    talk: Talk,
    wanted: Callable[[], Sequence[Question]],
    suggestions: Callable[[str], Value],
    *,
    more: int = 0,
    again: bool = False,
) -> None:
    """Ask what is wanted and not answered yet, with a way back to what was asked here before.

    ``more``: screens that come after these, for the count that is shown. ``again``: begin with the one that was asked last.
    """
    one: Question | None = question(talk.asked.pop()) if again and talk.asked else None
    while True:
        asked = wanted()
        if one is None:
            one = next((q for q in asked if q.id not in talk.answers), None)
        if one is None:
            return
        place = next((n for n, other in enumerate(asked, start=1) if other.id == one.id), 1)
        standing = talk.answers[one.id] if one.id in talk.answers else suggestions(one.id)
        screen = screen_of(one, number=f"[{place}/{len(asked) + more}] ", suggested=standing, back=bool(talk.asked))
        value = put(talk, one, screen)
        if isinstance(value, Way):
            one = question(talk.asked.pop()) if talk.asked else one
            continue
        talk.keep(Answer(question=one.id, value=value))
        talk.asked.append(one.id)
        one = None


# -- which server ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aim:
    """What is to be looked at: a server, a command that starts one, or nothing but what was said."""

    seen: Seen | None = None
    launch: tuple[str, ...] | None = None


def described(seen: Seen) -> str:
    """Give one line about a server."""
    if seen.loading:
        return str(words("A server that is still loading its model: {url}", url=seen.url))
    if seen.wants_key:
        return str(words("A server that wants a key (CTXDOCTOR_API_KEY): {url}", url=seen.url))
    parts = [f"{seen.backend}: {seen.url}" if seen.backend else seen.url]
    if seen.model:
        parts.append(str(words("model: {name}", name=seen.model)))
    if seen.window:
        parts.append(str(words("window: {tokens} tokens", tokens=seen.window)))
    return ", ".join(parts)


def choose_aim(
    talk: Talk,
    servers: Sequence[Seen],
    api_key: str | None,
    *,
    number: str = "",
    look: Callable[[str, str | None], Seen | None] = look_at,
) -> Aim | None:
    """Ask which server is meant; an address or a command may be typed. None: back to the question before."""
    options = [(seen.url, described(seen)) for seen in servers]
    options += [
        ("address", str(words("A server at another address"))),
        ("launch", str(words("It does not start: I give the command that starts it"))),
        ("nothing", str(words("No server: judge what I answer, and logs that I give"))),
    ]
    title = (
        words("Which server is it about?")
        if servers
        else words("No server was found on this machine. Which one is it about?")
    )
    why = words("It is measured there. Nothing is sent before you have seen what it will be.")
    while True:
        given = talk.prompt.ask(
            Screen(f"{number}{title}", str(why), "one", tuple(options), back=bool(talk.asked), do_not_know=False)
        )
        if given is Way.HELP:
            talk.prompt.tell("\n".join(f"  {line}" for line in AIM_HELP))
            continue
        if given is Way.BACK:
            return None
        if given == "nothing":
            return Aim()
        if given == "address":
            aim = _typed_address(talk, api_key, look)
        elif given == "launch":
            aim = _typed_command(talk)
        else:
            aim = next((Aim(seen) for seen in servers if seen.url == given), None)
        if aim is not None:
            return aim


AIM_HELP = (
    words("A server that runs is measured as it is: no setting of it is changed."),
    words("Its address is the one that your client uses, for example http://127.0.0.1:8080; the port alone is enough."),
    words("If it ends while it loads, give the whole command: how it fails is what has to be seen."),
    words("Without a server, only what you answer and the logs that you give are judged: more stays open."),
)


def _typed_address(talk: Talk, api_key: str | None, look: Callable[[str, str | None], Seen | None]) -> Aim | None:
    given = talk.prompt.ask(
        Screen(
            str(words("What is its address?")),
            str(words("The one that your client uses.")),
            "line",
            hint=str(words("For example: {example}", example="http://192.168.0.10:8080")),
            back=True,
            help=False,
            do_not_know=False,
        )
    )
    if isinstance(given, Way) or not given or isinstance(given, tuple):
        return None
    try:
        url = normalise_url(given)
    except InputError as error:
        talk.prompt.tell(spoken(str(error)))
        return None
    seen = look(url, api_key)
    if seen is None:
        talk.prompt.tell(str(words("No model server answers there: {url}", url=url)))
    return None if seen is None else Aim(seen)


def _typed_command(talk: Talk) -> Aim | None:
    given = talk.prompt.ask(
        Screen(
            str(words("What is the command that starts the server?")),
            str(words("It is started here, watched while it loads, and stopped again.")),
            "line",
            hint=str(words("For example: {example}", example="llama-server -m model.gguf -c 32768")),
            back=True,
            help=False,
            do_not_know=False,
        )
    )
    if isinstance(given, Way) or not given or isinstance(given, tuple):
        return None
    from probes.launch import split_command  # noqa: PLC0415 - only where a command is given

    try:
        return Aim(launch=tuple(split_command(given)))
    except InputError as error:
        talk.prompt.tell(spoken(str(error)))
        return None


def suggestion(seen: Seen | None, question_id: str) -> Value:
    """Give what the server's own settings suggest as an answer, to be confirmed with Enter."""
    if seen is None:
        return None
    if question_id == "window_wanted":
        return seen.asked or seen.window
    if question_id == "requests_at_once" and seen.slots is not None and seen.slots > 0:
        return float(seen.slots)
    return None


# -- before it starts ------------------------------------------------------------------------------------------------------------------


def announce(talk: Talk, aim: Aim, plan: Forecast | None, budget_s: float) -> None:
    """Show what will be sent, where to, and for how long."""
    lines: list[Words] = [words("What happens next:")]
    if aim.launch is not None:
        lines.append(words("- This command is started, watched and stopped: {command}", command=" ".join(aim.launch)))
    elif aim.seen is not None:
        lines.append(words("- Server: {server}", server=described(aim.seen)))
    if plan is not None:
        lines += told(plan, budget_s)
    else:
        lines += [
            words("- The window is not known before the server answers; prompts go up to that length"),
            words("- After {budget} min nothing new is begun", budget=max(1, round(budget_s / 60))),
        ]
    lines.append(words("- The texts are made up here: a story with facts to recall. Nothing of yours is sent"))
    if aim.seen is not None and not is_loopback(aim.seen.url):
        lines.append(words("- The server is on another machine: the texts travel there"))
    lines.append(words("- No setting of the server is changed. Other requests to it will be slower meanwhile"))
    talk.prompt.tell("\n" + "\n".join(map(str, lines)))


def consents(talk: Talk) -> Given:
    """Ask whether to start: "start", "change" (the last answer first), "other" (another server), "nothing" (only what was said), or "leave"."""
    return talk.prompt.ask(
        Screen(
            str(words("Start?")),
            "",
            "one",
            (
                ("start", str(words("Start"))),
                ("change", str(words("Change an answer"))),
                ("other", str(words("Choose another server"))),
                ("nothing", str(words("Send nothing: judge what I answered, and logs that I gave"))),
                ("leave", str(words("Leave; the answers are kept"))),
            ),
            help=False,
            do_not_know=False,
        )
    )


# -- after the run ---------------------------------------------------------------------------------------------------------------------


def worth_asking(one: Walk, answers: dict[str, Value]) -> list[Question]:
    """Give the questions that can still change the verdict, the most weight per minute first."""
    judgement, facts = judged(one.case, one.run, one.mode)
    candidates = {q.id: q for q in follow_ups(ALL_FACTS, answers) if not settled(q.fact, facts)}
    ahead = openings(
        judgement,
        [
            Closer(
                name,
                "ask",
                frozenset(VOCABULARY[fact] for fact in closes(name) if fact in VOCABULARY),
                QUESTION_MINUTES,
            )
            for name in candidates
        ],
    )
    return [candidates[o.closer.id] for o in ahead if can_change_verdict(judgement, o.closer.facts)]


def ask_further(talk: Talk, one: Walk) -> None:
    """Ask while an answer can still change the verdict; judge again after each; say why it ends."""
    verdict = None
    asked = 0
    while True:
        useful = worth_asking(one, talk.answers)
        if not useful:
            talk.say(
                words("No question is left whose answer could change the verdict.")
                if asked
                else words("No question could change the verdict, so none is asked.")
            )
            return
        if asked >= MOST_AFTER:
            talk.say(words("That is enough. What is still open stands in the report."))
            return
        if not asked:
            talk.say(words("Some questions can still change the verdict. They stop when none can, or when you stop."))
        nearest = useful[0]
        value = put(talk, nearest, screen_of(nearest, stop=True))
        if isinstance(value, Way):
            talk.say(words("Stopped. What is still open stands in the report."))
            return
        asked += 1
        talk.keep(Answer(question=nearest.id, value=value))
        before, (verdict, _step) = verdict, judge_run(one)
        _tell_change(talk, before, verdict)


def _tell_change(talk: Talk, before: Verdict | None, now: Verdict) -> None:
    if before is not None and before.named == now.named:
        return
    if now.named:
        talk.say(words("Named now: {causes}", causes=", ".join(now.named)))
    elif before is not None and before.named:
        talk.say(words("No single cause is named any more."))


# -- the client's settings -------------------------------------------------------------------------------------------------------------

WITH_SETTINGS = frozenset({"agent", "chat-app", "retrieval", "proxy"})
"""Kinds of clients that keep a window in their settings; nobody else is asked."""
_ASKED_ABOUT_CLIENTS = "client_settings"


def ask_about_clients(talk: Talk, one: Walk) -> None:
    """Ask once whether settings files of known clients that exist here may be read, and hold what they say against the server.

    Asked after the measuring, beside what is promised before it, and only where a server was seen and the person said that such a client sends
    the requests. Not a file is opened before, nor after anything but a plain yes.
    """
    looked_at = any(server.url for server in one.mine(BackendIdentity))
    if not looked_at or talk.answers.get("client") not in WITH_SETTINGS or one.mine(ClientSettings):
        return
    if any(_ASKED_ABOUT_CLIENTS in entry.data for entry in one.case.of("note")):
        return
    places = known_places()
    if not places:
        return
    while True:
        given = talk.prompt.ask(
            Screen(
                str(words("May these settings files of clients be read? {files}", files=_files(places))),
                str(words("The window that your client believes in is held against the server's. Keys are not read.")),
                "one",
                (("yes", str(words("Yes"))), ("no", str(words("No")))),
                chosen=("no",),
            )
        )
        if given is not Way.HELP:
            break
        talk.prompt.tell("\n".join(f"  {line}" for line in CLIENTS_HELP))
    allowed = given == "yes"
    one.case.append("note", {_ASKED_ABOUT_CLIENTS: "allowed" if allowed else "not allowed"})
    if not allowed:
        return
    for settings in read_allowed(one, [path for _client, path in places]):
        for said in told_of(settings, one.case.evidence(one.run)):
            talk.say(said)
    judge_run(one)


def _files(places: Sequence[tuple[str, Path]]) -> str:
    return ", ".join(f"{at_home(str(path))} ({client})" for client, path in places)


CLIENTS_HELP = (
    words("Only the files that are named here are opened, and nothing is changed in them."),
    words(
        "Kept are the window, the length of answers, the time limit, and names and addresses of models; keys are not read."
    ),
    words("It stays in the case on this machine; a report names the file without your home folder."),
)


# -- the whole -------------------------------------------------------------------------------------------------------------------------


def guided(
    *,
    url: str | None,
    api_key: str | None,
    model: str | None,
    backend: str | None,
    logs: Sequence[str],
    clients: Sequence[str] = (),
    launch: tuple[str, ...] | None,
    answers: Sequence[Answer],
    case_name: str | None,
    budget_s: float,
    lang: str | None,
    seed: int,
    yes: bool,
    quiet: bool,
    prompt: Prompter | None = None,
    look: Look = find_servers,
) -> int:
    """Walk a person from the symptom to the report; gives the exit code. ``prompt`` and ``look`` are what tests put in.

    KeyboardInterrupt passes through, after the person was told how to go on. InputError, CaseError, CouldNotLookError as in ``run``.
    """
    terminal = Terminal(quiet=quiet)
    talk = Talk(prompt or prompter(), terminal)
    talk.answers.update({answer.question: answer.value for answer in answers})
    options = RunOptions(
        url=normalise_url(url) if url else None,
        model=model,
        backend=backend,
        logs=tuple(str(Path(path).resolve()) for path in logs),
        clients=tuple(clients),
        launch=launch,
        budget_s=budget_s,
        seed=seed,
    )
    if case_name is not None:
        talk.begin(case_name)
    try:
        one = _walked(talk, options, api_key, yes=yes, look=look)
        ask_about_clients(talk, one)
        ask_further(talk, one)
        unseen = one.could_not_look is not None
        return tell(one.case, terminal, format=None, out=None, lang=lang, could_not_look=unseen)
    except KeyboardInterrupt:
        terminal.finish_progress()
        if talk.case is not None and not (talk.case.run and not talk.case.has_ended(talk.case.run)):
            # of a run that was interrupted is said already how to go on
            terminal.say(words("Everything so far is kept. Go on with: ctxdoctor --case {case}", case=talk.case.id))
        raise
    finally:
        if talk.case is not None:
            talk.case.close()


def _walked(talk: Talk, options: RunOptions, api_key: str | None, *, yes: bool, look: Look) -> Walk:
    """Come to a measured run: the one that the case has, the one that was interrupted, or a new one."""
    case = talk.case
    if case is None or case.run == 0:
        return _measured(talk, options, api_key, yes=yes, look=look)
    begun = RunOptions.model_validate(next(iter(case.of("run", case.run))).data.get("options", {}))
    with_server = begun.url is not None or begun.launch is not None
    if case.has_ended(case.run):
        talk.say(words("Run {run} of this case is measured already; only questions are left.", run=case.run))
        kept = (case.payloads(Criteria, case.run) or [Criteria()])[-1]
        one = Walk(case, begun, talk.terminal, kept, api_key=api_key, mode="session" if with_server else "triage")
        judge_run(one)
        return one
    if with_server:
        return perform(case, begun, Criteria(), [], talk.terminal, api_key=api_key, mode="session")
    return _judged_without_server(talk, case, begun)


def _measured(talk: Talk, options: RunOptions, api_key: str | None, *, yes: bool, look: Look) -> Walk:
    """Look around, ask what is asked before a run, say what it sends, and do it."""
    aim, servers = _first_aim(talk, options, api_key, look)
    choose = aim is None

    def ask(*, again: bool = False) -> None:
        seen = aim.seen if aim is not None else None
        ask_in_order(
            talk,
            lambda: core_of(talk.answers, choose=choose),
            lambda question_id: suggestion(seen, question_id),
            more=int(choose),
            again=again,
        )

    ask()
    while True:
        if aim is None:
            number = f"[{len(core_of(talk.answers, choose=True)) + 1}/{len(core_of(talk.answers, choose=True)) + 1}] "
            aim = choose_aim(talk, servers, api_key, number=number if choose else "")
            if aim is None:
                ask(again=True)
                continue
        case = talk.case or talk.begin(None)
        if aim.seen is None and aim.launch is None:
            return _judged_without_server(talk, case, options.model_copy(update={"url": None, "launch": None}))
        criteria = _criteria(talk)
        plan = _forecast(talk, case, aim, criteria, options)
        announce(talk, aim, plan, options.budget_s)
        choice = "start" if yes else consents(talk)
        if choice == "start":
            url = aim.seen.url if aim.seen else None
            aimed = options.model_copy(update={"url": url, "launch": aim.launch})
            return perform(case, aimed, criteria, [], talk.terminal, api_key=api_key, mode="session")
        if choice == "leave":
            raise KeyboardInterrupt
        if choice == "change":
            ask(again=True)
        else:
            aim = Aim() if choice == "nothing" else None


def _first_aim(talk: Talk, options: RunOptions, api_key: str | None, look: Look) -> tuple[Aim | None, list[Seen]]:
    """Find out what it is about without asking; None where it has to be asked. Gives all servers that were found as well."""
    if options.launch is not None:
        return Aim(launch=options.launch), []
    if options.url is not None:
        seen = look_at(options.url, api_key, options.backend, options.model) or Seen(options.url)
        return Aim(seen), [seen]
    talk.say(words("Looking for model servers on this machine …"))
    servers = look(api_key)
    return (Aim(servers[0]) if len(servers) == 1 else None), servers


def core_of(answers: Mapping[str, Value], *, choose: bool) -> Sequence[Question]:
    """Give the questions before the first probe; one fewer where the server has to be chosen as well."""
    asked = core_questions(answers)
    if not choose:
        return asked[:MOST_BEFORE]
    left_out = LEAST_TELLING.get(str(answers.get("symptom")), "speed_wanted")
    return [one for one in asked if one.id != left_out][: MOST_BEFORE - 1]


def _forecast(talk: Talk, case: Case, aim: Aim, criteria: Criteria, options: RunOptions) -> Forecast | None:
    """Say what a run against what is aimed at would send; None where nothing is known of it before it answers."""
    if aim.seen is None:
        return None
    return forecast(
        aim.seen,
        case.symptom,
        _target(talk),
        criteria,
        options.budget_s,
        case.payloads(Answer),
        control_url=options.control_url,
        soak=options.soak,
    )


def _criteria(talk: Talk) -> Criteria:
    """Write down the pass criteria from the answers: the speed that is wanted counts."""
    speed = talk.answers.get("speed_wanted")
    if isinstance(speed, int | float) and not isinstance(speed, bool) and speed > 0:
        return Criteria(min_generation_tps=float(speed))
    return Criteria()


def _target(talk: Talk) -> int | None:
    wanted = talk.answers.get("window_wanted")
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None


def _judged_without_server(talk: Talk, case: Case, options: RunOptions) -> Walk:
    """Judge what was said and the logs that were given; nothing is sent anywhere."""
    options, criteria, _resumed = begin(case, options, Criteria())
    one = Walk(case, options, talk.terminal, criteria, mode="triage")
    one.log_paths += [Path(path) for path in options.logs]
    add_named(one)
    read_logs(one)
    judge_run(one)
    case.append("run-ended", {"could_not_look": None})
    return one
