"""``ctxdoctor rerun``: after something was changed, see what, measure again, and score the prediction."""

from __future__ import annotations

from typing import Annotated

import typer

from diagnose.case import Case, find
from diagnose.cli import options as opt
from diagnose.cli.measuring import Measuring, measures
from diagnose.console import Terminal
from diagnose.ledger import ledger
from diagnose.means import with_settings
from diagnose.options import RunOptions
from diagnose.perform import perform
from diagnose.prediction import measured_first, starts_needed, steps_given
from diagnose.snapshots import saw_nothing
from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.evidence.words import words

CaseArgument = Annotated[
    str | None,
    typer.Argument(help="The case: a name, its beginning, or a path; absent: the newest.", show_default=False),
]


@measures
def rerun_command(
    *,
    case_name: CaseArgument = None,
    url: opt.UrlOption = None,
    given: Measuring,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of text and canaries.", show_default="as before")
    ] = None,
) -> int:
    """Measure a case again after a change: say what changed, whether what was predicted came, and what was gained."""
    given.check()
    fixed = given.pass_criteria()
    asked = given.options(url, seed or 0)
    terminal = Terminal(quiet=given.quiet)
    with Case.open(find(case_name)) as case:
        end_unfinished(case, asked, terminal)
        options = options_for(case, asked, seed=seed)
        one = perform(case, options, criteria_for(case, fixed), (), terminal, api_key=given.key(), mode="run")
        tell_change(case, one.run, terminal)
        return given.told(case, terminal, could_not_look=one.could_not_look is not None)


def options_before(case: Case) -> RunOptions:
    """Give the options of the case's last run. InputError if it has none."""
    runs = list(case.of("run"))
    if not runs:
        raise InputError(
            f"case {case.id} has no run to compare with; measure first: ctxdoctor run URL --case {case.id}"
        )
    return RunOptions.model_validate(runs[-1].data.get("options", {}))


def options_for(case: Case, asked: RunOptions, *, seed: int | None = None) -> RunOptions:
    """Take over what the last run was asked to do, with what is given now, and measure first what the prediction needs.

    Text, output budget and target stay as they were, so that only what was changed on the server differs.
    """
    before = options_before(case)
    names = [
        name
        for name, value in asked.model_dump(exclude_defaults=True).items()
        if value is not None and name not in {"seed", "first", "starts", "settings"}
    ]
    update = {name: getattr(asked, name) for name in names} | {"budget_s": asked.budget_s}
    if asked.launch is not None and asked.url is None:
        update["url"] = None
    elif asked.launch is None and asked.url is not None:
        # a server that runs is looked at where it is; nothing is started beside it
        update |= {"launch": None}
    if seed is not None:
        update["seed"] = seed
    plans = case.payloads(LadderPlan)
    if asked.output_tokens is None and plans:
        update["output_tokens"] = plans[-1].output_tokens
    steps = steps_given(case, case.run, case.run)
    expects = steps[0][1].expects if steps else ()
    update |= {"first": measured_first(expects), "starts": starts_needed(expects)}
    # what was put into force for the last run was put back after it
    return with_settings(before.model_copy(update=update), asked.settings)


def criteria_for(case: Case, given: Criteria) -> Criteria:
    """Take the criteria of the last run where none are given now."""
    kept = case.payloads(Criteria)
    if kept and given == Criteria():
        return kept[-1].model_copy(update={"fixed_at": None})
    return given


def end_unfinished(case: Case, asked: RunOptions, terminal: Terminal) -> None:
    """End a run that was interrupted where another server is to be measured now: it is not gone on with under other conditions."""
    if not case.run or case.has_ended(case.run):
        return
    before = options_before(case)
    if (asked.launch is None or asked.launch == before.launch) and (asked.url is None or asked.url == before.url):
        return
    terminal.say(
        words("Run {run} was interrupted and is left as it is; what was measured in it is kept.", run=case.run)
    )
    case.append("run-ended", {"could_not_look": "the run was interrupted, and another one was begun"})


def tell_change(case: Case, run: int, terminal: Terminal) -> None:
    """Say what was changed and what it proves."""
    lines = [line for line in ledger(case) if line.run == run]
    why = saw_nothing(case, run)
    if why is not None:
        terminal.say(
            words(
                "This run saw nothing of the server, so it is compared with nothing and says nothing about a change: {why}",
                why=why,
            )
        )
        return
    if not lines:
        terminal.say(words("There is no run to compare with."))
        return
    for said in lines[-1].said:
        if said.values or said.text.rstrip().endswith((".", "!", "?")):
            # names of rows are kept among the sentences for other languages; alone they say nothing
            terminal.say(words(said.text, **said.values))
