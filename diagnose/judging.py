"""Judging a run: its evidence as it stands in the journal, the verdict, and what to do next."""

from __future__ import annotations

from diagnose.case import Case
from diagnose.goal import nothing_left
from diagnose.ledger import confirmed, kept_run, tried
from diagnose.plan import closers
from diagnose.running import Walk
from diagnose.steps import most_useful, with_command
from diagnose.window import window_verdict
from probes.evidence.answers import Answer
from probes.evidence.events import LogEvent
from reports.document import message
from rules.catalogue import Mode, all_rules, judge_evidence
from rules.engine import Facts, Judgement, tried_key
from rules.verdict import NextTest, Verdict, next_step, verdict_of


def judged(case: Case, run: int, mode: Mode) -> tuple[Judgement, Facts]:
    """Judge a run's evidence as it is in the journal."""
    return judge_evidence(case.evidence(run), mode)


def judge_run(one: Walk) -> tuple[Verdict, NextTest | None]:
    """Judge, and write the verdict and the next test into the journal."""
    judgement, facts = judged(one.case, one.run, one.mode)
    verdict = verdict_of(judgement, facts, run=one.run, confirmed=confirmed(one.case, one.run))
    answered = {answer.question: answer.value for answer in one.case.payloads(Answer)}
    ahead = closers(
        answered,
        one.case.done_probes(one.run),
        server=one.backend is not None and one.mode != "triage",
        person=one.mode != "run",
        logs=bool(one.mine(LogEvent)),
        facts=facts,
    )
    past = tried(one.case, one.run) | _mended(one.case, one.run, facts) | _measured(one.case, one.run)
    if _holds(one.case, one.run, judgement):
        ahead, step = [], None
    else:
        step = next_step(judgement, facts, ahead, past)
    one.case.append("verdict", verdict.model_dump(mode="json"))
    if step is not None:
        # a change that gained nothing is undone before the next: its command is no part of what comes
        step = with_command(step, one.case.evidence(kept_run(one.case, one.run)), one.options.backend)
    one.case.append("next-test", step.model_dump(mode="json") if step is not None else {})
    said = [message(each).model_dump(mode="json") for each in most_useful(judgement, ahead)]
    one.case.append("note", {"would_decide": said})
    return verdict, step


def _measured(case: Case, run: int) -> set[tuple[str, str]]:
    """Give the tests that only say what to measure, where this run has measured it."""
    return {(probe, repr(None)) for probe in case.done_probes(run)}


def _holds(case: Case, run: int, judgement: Judgement) -> bool:
    """Say whether all is well: nobody complains, all that was measured holds, and no cause is likely. Then nothing is proposed."""
    return (
        case.symptom is None
        and not judgement.named
        and not any(finding.band == "likely" for finding in judgement.findings)
        and nothing_left(window_verdict(case, run))
    )


def _mended(case: Case, run: int, facts: Facts) -> set[tuple[str, str]]:
    """Give the tests of causes that were confirmed, once a run has reached what was wanted."""
    if not nothing_left(window_verdict(case, run)):
        return set()
    return {tried_key(test, facts) for rule in all_rules() if rule.cause in confirmed(case, run) for test in rule.tests}
