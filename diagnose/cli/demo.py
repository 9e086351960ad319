"""``ctxdoctor demo``: the same session as a user's server gets, on an embedded llama.cpp with a planted fault."""

from __future__ import annotations

from typing import Annotated

import typer

from diagnose.cli import options as opt
from diagnose.console import Terminal
from diagnose.finish import check_format, check_out, tell
from diagnose.options import RunOptions
from diagnose.perform import open_or_create, perform
from probes.evidence.words import words
from probes.process import free_port

ScenarioName = Annotated[
    str, typer.Argument(help="healthy, immediate-oom, fixed-length-error, slow-long-context, forgetting or flaky.")
]
ModelPath = Annotated[
    str | None, typer.Option("--model", help="Another GGUF file than the demo's own.", show_default=False)
]


def demo_command(
    scenario: ScenarioName = "healthy",
    model: ModelPath = None,
    seed: opt.Seed = 0,
    case_name: opt.CaseName = None,
    budget: opt.Budget = "114s",
    everything: opt.Everything = False,
    format: opt.Format = None,  # noqa: A002 - the option's own name
    report_for: opt.For = None,
    out: opt.Out = None,
    lang: opt.Lang = None,
    no_redact: opt.NoRedact = False,
    reveal: Annotated[bool, typer.Option("--reveal", help="Say at the end what was planted.")] = False,
    quiet: opt.Quiet = False,
) -> int:
    """Run the whole session on an embedded llama.cpp with a small model."""
    from diagnose import demo  # noqa: PLC0415

    shown = check_format(format)
    check_out(out)
    path = demo.model_path(model)
    planted = demo.scenario(scenario, seed, path)
    port = free_port()
    command = demo.server_command(planted.model or path, port, planted.flags)
    options = RunOptions(
        launch=command,
        launch_env={"CTXDOCTOR_END_WITH_PARENT": "1", **(demo.ONE_ARENA if planted.room else {})},
        address_space_bytes=demo.address_space_of(planted, path),
        target=planted.target,
        output_tokens=128,
        budget_s=opt.duration(budget),
        seed=seed,
    )
    terminal = Terminal(quiet=quiet)
    symptom = next((str(one.value) for one in planted.answers if one.question == "symptom"), None)
    # 270 million parameters recall less than nine of ten also where nothing is wrong, so their own base decides; who complains of forgetting
    # wants the nine
    fixed = opt.criteria_of(None, None, "0.9" if scenario == "forgetting" else "0.75", None, None, None, None)
    with (
        open_or_create(case_name, symptom) as case,
        demo.beside(planted, port) as front,
        demo.control(planted, path) as control,
    ):
        options = options.model_copy(update={"url": front, "control_url": control})
        one = perform(case, options, fixed, planted.answers if case.run == 0 else (), terminal, mode="run")
        code = tell(
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
    if reveal:
        Terminal().say(words("Planted: {what}", what=planted.planted))
    return code
