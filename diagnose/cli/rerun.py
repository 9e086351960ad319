"""``ctxdoctor rerun``: after something was changed, see what, measure again, and score the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diagnose.case import Case, find
from diagnose.cli import options as opt
from diagnose.cli.run import launch_words
from diagnose.console import Terminal
from diagnose.finish import check_format, check_out, tell
from diagnose.ledger import ledger
from diagnose.options import RunOptions
from diagnose.perform import perform
from diagnose.prediction import measured_first, starts_needed, steps_given
from probes.backends.http import normalise_url
from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.evidence.words import words

CaseArgument = Annotated[
    str | None,
    typer.Argument(help="The case: a name, its beginning, or a path; absent: the newest.", show_default=False),
]


def rerun_command(
    case_name: CaseArgument = None,
    url: opt.UrlOption = None,
    api_key: opt.ApiKey = None,
    model: opt.Model = None,
    backend: opt.BackendName = None,
    tokenizer: opt.Tokenizer = None,
    log: opt.Logs = None,
    launch: opt.Launch = None,
    target: opt.Target = None,
    output_tokens: opt.OutputTokens = None,
    ladder: opt.LadderOption = None,
    repeat: opt.Repeat = None,
    criteria: opt.CriteriaFile = None,
    min_canaries: opt.MinCanaries = None,
    min_constraints: opt.MinConstraints = None,
    min_prefill: opt.MinPrefill = None,
    min_generation: opt.MinGeneration = None,
    max_first_token: opt.MaxFirstToken = None,
    margin: opt.Margin = None,
    budget: opt.Budget = "30m",
    control_url: opt.ControlUrl = None,
    soak: opt.Soak = None,
    text: opt.TextFolder = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of text and canaries.", show_default="as before")
    ] = None,
    everything: opt.Everything = False,
    format: opt.Format = None,  # noqa: A002 - the option's own name
    report_for: opt.For = None,
    out: opt.Out = None,
    lang: opt.Lang = None,
    no_redact: opt.NoRedact = False,
    quiet: opt.Quiet = False,
) -> int:
    """Measure a case again after a change: say what changed, whether what was predicted came, and what was gained."""
    from probes.ladder.rungs import parse_ladder  # noqa: PLC0415

    shown = check_format(format)
    check_out(out)
    given = opt.criteria_of(
        criteria, repeat, min_canaries, min_constraints, min_prefill, min_generation, max_first_token, margin
    )
    asked = RunOptions(
        url=normalise_url(url) if url else None,
        model=model,
        backend=backend,
        tokenizer=tokenizer,
        logs=tuple(str(Path(path).resolve()) for path in log or ()),
        launch=launch_words(launch),
        target=opt.length(target, "--target"),
        output_tokens=opt.length(output_tokens, "--output-tokens"),
        ladder=parse_ladder(ladder) if ladder else None,
        control_url=control_url,
        soak=opt.soak_length(soak),
        text_folder=str(Path(text).resolve()) if text else None,
        seed=seed or 0,
        budget_s=opt.duration(budget),
    )
    terminal = Terminal(quiet=quiet)
    with Case.open(find(case_name)) as case:
        end_unfinished(case, asked, terminal)
        options = options_for(case, asked, seed=seed)
        one = perform(case, options, criteria_for(case, given), (), terminal, api_key=opt.key_of(api_key), mode="run")
        tell_change(case, one.run, terminal)
        return tell(
            case,
            terminal,
            format=shown,
            out=out,
            target=report_for,
            redact=not no_redact,
            lang=lang,
            everything=everything,
            could_not_look=one.could_not_look is not None,
        )


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
        if value is not None and name not in {"seed", "first", "starts"}
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
    return before.model_copy(update=update)


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
    if not lines:
        terminal.say(words("There is no run to compare with."))
        return
    for said in lines[-1].said:
        if said.values or said.text.rstrip().endswith((".", "!", "?")):
            # names of rows are kept among the sentences for other languages; alone they say nothing
            terminal.say(words(said.text, **said.values))
