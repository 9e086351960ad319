"""What a run will measure: the window, the lengths, the room for the answer, and the nested texts; fixed before the first rung."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

from diagnose import memory
from diagnose.running import Walk
from diagnose.snapshots import lengths_before
from probes.asking import NON_LITERAL
from probes.attempt import SEVERAL
from probes.backends.base import Backend
from probes.evidence.answers import Answer
from probes.evidence.errors import CouldNotLookError, CtxDoctorError, InputError
from probes.evidence.machine import MemoryBudget
from probes.evidence.records import found
from probes.evidence.rungs import LadderPlan, WayOfAsking
from probes.evidence.subject import WindowReading
from probes.ladder.canaries import completion_tail, draw, question_tail
from probes.ladder.constraints import Task, draw_task
from probes.ladder.rungs import SMALLEST_RUNG, Ladder, build_ladder, ladder_rungs
from probes.ladder.search import default_resolution
from probes.ladder.text import Counter, Unit, read_own

SHORT_RUNG_CANARIES = 27
EDGE = 4
"""Tokens that a server may put before and after a raw prompt."""
TAIL_SLACK = 18
"""Tokens by which a request may be longer than what was counted: other names in the question, and what makes a cold prompt unlike any other."""
CODE_WINDOW = 32_768
"""From this window on there is room for the code change and its answer beside the text."""
CODE_ROOM = 256
"""Left in each rung for the coding rules and the request on top of the longest question."""
DEFAULT_OUTPUT = (192, 2048)
"""Least and most that is reserved for the answer where nobody says; a 64th of the window between."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What will be measured: lengths, texts, the answer's reserve."""

    window: int
    target: int | None
    output_tokens: int
    rungs: tuple[int, ...]
    written: Callable[[], Ladder]
    """Writes the texts, once: what stands in them depends on what the model can be asked."""
    task: Task | None = None
    """The code change that is asked for; None where the window has no room for it."""
    reserve: int = 64
    """Tokens that the longest question takes, chat template included."""

    @property
    def texts(self) -> Ladder:
        """The nested texts of all lengths. CouldNotLookError where none can be made with this server's token counts."""
        return self.written()

    @property
    def target_input(self) -> int | None:
        """Prompt tokens of the target window."""
        return None if self.target is None else self.target - self.output_tokens


def output_reserve(window: int, asked: int | None) -> int:
    """Give the part of a window that is kept for the answer."""
    if asked is not None:
        return asked
    least, most = DEFAULT_OUTPUT
    return max(least, min(most, window // 64))


def window_of(one: Walk) -> int:
    """Give the window in force by what was read; where no server says it, the target."""
    readings = [reading.in_force for reading in one.mine(WindowReading) if reading.in_force]
    if readings:
        return int(readings[-1])
    asked = [
        reading.asked or reading.trained for reading in one.mine(WindowReading) if reading.asked or reading.trained
    ]
    window = one.options.target or (asked[-1] if asked else None)
    if window is None:
        raise CouldNotLookError("this server does not say its window; give the one you want with --target N")
    return int(window)


def wanted_window(one: Walk) -> int | None:
    """Give the window that the user wants: the option, else the answer."""
    if one.options.target is not None:
        return one.options.target
    for answer in reversed(one.case.payloads(Answer)):
        if answer.question == "window_wanted" and isinstance(answer.value, int) and not isinstance(answer.value, bool):
            return answer.value
    return None


def shape_of(one: Walk, window: int) -> Shape:
    """Fix the ladder before its first rung, or take the one that was fixed before an interruption."""
    counter, backend = one.counter, one.backend
    assert counter is not None
    assert backend is not None
    target = wanted_window(one)
    plan = one.last(LadderPlan)
    output = plan.output_tokens if plan else output_reserve(min(window, target or window), one.options.output_tokens)
    question, completion = _tail_tokens(counter, one.options.seed)
    frame = _template_tokens(backend) + (CODE_ROOM if min(window, target or window) >= CODE_WINDOW else 0)
    reserve = question + frame
    # where no long question fits behind the lengths that are wanted, or behind any that the window holds, the short way is asked
    decisive = min(one.options.ladder) if one.options.ladder else min(window, target or window) - output
    if decisive - reserve < SMALLEST_RUNG // 2:
        reserve = completion + frame
    if plan is None:
        usable = [rung for rung in one.options.ladder or () if rung + output <= window]
        again = [
            length for length in lengths_before(one.case, one.run) if length + output <= min(window, target or window)
        ]
        rungs = tuple(usable) or tuple(sorted({*ladder_rungs(window, output, target), *again}))
        rungs = tuple(rung for rung in rungs if rung - reserve >= SMALLEST_RUNG // 2) or rungs[-1:]
        if rungs[0] - reserve < SMALLEST_RUNG // 2:
            raise CouldNotLookError(
                f"a window of {window} tokens leaves no room for a test: the questions alone take {reserve}; raise the window or --target"
            )
        why = "as asked with --ladder" if usable else "the standard lengths, scaled to the window in force"
        fits = memory.below_window(one.mine(MemoryBudget), window)
        plan = LadderPlan(
            rungs=rungs,
            predicted=None if usable or fits is None else max(0, fits - output),
            target=target,
            output_tokens=output,
            seed=one.options.seed,
            why=why,
            tokenizer=counter.name,
            resolution=None if usable else default_resolution(max(rungs)),
        )
        one.add(found(plan, source="measured", run=one.run, origin="plan"))
    filler = None
    if one.options.text_folder:
        own = read_own(Path(one.options.text_folder), one.options.seed)
        filler = partial(own.stream, one.options.seed)
    task = draw_task(plan.seed) if min(window, target or window) >= CODE_WINDOW else None
    rooms = {"any": (reserve, completion + frame), "completion": (completion + EDGE,)}
    return Shape(window, target, output, plan.rungs, cache(partial(_texts, one, plan, rooms, filler)), task, reserve)


def way_of(one: Walk) -> WayOfAsking | None:
    """Give what this case's model can be asked, as its first run found it: every run's texts hold the same."""
    found_ways: list[WayOfAsking] = one.case.payloads(WayOfAsking)
    return found_ways[0] if found_ways else None


def _texts(
    one: Walk, plan: LadderPlan, rooms: Mapping[str, tuple[int, ...]], filler: Callable[[], Iterator[Unit]] | None
) -> Ladder:
    """Write the nested texts. ``rooms``: what is left free for the question, by the style in which it is asked."""
    counter, way = one.counter, way_of(one)
    assert counter is not None
    hidden = NON_LITERAL if way is not None and way.non_literal else 0
    near = way.near_duplicates if way is not None else 0.0
    one.ui.progress("the text is written", 0.0, f"{max(plan.rungs)} tokens")
    depths = [(place + 0.5) / SHORT_RUNG_CANARIES for place in range(SHORT_RUNG_CANARIES)]
    wrong: InputError | None = None
    # short lengths and tokenizers that make many tokens leave less room: first the base is asked of fewer facts, then questions are short
    # how this run asks, whatever the first one found
    mine: WayOfAsking | None = one.last(WayOfAsking)
    style = mine.style if mine is not None else "any"
    # a base model is given the short end of a text to go on with: room for a question and a template would be a window not used
    for room in (*rooms.get(style, ()), *rooms["any"]):
        for base in (depths, None):
            try:
                return build_ladder(
                    plan.rungs,
                    counter,
                    seed=plan.seed,
                    reserve=room,
                    base_depths=base,
                    filler=filler,
                    non_literal=hidden,
                    near_duplicates=near,
                )
            except InputError as error:
                wrong = error
    # the lengths are ours, so what is wrong is how the server counts
    raise CouldNotLookError(
        f"no text could be made with this server's token counts ({wrong}); give --tokenizer"
    ) from wrong


def _tail_tokens(counter: Counter, seed: int) -> tuple[int, int]:
    """Count what follows a text: the longest question (all canaries of a rung in one), and the end of a completion."""
    facts = list(islice(draw(seed), SEVERAL))
    return counter.count(question_tail(facts)) + TAIL_SLACK, counter.count(completion_tail(facts[0])) + TAIL_SLACK


def _template_tokens(backend: Backend) -> int:
    """Count what the chat template adds, where the server can say so; a guess of 64 where it cannot."""
    try:
        return max(0, backend.count_chat_tokens([{"role": "user", "content": "."}]))
    except CtxDoctorError:
        return 64
