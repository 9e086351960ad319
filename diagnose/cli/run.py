"""``ctxdoctor run`` and, without a command in a terminal, the guided walk."""

from __future__ import annotations

from pathlib import Path

from diagnose.cli import options as opt
from diagnose.console import Terminal
from diagnose.finish import check_format, check_out, tell
from diagnose.options import RunOptions
from diagnose.perform import open_or_create, perform
from probes.backends.http import normalise_url
from probes.evidence.answers import Answer
from probes.evidence.errors import InputError


def answers_of(file: str | None, symptom: str | None) -> list[Answer]:
    """Read the answers file and put the symptom that was given as an option over it."""
    answers: list[Answer] = []
    if file is not None:
        from diagnose.answers_file import read_answers  # noqa: PLC0415

        answers = read_answers(Path(file))
    if symptom is not None:
        answers = [one for one in answers if one.question != "symptom"]
        answers.insert(0, Answer(question="symptom", value=opt.symptom_of(symptom)))
    return answers


def symptom_in(answers: list[Answer]) -> str | None:
    """Give the symptom among answers."""
    return next((str(one.value) for one in answers if one.question == "symptom" and one.value), None)


def launch_words(text: str | None) -> tuple[str, ...] | None:
    """Split a launch command; a shell is never used. InputError where one would be needed."""
    if text is None:
        return None
    from probes.launch import split_command  # noqa: PLC0415

    return tuple(split_command(text))


def run_command(
    url: opt.Url = None,
    url_option: opt.UrlOption = None,
    api_key: opt.ApiKey = None,
    model: opt.Model = None,
    backend: opt.BackendName = None,
    tokenizer: opt.Tokenizer = None,
    case_name: opt.CaseName = None,
    log: opt.Logs = None,
    launch: opt.Launch = None,
    symptom: opt.Symptom = None,
    answers: opt.Answers = None,
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
    seed: opt.Seed = 0,
    everything: opt.Everything = False,
    format: opt.Format = None,  # noqa: A002 - the option's own name
    report_for: opt.For = None,
    out: opt.Out = None,
    lang: opt.Lang = None,
    no_redact: opt.NoRedact = False,
    quiet: opt.Quiet = False,
    auto: opt.Auto = False,
    yes: opt.Yes = False,
) -> int:
    """Measure a server and write the report, without questions."""
    from probes.ladder.rungs import parse_ladder  # noqa: PLC0415

    shown = check_format(format)
    check_out(out)
    given = answers_of(answers, symptom)
    fixed = opt.criteria_of(
        criteria, repeat, min_canaries, min_constraints, min_prefill, min_generation, max_first_token, margin
    )
    where = url or url_option
    if where is None and launch is None and case_name is not None:
        from diagnose.case import find  # noqa: PLC0415

        find(case_name)  # a mistyped name is no new case where there is nothing to measure
    if where is None and launch is None and case_name is None:
        raise InputError(
            "no server: give its address (`ctxdoctor run 8080`), or the command that starts it (--launch 'llama-server -m …'), or --case"
        )
    options = RunOptions(
        url=normalise_url(where) if where else None,
        model=model,
        backend=backend,
        tokenizer=tokenizer,
        logs=tuple(str(Path(path).resolve()) for path in log or ()),
        launch=launch_words(launch),
        target=opt.length(target, "--target"),
        output_tokens=opt.length(output_tokens, "--output-tokens"),
        ladder=parse_ladder(ladder) if ladder else None,
        budget_s=opt.duration(budget),
        control_url=control_url,
        soak=opt.soak_length(soak),
        text_folder=str(Path(text).resolve()) if text else None,
        seed=seed,
    )
    terminal = Terminal(quiet=quiet)
    with open_or_create(case_name, symptom_in(given)) as case:
        if options.url is None and options.launch is None:
            options = _as_before(case, options)
        if auto:
            from diagnose.auto import run_auto  # noqa: PLC0415 - only when asked for

            ended = run_auto(case, options, fixed, given, terminal, api_key=opt.key_of(api_key), yes=yes)
            return tell(
                case,
                terminal,
                format=shown,
                out=out,
                target=report_for,
                redact=not no_redact,
                lang=lang,
                everything=everything,
                could_not_look=ended.could_not_look,
                run=ended.best,
            )
        one = perform(case, options, fixed, given, terminal, api_key=opt.key_of(api_key), mode="run")
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


def _as_before(case: object, options: RunOptions) -> RunOptions:
    """Take server and launch command from the case's last run where none is given now."""
    from diagnose.case import Case  # noqa: PLC0415

    assert isinstance(case, Case)
    runs = list(case.of("run"))
    if not runs:
        raise InputError("this case has no run yet: give the server's address, or --launch 'COMMAND'")
    before = RunOptions.model_validate(runs[-1].data.get("options", {}))
    changed = {name: value for name, value in options.model_dump(exclude_defaults=True).items() if value is not None}
    return before.model_copy(update={name: getattr(options, name) for name in changed})


def guided_command(
    url: opt.Url = None,
    api_key: opt.ApiKey = None,
    model: opt.Model = None,
    backend: opt.BackendName = None,
    log: opt.Logs = None,
    launch: opt.Launch = None,
    answers: opt.Answers = None,
    case_name: opt.CaseName = None,
    budget: opt.Budget = "30m",
    lang: opt.Lang = None,
    seed: opt.Seed = 0,
    yes: opt.Yes = False,
    quiet: opt.Quiet = False,
) -> int:
    """Ask, measure, and write the report: the guided walk."""
    from diagnose.interview import guided  # noqa: PLC0415

    return guided(
        url=url,
        api_key=opt.key_of(api_key),
        model=model,
        backend=backend,
        logs=tuple(log or ()),
        launch=launch_words(launch),
        answers=answers_of(answers, None),
        case_name=case_name,
        budget_s=opt.duration(budget),
        lang=lang,
        seed=seed,
        yes=yes,
        quiet=quiet,
    )
