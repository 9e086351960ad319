"""``ctxdoctor run`` and, without a command in a terminal, the guided walk."""

from __future__ import annotations

from pathlib import Path

from diagnose.cli import options as opt
from diagnose.cli.measuring import Measuring, check_clients, client_files, launch_words, measures
from diagnose.console import Terminal
from diagnose.means import with_settings
from diagnose.options import RunOptions
from diagnose.perform import open_or_create, perform
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


@measures
def run_command(
    *,
    url: opt.Url = None,
    url_option: opt.UrlOption = None,
    case_name: opt.CaseName = None,
    symptom: opt.Symptom = None,
    answers: opt.Answers = None,
    given: Measuring,
    seed: opt.Seed = 0,
    auto: opt.Auto = False,
    yes: opt.Yes = False,
) -> int:
    """Measure a server and write the report, without questions."""
    given.check()
    said = answers_of(answers, symptom)
    fixed = given.pass_criteria()
    where = url or url_option
    if where is None and given.launch is None and case_name is not None:
        from diagnose.case import find  # noqa: PLC0415

        find(case_name)  # a mistyped name is no new case where there is nothing to measure
    if where is None and given.launch is None and case_name is None:
        raise InputError(
            "no server: give its address (`ctxdoctor run 8080`), or the command that starts it (--launch 'llama-server -m …'), or --case"
        )
    options = given.options(where, seed)
    key = given.key()
    terminal = Terminal(quiet=given.quiet)
    with open_or_create(case_name, symptom_in(said)) as case:
        if options.url is None and options.launch is None:
            options = _as_before(case, options)
        options = with_settings(options, options.settings)
        if auto:
            from diagnose.auto import run_auto  # noqa: PLC0415 - only when asked for

            ended = run_auto(case, options, fixed, said, terminal, api_key=key, yes=yes)
            return given.told(case, terminal, could_not_look=ended.could_not_look, run=ended.best)
        one = perform(case, options, fixed, said, terminal, api_key=key, mode="run")
        return given.told(case, terminal, could_not_look=one.could_not_look is not None)


def _as_before(case: object, options: RunOptions) -> RunOptions:
    """Take server and launch command from the case's last run where none is given now."""
    from diagnose.case import Case  # noqa: PLC0415

    assert isinstance(case, Case)
    runs = list(case.of("run"))
    if not runs:
        raise InputError("this case has no run yet: give the server's address, or --launch 'COMMAND'")
    before = RunOptions.model_validate(runs[-1].data.get("options", {}))
    changed = {name: value for name, value in options.model_dump(exclude_defaults=True).items() if value is not None}
    return before.model_copy(update={name: getattr(options, name) for name in changed} | {"settings": options.settings})


def guided_command(
    url: opt.Url = None,
    api_key: opt.ApiKey = None,
    model: opt.Model = None,
    backend: opt.BackendName = None,
    log: opt.Logs = None,
    client: opt.Client = None,
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
    check_clients(client)
    from diagnose.interview import guided  # noqa: PLC0415

    return guided(
        url=url,
        api_key=opt.key_of(api_key),
        model=model,
        backend=backend,
        logs=tuple(log or ()),
        clients=client_files(client),
        launch=launch_words(launch),
        answers=answers_of(answers, None),
        case_name=case_name,
        budget_s=opt.duration(budget),
        lang=lang,
        seed=seed,
        yes=yes,
        quiet=quiet,
    )
