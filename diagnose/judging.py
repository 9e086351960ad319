"""Judging a run: its evidence as it stands in the journal, the verdict, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from diagnose.case import Case
from diagnose.goal import nothing_left
from diagnose.ledger import confirmed, kept_run, tried
from diagnose.plan import closers
from diagnose.running import Walk
from diagnose.separating import command_of
from diagnose.snapshots import put_back
from diagnose.steps import most_useful, with_command
from diagnose.window import window_verdict
from probes.backends.commands import as_text
from probes.evidence.answers import Answer
from probes.evidence.changes import JudgedAs, PredictionScored
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, found
from probes.evidence.subject import Configuration
from probes.evidence.words import words
from reports.document import message
from rules.catalogue import Mode, all_rules, judge_evidence
from rules.engine import Closer, Facts, Judgement, tried_key
from rules.verdict import Cost, NextTest, Verdict, next_step, verdict_of


def judged(case: Case, run: int, mode: Mode) -> tuple[Judgement, Facts]:
    """Judge a run's evidence as it is in the journal."""
    return judge_evidence(case.evidence(run), mode)


def judge_run(one: Walk, *, judged_as: Mode | None = None) -> tuple[Verdict, NextTest | None]:
    """Judge, and write the verdict and the next test into the journal.

    ``judged_as``: how it was judged elsewhere, where it is to be judged in the same way; what comes next still follows from what is at hand here.
    """
    mode = judged_as or one.mode
    if mode != "triage" and one.case.payloads(JudgedAs, one.run)[-1:] != [JudgedAs(mode=mode)]:
        one.add(found(JudgedAs(mode=mode), source="measured", run=one.run, origin="judging"))
    judgement, facts = judged(one.case, one.run, mode)
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
    past |= set_already(one.case.evidence(one.run))
    if _holds(one.case, one.run, judgement):
        ahead, step = [], None
    else:
        step = next_step(judgement, facts, ahead, past)
    one.case.append("verdict", verdict.model_dump(mode="json"))
    if step is not None:
        step = _from_what_stands(one, step, ahead, past)
    one.case.append("next-test", step.model_dump(mode="json") if step is not None else {})
    said = [message(each).model_dump(mode="json") for each in most_useful(judgement, ahead)]
    one.case.append("note", {"would_decide": said})
    return verdict, step


def _from_what_stands(
    one: Walk, step: NextTest, ahead: Sequence[Closer], past: Collection[tuple[str, str]]
) -> NextTest:
    """Give a change as it is made once the changes are undone that gained nothing, and say what is undone first.

    It is chosen anew for the configuration that stands then: value, command and prediction of a test that was chosen for another one do not fit
    it. Where nothing is to be changed there, the undoing is the step.
    """
    case = one.case
    kept = kept_run(case, one.run)
    first = put_back(case, one.run, kept) if step.kind == "change" else ()
    if not first:
        return with_command(step, case.evidence(one.run), one.options.backend)
    failed = [record for record, scored in case.evidence(one.run).of(PredictionScored) if scored.outcome == "failed"]
    standing = EvidenceSet([*case.evidence(kept).all, *failed])
    judgement, facts = judge_evidence(standing, one.mode)
    then = next_step(judgement, facts, ahead, past)
    if then is not None and then.kind == "change":
        made = with_command(then, standing, one.options.backend)
        argv = command_of(case, kept)
        if made.command and (argv is None or made.undo != as_text(argv)):
            # no one command holds the whole configuration: what is undone is done by steps of its own
            undoing = [
                with_command(
                    then.model_copy(update={"variable": each.variable, "start": each.start, "to": each.to}),
                    standing,
                    one.options.backend,
                ).command
                for each in first
            ]
            made = made.model_copy(update={"command": "\n".join([*filter(None, undoing), made.command])})
        return made.model_copy(update={"first": first})
    if then is not None and then.kind == "answer":
        return with_command(then, standing, one.options.backend)
    back = [as_text(argv) if argv else None for argv in (command_of(case, kept), command_of(case, one.run))]
    undone, *more = first
    return NextTest(
        kind="change",
        variable=undone.variable,
        start=undone.start,
        to=undone.to,
        command=back[0],
        undo=back[1],
        first=tuple(more),
        cost=Cost(minutes=3),
        reason=words("Its change gained nothing, so it is undone before anything else is changed.").english,
    )


def set_already(evidence: EvidenceSet) -> set[tuple[str, str]]:
    """Give the changes that would change nothing: each setting with the value that it has by what was read last."""
    now: dict[str, Any] = {}
    for _record, configuration in evidence.of(Configuration):
        now |= {name: setting.value for name, setting in configuration.settings.items()}
    return {(name, repr(value)) for name, value in now.items() if value is not None}


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
