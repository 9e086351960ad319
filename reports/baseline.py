"""What another person needs to run it again, in the eight areas that people are asked to record; and the pass criteria."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from probes.evidence.words import Words, words

from .figures import NO, YES, count, moment, number, percent, plain, seconds, size
from .view import Area, Item

if TYPE_CHECKING:
    from .document import CaseDocument, ClientValues, DeviceValues, Rung
    from .escape import Ours
    from .view import Text


MOST_CLIENTS = 6
"""More settings files of clients than so many are not told one by one."""


class MakeItem(Protocol):
    """Makes a value; ``path`` is where the document says why it is unknown."""

    def __call__(self, label: Words, value: Text | None, path: str = "") -> Item:
        """Make a value of the baseline."""


def command_line(document: CaseDocument) -> str:
    """Give the server's command line as it is typed; empty where it is not known."""
    argv = document.subject.backend.command
    if not argv:
        return ""
    environment = [f"{name}={shlex.quote(value)}" for name, value in document.subject.backend.environment.items()]
    return " ".join([*environment, *(shlex.quote(word) for word in argv)])


def edges(rungs: Sequence[Rung], run: int) -> tuple[int | None, int | None]:
    """Give the first failing and the last passing length of a run: the shortest that never passed whole, the longest below it that did."""
    by_length: dict[int, list[bool]] = {}
    for rung in rungs:
        if rung.run == run:
            by_length.setdefault(rung.planned_tokens or rung.input_tokens, []).append(rung.result == "passed")
    failing = min((length for length, passed in by_length.items() if not all(passed)), default=None)
    passing = max(
        (length for length, passed in by_length.items() if all(passed) and (failing is None or length < failing)),
        default=None,
    )
    return failing, passing


def criteria(document: CaseDocument) -> tuple[Item, ...]:
    """Give the pass criteria that were set."""
    c = document.criteria
    share = [
        (words("Repeats at the important length"), count(c.repeats) if c.repeats is not None else None),
        (words("Canaries recalled, at least"), percent(c.min_canaries) if c.min_canaries is not None else None),
        (
            words("Share of the model's own short score, at least"),
            percent(c.min_of_own_base) if c.min_of_own_base is not None else None,
        ),
        (
            words("Coding constraints met, at least"),
            percent(c.min_constraints) if c.min_constraints is not None else None,
        ),
        (words("Prefill, at least"), _speed(c.min_prefill_tps)),
        (words("Generation, at least"), _speed(c.min_generation_tps)),
        (words("First token within"), seconds(c.max_first_token_s) if c.max_first_token_s is not None else None),
        (words("Memory kept free on each device"), size(c.margin_bytes) if c.margin_bytes is not None else None),
        (words("Fixed at"), moment(c.fixed_at)),
        (words("Fingerprint"), c.hash),
    ]
    return tuple(Item(label, value) for label, value in share if value is not None)


def _speed(value: float | None) -> Words | None:
    return words("{speed} tokens per second", speed=number(value)) if value is not None else None


def _tokens(value: int | None) -> Words | None:
    return words("{tokens} tokens", tokens=count(value)) if value is not None else None


def _yes(value: bool | None) -> Words | None:
    return None if value is None else YES if value else NO


def client_words(client: ClientValues) -> Words:
    """Say what a client's settings believe of the server and model under test, and which file it was."""
    name = {"client": client.client, "file": client.path or words("unknown")}
    if not client.applies:
        return words("{client} ({file}): no entry for this server and model", **name)
    return words(
        "{client} ({file}): window {window}, answer {output}, window asked of the server {num_ctx}",
        **name,
        window=_tokens(client.context) or words("not set"),
        output=_tokens(client.output) or words("not set"),
        num_ctx=_tokens(client.num_ctx) or words("not set"),
    )


def _flag(value: bool | str | None) -> Text | None:
    if isinstance(value, bool):
        return words("on") if value else words("off")
    return value


def baseline(
    document: CaseDocument,
    item: MakeItem,
    devices: Sequence[DeviceValues],
    errors: Sequence[str],
    how_run: Text | None,
    run: int,
) -> tuple[Area, ...]:
    """Everything that another person needs to run it again, in the eight areas that people are asked to record."""
    s = document.subject
    rungs = [r for r in document.rungs if r.run == run]
    longest = max((r.input_tokens for r in rungs), default=None)
    failing, _ = edges(document.rungs, run)
    none = words("none") if rungs else None
    peak = {
        d.id: max((p.peak_bytes for r in rungs for p in r.devices if p.id == d.id), default=None)
        for d in s.hardware.devices
    }
    host = max((r.host_peak_bytes for r in rungs if r.host_peak_bytes is not None), default=None)
    cache = " / ".join(t for t in (s.kv_cache.type_k, s.kv_cache.type_v) if t)
    last = _at_longest_passing(rungs)
    cards = [
        item(
            words("Device"),
            words(
                "{name}; memory {total}; free {free}; driver {driver}; link {link}",
                name=d.name or d.id,
                total=size(d.total_bytes) if d.total_bytes is not None else words("unknown"),
                free=size(d.free_bytes) if d.free_bytes is not None else words("unknown"),
                driver=d.driver or words("unknown"),
                link=d.link or words("unknown"),
            ),
        )
        for d in devices
    ] or [item(words("Device"), None, "subject.hardware.devices")]
    return (
        Area(
            words("Model"),
            (
                item(words("Name"), s.model.name, "subject.model.name"),
                item(words("File"), s.model.path, "subject.model.path"),
                item(words("Quantisation of the weights"), s.model.quantization, "subject.model.quantization"),
                item(
                    words("Size"),
                    size(s.model.size_bytes) if s.model.size_bytes is not None else None,
                    "subject.model.size_bytes",
                ),
                item(words("Architecture"), s.model.architecture, "subject.model.architecture"),
                item(words("Fingerprint of the header"), s.model.header_hash, "subject.model.header_hash"),
            ),
        ),
        Area(
            words("Backend"),
            (
                item(words("Name"), s.backend.name, "subject.backend.name"),
                item(words("Version"), s.backend.version, "subject.backend.version"),
                item(words("Build"), s.backend.build, "subject.backend.build"),
                item(
                    words("How it is run"),
                    how_run,
                    "subject.backend.how_run",
                ),
            ),
        ),
        Area(
            words("Context"),
            (
                item(words("Window asked for"), _tokens(s.window.asked), "subject.window.asked"),
                item(words("Window in force"), _tokens(s.window.in_force), "subject.window.in_force"),
                item(words("Window trained"), _tokens(s.window.trained), "subject.window.trained"),
                item(words("Window of each slot"), _tokens(s.window.per_slot), "subject.window.per_slot"),
                item(
                    words("Slots"),
                    count(s.window.slots) if s.window.slots is not None else None,
                    "subject.window.slots",
                ),
                item(words("Longest input that was sent"), _tokens(longest), "rungs"),
                item(
                    words("Tokens kept for the answer"), _tokens(document.window.output_tokens), "window.output_tokens"
                ),
                *(item(words("Client's own settings"), client_words(one)) for one in document.clients[:MOST_CLIENTS]),
            ),
        ),
        Area(
            words("KV cache"),
            (
                item(words("Type of K and V"), cache or None, "subject.kv_cache.type_k"),
                item(words("Where it lies"), s.kv_cache.placement, "subject.kv_cache.placement"),
                item(
                    words("Bytes for each token"),
                    number(s.kv_cache.bytes_per_token) if s.kv_cache.bytes_per_token is not None else None,
                    "subject.kv_cache.bytes_per_token",
                ),
                item(words("One pool for all slots"), _yes(s.kv_cache.unified), "subject.kv_cache.unified"),
                item(
                    words("Size"),
                    size(s.kv_cache.size_bytes) if s.kv_cache.size_bytes is not None else None,
                    "subject.kv_cache.size_bytes",
                ),
            ),
        ),
        Area(
            words("Hardware"),
            (
                *cards,
                item(
                    words("System memory"),
                    size(s.hardware.ram_bytes) if s.hardware.ram_bytes is not None else None,
                    "subject.hardware.ram_bytes",
                ),
                item(
                    words("System memory free at the start"),
                    size(s.hardware.ram_available_bytes) if s.hardware.ram_available_bytes is not None else None,
                    "subject.hardware.ram_available_bytes",
                ),
                item(words("Processor"), s.hardware.cpu, "subject.hardware.cpu"),
                item(words("Operating system"), s.hardware.os, "subject.hardware.os"),
            ),
        ),
        Area(
            words("Placement"),
            (
                item(
                    words("Layers on the GPU"),
                    plain(s.placement.gpu_layers) if s.placement.gpu_layers is not None else None,
                    "subject.placement.gpu_layers",
                ),
                item(words("Layers of the model"), _count(s.placement.layers), "subject.placement.layers"),
                item(
                    words("Split over devices"),
                    plain(s.placement.tensor_split) if s.placement.tensor_split is not None else None,
                    "subject.placement.tensor_split",
                ),
                item(words("Way of splitting"), s.placement.split_mode, "subject.placement.split_mode"),
                item(
                    words("Overrides"),
                    plain(s.placement.overrides) if s.placement.overrides is not None else None,
                    "subject.placement.overrides",
                ),
            ),
        ),
        Area(
            words("Runtime"),
            (
                item(words("Batch"), _count(s.runtime.batch), "subject.runtime.batch"),
                item(words("Micro-batch"), _count(s.runtime.ubatch), "subject.runtime.ubatch"),
                item(words("Requests at once"), _count(s.runtime.parallel), "subject.runtime.parallel"),
                item(words("Flash attention"), _flag(s.runtime.flash_attention), "subject.runtime.flash_attention"),
                item(words("Speculation"), _flag(s.runtime.speculation), "subject.runtime.speculation"),
                item(words("Vision projector"), _flag(s.runtime.projector), "subject.runtime.projector"),
                item(
                    words("Position scaling"),
                    plain(s.runtime.rope) if s.runtime.rope is not None else None,
                    "subject.runtime.rope",
                ),
                item(words("Threads"), _count(s.runtime.threads), "subject.runtime.threads"),
                item(
                    words("Sampling"),
                    plain(s.runtime.sampling) if s.runtime.sampling is not None else None,
                    "subject.runtime.sampling",
                ),
                item(words("Longest answer"), _tokens(s.runtime.output_tokens), "subject.runtime.output_tokens"),
            ),
        ),
        Area(
            words("Result"),
            (
                item(words("First failing length"), _tokens(failing) if failing else none, "rungs"),
                item(words("Last passing length"), _tokens(last.input_tokens) if last else None, "rungs"),
                item(words("Error"), errors[0] if errors else none, "rungs"),
                *(
                    item(words("Peak memory"), words("{device}: {peak}", device=d.name or d.id, peak=size(p)))
                    for d in devices
                    if (p := peak.get(d.id)) is not None
                ),
                item(words("Peak of host memory"), size(host) if host is not None else None, "rungs.host_peak_bytes"),
                item(
                    words("Prefill at the last passing length"),
                    _speed(last.prefill_tps) if last else None,
                    "rungs.prefill_tps",
                ),
                item(
                    words("Generation at the last passing length"),
                    _speed(last.generation_tps) if last else None,
                    "rungs.generation_tps",
                ),
            ),
        ),
    )


def _count(value: int | None) -> Ours | None:
    return count(value) if value is not None else None


def _at_longest_passing(rungs: Sequence[Rung]) -> Rung | None:
    return max((r for r in rungs if r.result == "passed"), key=lambda r: r.input_tokens, default=None)
