"""``run --auto``: test, judge, change one thing, again, until the target is verified, the budget is used, or nothing is left that keeps quality.

With ``--launch`` the server is started with another command each time; without, a server whose own interface changes settings (Ollama, LM Studio,
llama-manager) goes on running. Each step is shown before it is done. A change that gained nothing is undone before the next. At the end the user's
server stands as before: started again where it was running, only named where it was not. What an interrupted walk left, the next call puts right.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from diagnose import look
from diagnose.case import Case
from diagnose.console import Terminal
from diagnose.goal import reached
from diagnose.judging import judged
from diagnose.ledger import ledger, tried
from diagnose.means import ByCommand, ByInterface, Means
from diagnose.options import RunOptions
from diagnose.perform import perform
from diagnose.prediction import arithmetic, measured_first, starts_needed
from diagnose.restoring import Ask, restoring
from diagnose.running import Walk
from diagnose.ui import Ui
from diagnose.window import window_verdict
from probes.backends.http import Http
from probes.backends.standing import Standing, standing_of
from probes.evidence.answers import Answer
from probes.evidence.errors import CtxDoctorError, InputError, NotOfferedError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.evidence.words import Words, words
from rules.engine import next_test, tried_key
from rules.verdict import Cost, NextTest, expectations_of

Perform = Callable[[Case, RunOptions, Criteria, Sequence[Answer]], Walk]

MOST_STEPS = 12
LEAST_LEFT_S = 5.0


@dataclass
class Outcome:
    """How the walk ended: the run whose configuration is the best one found, how the server is run there, and why it stopped."""

    best: int
    means: Means
    why: Words
    steps: int = 0
    reached: bool = False
    could_not_look: bool = False


@dataclass
class _State:
    """The walk so far. ``current``: the user's server with every change that was kept; ``best``: the run that measured it."""

    current: Means
    best: int = 0
    declined: set[tuple[str, str]] = field(default_factory=set)
    steps: int = 0


def walk_auto(
    case: Case,
    options: RunOptions,
    criteria: Criteria,
    answers: Sequence[Answer],
    terminal: Terminal,
    once: Perform,
    ask: Ask,
    standing: Standing | None = None,
) -> Outcome:
    """Walk. ``once`` does one run; ``ask`` is shown each step and says whether to do it.

    ``standing``: the interface of a running server, where there is no command. InputError with neither.

    KeyboardInterrupt passes through when the server is as it was.
    """
    original = options.launch
    if original:
        with restoring(case, original, options.launch_env, terminal, ask):
            means = ByCommand(original, options.backend, options.launch_env)
            return _walk(case, options, criteria, answers, terminal, once, ask, means)
    if standing is None:
        raise InputError("--auto needs the command that starts the server: --launch 'llama-server -m …'")
    # each run puts back what stood before it
    return _walk(case, options, criteria, answers, terminal, once, ask, ByInterface(standing))


def _walk(
    case: Case,
    options: RunOptions,
    criteria: Criteria,
    answers: Sequence[Answer],
    terminal: Terminal,
    once: Perform,
    ask: Ask,
    means: Means,
) -> Outcome:
    ends = time.monotonic() + options.budget_s
    options = options.model_copy(update={"target": options.target or means.asked_window()})
    begun = time.monotonic()
    one = once(case, options, criteria, answers)
    state = _State(means, best=one.run)
    # an interrupted run was gone on with: it had its own command or settings
    if isinstance(means, ByCommand) and one.options.launch and tuple(one.options.launch) != means.command:
        state.current = replace(means, command=tuple(one.options.launch))
    elif isinstance(means, ByInterface) and one.options.settings:
        state.current = replace(means, settings=one.options.settings)
    could_not_look = one.could_not_look is not None
    while True:
        verdict = window_verdict(case, state.best)
        outcome = Outcome(
            state.best, state.current, words("The target is verified."), state.steps, could_not_look=could_not_look
        )
        if reached(verdict):
            outcome.reached = True
            if not verdict.target_reached:
                outcome.why = words(
                    "The target ran as often as asked; this model cannot do the recall test, so recall is not verified."
                )
            return outcome
        left = ends - time.monotonic()
        took = time.monotonic() - begun
        if left < max(LEAST_LEFT_S, took / 2):
            outcome.why = words("The budget is used.")
            return outcome
        if state.steps >= MOST_STEPS:
            outcome.why = words("{count} steps were made; it ends here.", count=state.steps)
            return outcome
        chosen = choose(case, state.best, state.current, state.declined, options)
        if chosen is None:
            outcome.why = words("Nothing is left to change that keeps quality.")
            return outcome
        step, changed = chosen
        terminal.say(_shown(state.steps + 1, step, changed))
        for expectation in step.expects[:1]:
            terminal.say(
                words("Expected if {cause} is what is wrong: {what}", cause=expectation.cause, what=expectation.words)
            )
        shift = arithmetic(case, state.best, step.variable, step.to)
        if shift is not None:
            terminal.say(
                words(
                    "By the arithmetic of the model, memory that is full at {before} tokens is then full at {after}.",
                    before=f"{shift[0]:,}",
                    after=f"{shift[1]:,}",
                )
            )
        if not ask(words("Do this step?")):
            state.declined.add((step.variable, repr(step.to)))
            continue
        case.append("next-test", step.model_dump(mode="json"), run=state.best)
        begun = time.monotonic()
        plans = case.payloads(LadderPlan)
        again = changed.put(options).model_copy(
            update={
                "budget_s": left,
                "output_tokens": options.output_tokens or (plans[-1].output_tokens if plans else None),
                "first": measured_first(step.expects),
                "starts": starts_needed(step.expects),
            }
        )
        one = once(case, again, criteria.model_copy(update={"fixed_at": None}), ())
        state.steps += 1
        could_not_look = one.could_not_look is not None
        line = next((line for line in reversed(ledger(case)) if line.run == one.run), None)
        if line is not None and line.conclusion:
            terminal.say(words("{said}", said=line.conclusion))
        if line is not None and line.kept:
            state.current, state.best = changed, one.run
        else:
            state.declined.add((step.variable, repr(step.to)))
            terminal.say(
                words(
                    "It gained nothing and is undone: {variable} is {start} again.",
                    variable=step.variable,
                    start=_value(step.start),
                )
            )


def choose(
    case: Case, run: int, means: Means, declined: set[tuple[str, str]], options: RunOptions
) -> tuple[NextTest, Means] | None:
    """Choose the next change that costs no quality and that can be made on this server; None if there is none left."""
    judgement, facts = judged(case, run, "run")
    passed_over = {*tried(case, case.run), *declined}
    while (choice := next_test(judgement, facts, passed_over)) is not None:
        test = choice.test
        passed_over.add(tried_key(test, facts))
        to = test.value_of(test.to, facts)
        if test.kind != "change" or test.quality != "none":
            continue
        start = test.value_of(test.start, facts)
        if test.variable == "ctx" and options.target and isinstance(to, int):
            to = _on_the_way(to, start, options.target)
            if to is None or (test.variable, repr(to)) in passed_over - {tried_key(test, facts)}:
                continue
        value = [*to] if isinstance(to, tuple) else to
        try:
            changed = means.changed(test.variable, value)
            steps = means.steps(test.variable, value)
        except CtxDoctorError:
            continue
        if changed is means:
            continue
        undo = means.shown()
        if not undo:
            with contextlib.suppress(CtxDoctorError):
                undo = means.steps(test.variable, start)
        step = NextTest(
            kind="change",
            variable=test.variable,
            start=start,
            to=to,
            command=steps,
            undo=undo or None,
            keep=test.keep,
            expects=expectations_of(test.expects, facts),
            cost=Cost(minutes=test.minutes, quality=test.quality),
            reason=test.reason.english,
            cause=choice.rule.cause,
            rule=choice.rule.id,
            splits=choice.stays,
        )
        return step, changed
    return None


def _on_the_way(to: int, start: Any, target: int) -> int | None:
    """Give the window to set on the way to a target; None where this change is no way to it."""
    if isinstance(start, int) and to > start:
        # a longer window: as long as the target in one step, and no longer
        return target if start < target else None
    return to if to >= target else None


def _value(value: Any) -> str:
    return "not set" if value is None else ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _shown(number: int, step: NextTest, means: Means) -> Words:
    if isinstance(means, ByInterface):
        return words(
            "Step {number}: change {variable} from {start} to {to}, and nothing else. {reason} For the test is sent: {request}",
            number=number,
            variable=step.variable,
            start=_value(step.start),
            to=_value(step.to),
            reason=step.reason,
            request=means.shown(),
        )
    return words(
        "Step {number}: change {variable} from {start} to {to}, and nothing else. {reason} The command is then: {command}",
        number=number,
        variable=step.variable,
        start=_value(step.start),
        to=_value(step.to),
        reason=step.reason,
        command=means.shown(),
    )


def run_auto(
    case: Case,
    options: RunOptions,
    criteria: Criteria,
    answers: Sequence[Answer],
    terminal: Terminal,
    *,
    api_key: str | None = None,
    yes: bool = False,
) -> Outcome:
    """Walk from the command line; says at the end why it stopped and which command was the best. InputError where nobody can be asked."""

    def once(a_case: Case, some: RunOptions, fixed: Criteria, given: Sequence[Answer]) -> Walk:
        return perform(a_case, some, fixed, given, terminal, api_key=api_key, mode="run")

    if not yes and not sys.stdin.isatty():
        raise InputError("--auto asks before each step, and there is no terminal to ask in; add --yes to go unasked")
    agree: Ask = (lambda _said: True) if yes else terminal_asks
    with contextlib.ExitStack() as stack:
        standing = None if options.launch else stack.enter_context(_interface(options, terminal, api_key))
        outcome = walk_auto(case, options, criteria, answers, terminal, once, agree, standing)
        terminal.say(words("--auto ends after {count} steps: {why}", count=outcome.steps, why=str(outcome.why)))
        best = outcome.means
        if isinstance(best, ByCommand) and outcome.steps and best.command != tuple(options.launch or ()):
            terminal.say(words("The best command that was found: {command}", command=best.shown()))
        elif isinstance(best, ByInterface) and best.settings:
            terminal.say(words("The best settings that were found: {request}", request=best.shown()))
            for variable, value in best.settings.items():
                terminal.say(
                    words("To keep {variable}:\n{steps}", variable=variable, steps=best.steps(variable, value))
                )
    return outcome


@contextlib.contextmanager
def _interface(options: RunOptions, terminal: Ui, api_key: str | None) -> Iterator[Standing]:
    """Open the running server's own interface. InputError, with what to give instead, where it has none."""
    if options.url is None:
        raise InputError("--auto needs the command that starts the server: --launch 'llama-server -m …'")
    with Http(options.url, api_key) as http:
        backend = look.recognised(
            http, terminal, hint=options.backend, model=options.model, deadline_s=options.load_deadline_s
        )
        try:
            standing = standing_of(backend)
            standing.before()
        except NotOfferedError as error:
            raise InputError(f"--auto cannot change anything there: {error}") from error
        yield standing


def terminal_asks(said: Words) -> bool:
    """Ask in the terminal; Enter is yes. KeyboardInterrupt where the input ends."""
    while True:
        sys.stderr.write(f"{said} [Y/n] ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        answer = line.strip().lower()
        if answer in {"", "y", "yes", "j", "ja", "예", "네"}:
            return True
        if answer in {"n", "no", "nein", "아니요", "아니오"}:
            return False
