"""``run --launch CMD --auto``: test, judge, change one thing, again, until the target is verified, the budget is used, or nothing is left that keeps quality.

Each step is shown before it is done. A change that gained nothing is undone before the next. At the end the user's own command stands again: it
is started where its server was running before, and only named where it was not. What an interrupted walk left, the next call puts right.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diagnose.case import Case
from diagnose.console import Terminal
from diagnose.judging import judged
from diagnose.ledger import ledger, tried
from diagnose.options import RunOptions
from diagnose.perform import perform
from diagnose.prediction import arithmetic, measured_first, starts_needed
from diagnose.restoring import Ask, restoring
from diagnose.running import Walk
from diagnose.window import WindowVerdict, window_verdict
from probes.backends.commands import as_text, change_command, detect_backend, masked, parse_command
from probes.evidence.answers import Answer
from probes.evidence.errors import CtxDoctorError, InputError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.evidence.words import Words, words
from rules.engine import next_test, tried_key
from rules.verdict import Cost, NextTest, expectations_of

Perform = Callable[[Case, RunOptions, Criteria, Sequence[Answer]], Walk]

MOST_STEPS = 12
LEAST_LEFT_S = 5.0


@dataclass
class Outcome:
    """How the walk ended: the run whose configuration is the best one found, its command, and why it stopped."""

    best: int
    command: tuple[str, ...]
    why: Words
    steps: int = 0
    reached: bool = False
    could_not_look: bool = False


@dataclass
class _State:
    """The walk so far. ``current``: the command with every change that was kept; ``best``: the run that measured it."""

    current: tuple[str, ...]
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
) -> Outcome:
    """Walk. ``once`` does one run; ``ask`` is shown each step and says whether to do it. InputError without a command.

    KeyboardInterrupt passes through when the server is as it was.
    """
    original = options.launch
    if not original:
        raise InputError("--auto needs the command that starts the server: --launch 'llama-server -m …'")
    with restoring(case, original, options.launch_env, terminal, ask):
        return _walk(case, options, criteria, answers, terminal, once, ask)


def _walk(
    case: Case,
    options: RunOptions,
    criteria: Criteria,
    answers: Sequence[Answer],
    terminal: Terminal,
    once: Perform,
    ask: Ask,
) -> Outcome:
    ends = time.monotonic() + options.budget_s
    original = tuple(options.launch or ())
    options = options.model_copy(update={"target": options.target or _asked_window(original, options.launch_env)})
    begun = time.monotonic()
    one = once(case, options, criteria, answers)
    state = _State(original, best=one.run)
    if one.options.launch is not None and one.options.launch != original:
        # an interrupted run was gone on with: it had its own command
        state.current = tuple(one.options.launch)
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
        again = options.model_copy(
            update={
                "launch": changed,
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


def reached(verdict: WindowVerdict) -> bool:
    """Say whether the target is verified: fully, or as far as a model goes that cannot do the recall test at all."""
    if verdict.target_reached:
        return True
    target = verdict.target_input
    if target is None or not verdict.unable:
        return False
    return min(verdict.fits or 0, verdict.fast_enough or 0) >= target * 0.99


def _asked_window(command: Sequence[str], environment: Mapping[str, str]) -> int | None:
    setting = parse_command(command, environment).settings.get("ctx")
    return setting.value if setting is not None and isinstance(setting.value, int) and setting.value > 0 else None


def choose(
    case: Case, run: int, command: Sequence[str], declined: set[tuple[str, str]], options: RunOptions
) -> tuple[NextTest, tuple[str, ...]] | None:
    """Choose the next change that costs no quality and that this command can be given; None if there is none left."""
    judgement, facts = judged(case, run, "run")
    passed_over = {*tried(case, case.run), *declined}
    backend = options.backend or detect_backend(command)
    while (choice := next_test(judgement, facts, passed_over)) is not None:
        test = choice.test
        passed_over.add(tried_key(test, facts))
        to = test.value_of(test.to, facts)
        if test.kind != "change" or test.quality != "none":
            continue
        if test.variable == "ctx" and options.target and isinstance(to, int) and to < options.target:
            # a shorter window than wanted is no way to the target
            continue
        try:
            changed = tuple(change_command(command, backend, test.variable, [*to] if isinstance(to, tuple) else to))
        except CtxDoctorError:
            continue
        if changed == tuple(command):
            continue
        step = NextTest(
            kind="change",
            variable=test.variable,
            start=test.value_of(test.start, facts),
            to=to,
            command=as_text(masked(changed)),
            undo=as_text(masked(command)),
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


def _value(value: Any) -> str:
    return "not set" if value is None else ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _shown(number: int, step: NextTest, command: Sequence[str]) -> Words:
    return words(
        "Step {number}: change {variable} from {start} to {to}, and nothing else. {reason} The command is then: {command}",
        number=number,
        variable=step.variable,
        start=_value(step.start),
        to=_value(step.to),
        reason=step.reason,
        command=as_text(masked(command)),
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
    outcome = walk_auto(
        case, options, criteria, answers, terminal, once, (lambda _said: True) if yes else terminal_asks
    )
    terminal.say(words("--auto ends after {count} steps: {why}", count=outcome.steps, why=str(outcome.why)))
    if outcome.steps and tuple(outcome.command) != tuple(options.launch or ()):
        terminal.say(words("The best command that was found: {command}", command=as_text(masked(outcome.command))))
    return outcome


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
