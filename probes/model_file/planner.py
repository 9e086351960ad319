"""The whole budget of one server on given devices: what each holds, which fills first, the longest window, and what each lever gives.

weights + caches + states + work space + margin ≤ what the device has free: each device for itself. Nothing here measures; free memory is
given. Caches, states and the output buffer are exact; work space is the fitted model of :mod:`probes.model_file.compute`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from .compute import ERROR_BYTES, ERROR_SHARE, NOTHING, HostWeights, Phases, phases
from .context import CACHE_TYPES, ContextSettings, Memory, Plan, Refused, check, memory_of, plan
from .gguf_header import GgufHeader, read_header
from .placement import HOST, Weights, fill_in_order, place_layers
from .shape import Shape, UnknownShapeError, read_shape

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

GIB = 1024**3
DEFAULT_MARGIN = GIB
LEVERS = ("speculation-off", "projector-cpu", "micro-batch", "split", "kv-q8_0", "kv-q4_0")
"""What can be tried, in order: first what costs no quality."""
LOW_UBATCH = 128
STEP = 256
_PIPELINE_COPIES = 4
_ROLLBACK = 3
"""llama-server drafts three tokens unless told otherwise, and keeps as many states to go back to."""
_NO_TRAINED_WINDOW = 1 << 24
_MOST_KEPT = 512
_ROUNDED = 1024**2
"""llama.cpp's own planner tells whole MiB."""
_SURELY = 1.1
_LEAST_OFFLOADED = 32
"""From so many tokens on llama.cpp copies host weights to a device instead of working on them there."""


@dataclass(frozen=True, slots=True)
class GivenDevice:
    """One device to plan for.

    ``free_bytes`` None: not known, so nothing is said about fitting. ``unified``: shares the host's memory, but for ``own_bytes`` that were set
    apart for it at start.
    """

    id: str
    name: str
    free_bytes: int | None
    margin_bytes: int = DEFAULT_MARGIN
    unified: bool = False
    own_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked beside the context itself."""

    gpu_layers: int | None = None
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[tuple[str, int], ...] = ()
    """(regular expression over tensor names, device index or HOST)"""
    kv_offload: bool = True
    draft: str = ""
    """Empty, ``mtp`` (the model's own prediction layers) or ``model`` (see ``Model.draft``)."""
    draft_kv_k: str = "f16"
    draft_kv_v: str = "f16"
    projector_bytes: int = 0
    """A projector's weights and its encoder's work space."""
    projector_on_host: bool = False
    projector_inputs: int = 0
    """The picture that it works on: always in host memory."""
    projector_error: int = 0
    """By how much that may be off."""


class Model:
    """A GGUF model read once: header, dimensions, weights, and plans as they are asked for."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.shape: Shape | None = None
        self.unknown: UnknownShapeError | None = None
        try:
            self.shape = read_shape(header)
        except UnknownShapeError as error:
            self.unknown = error
        self.weights_bytes = sum(tensor.size_bytes or 0 for tensor in header.tensors)
        self._plans: dict[tuple[str, str, bool, str, int], Plan | Refused] = {}
        self._weights: dict[bool, Weights] = {}
        self._placed: dict[object, tuple[list[int], int]] = {}
        self._on_host: dict[object, HostWeights] = {}
        self.missing_bytes = header.missing_bytes()
        self.layers_held = 0 if self.shape is None else len(header.layers_held() & set(range(self.shape.layers)))
        self.answers: dict[object, object] = {}
        """What does not depend on the window and was worked out before, for many settings in a row."""

    @property
    def covered(self) -> bool:
        """Say whether every layer that the header names has a tensor, so that the weights' sum means something."""
        return self.shape is None or self.layers_held >= self.shape.layers

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model's header. BadFileError if it is none."""
        return cls(read_header(path))

    def plan(self, settings: ContextSettings) -> Plan | Refused:
        """Give the plan for these settings, or why llama.cpp refuses them. The dimensions must be known."""
        assert self.shape is not None
        refused = check(self.shape, settings)
        if refused is not None:
            return refused
        key = (settings.kv_k, settings.kv_v, settings.flash_attn == "off", settings.kind, settings.rollback)
        if key not in self._plans:
            self._plans[key] = plan(self.shape, settings)
        return self._plans[key]

    def weights(self, *, drafting: bool) -> Weights:
        """Give the tensors' bytes by layer, with or without the prediction layers."""
        assert self.shape is not None
        if drafting not in self._weights:
            self._weights[drafting] = Weights(self.header, self.shape, drafting=drafting)
        return self._weights[drafting]

    def placed(
        self, place: list[int], devices: int, overrides: tuple[tuple[str, int], ...], *, drafting: bool
    ) -> tuple[list[int], int]:
        """Give the weights' bytes on each device and on the host for a placement."""
        key = (tuple(place), devices, overrides, drafting)
        if key not in self._placed:
            if len(self._placed) >= _MOST_KEPT:
                self._placed.clear()
            self._placed[key] = self.weights(drafting=drafting).on_devices(place, devices, overrides)
        return self._placed[key]

    def largest_on_host(
        self, place: list[int], overrides: tuple[tuple[str, int], ...], *, drafting: bool
    ) -> HostWeights:
        """Give the largest tensors that a device must copy as it works, for a placement."""
        key = (tuple(place), overrides, drafting)
        if key not in self._on_host:
            if len(self._on_host) >= _MOST_KEPT:
                self._on_host.clear()
            self._on_host[key] = self.weights(drafting=drafting).largest_on_host(place, overrides)
        return self._on_host[key]


@dataclass(slots=True)
class DeviceNeed:
    """What one device must hold, in bytes."""

    device: GivenDevice
    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0
    other: int = 0

    @property
    def need(self) -> int:
        """Add it up, without the margin."""
        return self.weights + self.kv + self.state + self.compute + self.other

    @property
    def fits(self) -> bool | None:
        """Say whether need and margin are within what is free; None where that is not known."""
        free = self.device.free_bytes
        return None if free is None else self.need + self.device.margin_bytes <= free


@dataclass(slots=True)
class Budget:
    """The answer for one window."""

    memory: Memory
    devices: list[DeviceNeed]
    host: DeviceNeed
    compute_bytes: int
    draft_bytes: int
    projector_bytes: int

    def all(self) -> list[DeviceNeed]:
        """Give every device, the host last."""
        return [*self.devices, self.host]


@dataclass(slots=True)
class Longest:
    """The longest window of one slot that fits, and what stops the next step: a device's id, or ``trained window``."""

    tokens: int
    limited_by: str
    budget: Budget | None = None


@dataclass(slots=True)
class Lever:
    """One step: the window with this and all levers before it, and what it gained over the step before."""

    lever: str
    tokens: int
    gain: int
    weights_bytes: int
    context_bytes: int
    costs_quality: bool
    tensor_split: tuple[int, ...] = ()


class Correction(NamedTuple):
    """What llama.cpp's own planner adds to one device's modelled work space, at a micro-batch. ``exact``: no mere upper bound."""

    bytes: int
    ubatch: int
    exact: bool


@dataclass(slots=True)
class _Running:
    """One context that is run, and where its layers are."""

    planned: Plan
    settings: ContextSettings
    place: list[int]
    follows: bool = False
    on_host: HostWeights = NOTHING
    part_rows: list[list[int]] = field(default_factory=list)
    state: list[int] = field(default_factory=list)


class Planner:
    """One model on given devices with given options; windows are then cheap. The model's dimensions must be known.

    ``refused`` says why llama.cpp would not start; nothing else may be asked then.
    """

    def __init__(
        self,
        model: Model,
        settings: ContextSettings,
        devices: tuple[GivenDevice, ...],
        host: GivenDevice,
        options: Options,
        draft: Model | None = None,
        corrections: tuple[Correction, ...] = (),
    ) -> None:
        assert model.shape is not None
        self.model, self.devices, self.host, self.options, self.draft = model, devices, host, options, draft
        self.corrections = corrections
        self.shape = model.shape
        if options.draft and self.shape.rule.rollback:
            settings = replace(settings, rollback=max(settings.rollback, _ROLLBACK))
        self.settings = settings
        self.refused: Refused | None = None
        self._running: list[_Running] = []
        split = options.tensor_split or tuple(max(float(d.free_bytes or 0), 1.0) for d in devices)
        self.place = place_layers(self.shape.layers_all, options.gpu_layers, split[: len(devices)] if devices else ())
        self._weights, self._host_weights = model.placed(
            self.place,
            len(devices),
            options.overrides,
            drafting=options.draft == "mtp" or settings.kind == "mtp",
        )
        self._add(model, settings, self.place)
        self._draft_weights = [0] * (len(devices) + 1)
        if options.draft and self.refused is None:
            self._add_draft(split)

    def _add(self, model: Model, settings: ContextSettings, place: list[int], *, follows: bool = False) -> None:
        planned = model.plan(settings)
        if isinstance(planned, Refused):
            self.refused = planned
            return
        if planned.shape.needs_target and not follows:
            name = "Gemma4Assistant" if planned.shape.architecture == "gemma4-assistant" else planned.shape.architecture
            self.refused = Refused(
                f"failed to initialize the context: {name} requires ctx_other to be set",
                "it only drafts for another model: give that model, and this one with --draft",
            )
            return
        running = _Running(planned, settings, place, follows)
        if self.devices and settings.ubatch >= _LEAST_OFFLOADED:
            drafting = settings.kind == "mtp"
            running.on_host = model.largest_on_host(place, () if follows else self.options.overrides, drafting=drafting)
        count = len(self.devices) + 1
        for part in planned.parts:
            rows = [0] * count
            for layer, k_row, v_row in zip(part.layers, part.k_rows, part.v_rows, strict=True):
                rows[place[layer] if self.options.kv_offload else HOST] += k_row + v_row
            running.part_rows.append(rows)
        running.state = [0] * count
        for states in (planned.state_rows, planned.kept_states):
            for layer, size in states.items():
                running.state[place[layer] if self.options.kv_offload else HOST] += size
        self._running.append(running)

    def _add_draft(self, split: tuple[float, ...]) -> None:
        options = self.options
        own = replace(self.settings, kv_k=options.draft_kv_k, kv_v=options.draft_kv_v, rollback=0)
        if options.draft == "mtp":
            self._add(self.model, replace(own, kind="mtp"), self.place, follows=True)
            return
        if self.draft is None or self.draft.shape is None:
            self.refused = Refused("the draft model is not known", "leave it out to see the model alone")
            return
        place = place_layers(self.draft.shape.layers_all, None, split[: len(self.devices)] if self.devices else ())
        on, host = self.draft.placed(place, len(self.devices), (), drafting=False)
        self._draft_weights = [*on, host]
        self._add(self.draft, own, place, follows=True)

    def at(self, ctx: int) -> Budget:
        """Give the budget for a window as ``--ctx-size`` asks for it; 0 is the trained one."""
        needs = [DeviceNeed(device) for device in (*self.devices, self.host)]
        for need, size in zip(needs, [*self._weights, self._host_weights], strict=True):
            need.weights = size
        for need, size in zip(needs, self._draft_weights, strict=True):
            need.other = size
        draft_bytes = sum(self._draft_weights)
        compute = 0
        first: Memory | None = None
        for running in self._running:
            settings = replace(running.settings, ctx=ctx)
            memory = memory_of(running.planned, settings)
            first = first or memory
            deep = max(1, settings.parallel) * (1 + running.planned.rollback)
            computes = self._computes(running, phases(running.planned, memory, settings))
            if self.corrections and not running.follows:
                computes = [
                    max(0, size + one.bytes * memory.ubatch // one.ubatch)
                    for size, one in zip(computes, self.corrections, strict=True)
                ]
            for index, need in enumerate(needs):
                kv = sum(
                    rows[index] * cache.cells * cache.streams
                    for rows, cache in zip(running.part_rows, memory.caches, strict=True)
                )
                state = running.state[index] * deep
                if running.follows:
                    need.other += kv + state + computes[index]
                    draft_bytes += kv + state + computes[index]
                else:
                    need.kv, need.state, need.compute = kv, state, computes[index]
                    compute += computes[index]
        assert first is not None
        needs[-1].other += first.output_bytes
        projector = self.options.projector_bytes
        needs[0 if self.devices and not self.options.projector_on_host else -1].other += projector
        needs[-1].other += self.options.projector_inputs
        return Budget(first, needs[:-1], needs[-1], compute, draft_bytes, projector)

    def _computes(self, running: _Running, work: Phases) -> list[int]:
        """Give each device its work space: the graph's peak where it has layers, only inputs on a host beside devices.

        What stays on the host is worked on by the first device, which copies the weights as it comes to them (``--op-offload``); only attention over
        caches that were kept on the host is done there.
        """
        shape = running.planned.shape
        count = len(self.devices)
        if not count:
            return [work.peak()]
        used = set(running.place)
        if running.settings.kind == "mtp":  # runs the prediction layers and the output alone
            used = {*running.place[shape.layers :], running.place[-1]}
        pipelined = (
            count > 1 and HOST not in used and len(used) > 1 and self.options.kv_offload and not self.options.overrides
        )
        more = _PIPELINE_COPIES - 1 if pipelined else 0
        last = max(running.place[-1], 0)
        result = [0] * count
        for index in range(count):
            fetched = running.on_host if index == 0 else NOTHING
            if index in used or any(fetched):
                result[index] = work.peak(logits=index == last, copied=fetched) + more * (work.inputs + work.masks)
        host = 2 * work.inputs + (1 + more) * (work.cast or work.masks)
        if not self.options.kv_offload:
            host = max(host, work.masks + work.attention)
        return [*result, host]

    def corrected(self, ctx: int, theirs: Sequence[int]) -> Planner:
        """Give the planner with the work space that llama.cpp's own planner says for this window: bytes for each device, the host last.

        It reserves logits for a whole micro-batch. Where those make its peak, its number is only the most that a server takes.
        """
        running = self._running[0]
        memory = memory_of(running.planned, replace(running.settings, ctx=ctx))
        rows = replace(running.settings, ctx=ctx, outputs=memory.ubatch)
        whole = phases(running.planned, memory, rows)
        logits = whole.outputs + whole.masks + whole.cast + 2 * whole.inputs
        ours = self.at(ctx)
        corrections = []
        for need, size in zip(ours.all(), theirs, strict=True):
            holds_output = need is ours.all()[self.place[-1]]
            exact = not holds_output or size > _SURELY * logits
            told = size if exact else min(size, need.compute)
            corrections.append(Correction(told - need.compute, max(1, memory.ubatch), exact))
        return Planner(self.model, self.settings, self.devices, self.host, self.options, self.draft, tuple(corrections))

    def fits(self, ctx: int) -> bool | None:
        """Say whether everything fits at that window; None if no device's free memory is known."""
        verdicts = [need.fits for need in self._joined(self.at(ctx))]
        if all(verdict is None for verdict in verdicts):
            return None
        return all(verdict is not False for verdict in verdicts)

    def _joined(self, budget: Budget) -> list[DeviceNeed]:
        """Let the host bear what unified devices hold too: it is the same memory."""
        shared = sum(max(0, need.need - need.device.own_bytes) for need in budget.devices if need.device.unified)
        if not shared:
            return budget.all()
        whole = replace_need(budget.host, shared)
        return [*budget.devices, whole]

    def longest(self) -> Longest | None:
        """Find the longest window of one slot that fits, in steps of 256 tokens up to the trained one. None: nothing is known to fit in."""
        slots = 1 if self.settings.kv_unified else max(1, self.settings.parallel)
        trained = self.shape.trained_window or _NO_TRAINED_WINDOW
        if self.fits(min(STEP, trained) * slots) is None:
            return None
        if self.fits(trained * slots):
            return Longest(trained, "trained window", self.at(trained * slots))
        low, high = 0, -(-trained // STEP)
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits(middle * STEP * slots):
                low = middle
            else:
                high = middle
        over = [need for need in self._joined(self.at(high * STEP * slots)) if need.fits is False]
        limiting = max(over, key=_lacking).device.id if over else "trained window"
        return Longest(low * STEP, limiting, self.at(low * STEP * slots) if low else None)

    def best_split(self, ctx: int | None = None) -> tuple[int, ...] | None:
        """Find the ``--tensor-split`` (layers a device, the output layer counted) that evens the devices out.

        With a window: the one that leaves the least free device most. Without: the one with which the longest window fits.
        None with fewer than two devices, layers on the host, or where nothing fits.
        """
        if len(self.devices) < 2 or HOST in self.place or any(device.free_bytes is None for device in self.devices):
            return None
        if ctx is not None:
            return self._split_for(ctx, slack=True)
        slots = 1 if self.settings.kv_unified else max(1, self.settings.parallel)
        trained = self.shape.trained_window or _NO_TRAINED_WINDOW
        low, high = 0, -(-trained // STEP) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._split_for(min(middle * STEP, trained) * slots) is None:
                high = middle
            else:
                low = middle
        return self._split_for(min(low * STEP, trained) * slots, slack=True) if low else None

    def _split_for(self, ctx: int, *, slack: bool = False) -> tuple[int, ...] | None:
        costs, fixed = self._layer_costs(ctx)
        rooms = [int(d.free_bytes or 0) - d.margin_bytes - fix for d, fix in zip(self.devices, fixed, strict=True)]
        counts = fill_in_order(costs, rooms)
        if counts is None or not slack:
            return None if counts is None else tuple(counts)
        low, high = 0, max(rooms)
        while high - low > 1 << 20:
            middle = (low + high) // 2
            tried = fill_in_order(costs, [room - middle for room in rooms])
            if tried is None:
                high = middle
            else:
                low, counts = middle, tried
        return tuple(counts)

    def _layer_costs(self, ctx: int) -> tuple[list[int], list[int]]:
        """Give each layer's bytes (the output layer last), and what each device holds whatever its layers are."""
        running = self._running[0]
        settings = replace(running.settings, ctx=ctx)
        memory = memory_of(running.planned, settings)
        weights = self.model.weights(drafting=self.options.draft == "mtp")
        costs = weights.by_layer()
        for part, cache in zip(running.planned.parts, memory.caches, strict=True):
            for layer, k_row, v_row in zip(part.layers, part.k_rows, part.v_rows, strict=True):
                costs[layer] += (k_row + v_row) * cache.cells * cache.streams
        deep = max(1, settings.parallel) * (1 + running.planned.rollback)
        for states in (running.planned.state_rows, running.planned.kept_states):
            for layer, size in states.items():
                costs[layer] += size * deep
        budget = self.at(ctx)
        return costs, [need.compute + need.other for need in budget.devices]

    def levers(self, order: tuple[str, ...] = LEVERS) -> list[Lever]:
        """Pull the levers one after the other, each on top of those before. A lever that does not apply or is refused is left out."""
        found = self.longest()
        if found is None:
            return []
        result = [self._lever("baseline", found, 0, ())]
        planner, before, worse = self, found, False
        for name in order:
            pulled = planner.pull(name)
            if pulled is None or pulled.refused is not None:
                continue
            now = pulled.longest()
            if now is None:
                continue
            worse = name.startswith("kv-")
            split = tuple(int(share) for share in pulled.options.tensor_split) if name == "split" else ()
            lever = pulled._lever(name, now, now.tokens - before.tokens, split)
            lever.costs_quality = worse
            result.append(lever)
            planner, before = pulled, now
        return result

    def _lever(self, name: str, found: Longest, gain: int, split: tuple[int, ...]) -> Lever:
        budget = found.budget or self.at(STEP)
        held = budget.devices or [budget.host]
        return Lever(
            name,
            found.tokens,
            gain,
            sum(need.weights for need in held),
            sum(need.kv + need.state for need in held),
            costs_quality=False,
            tensor_split=split,
        )

    def pull(self, lever: str) -> Planner | None:
        """Give the planner with one lever pulled, None where it does not apply."""
        settings, options = self.settings, self.options
        if lever == "speculation-off":
            if not options.draft:
                return None
            settings, options = replace(settings, rollback=0), replace(options, draft="")
        elif lever == "projector-cpu":
            if not options.projector_bytes or options.projector_on_host or not self.devices:
                return None
            options = replace(options, projector_on_host=True)
        elif lever == "micro-batch":
            if settings.ubatch <= LOW_UBATCH:
                return None
            settings = replace(settings, ubatch=LOW_UBATCH)
        elif lever == "split":
            split = self.best_split()
            if split is None:
                return None
            options = replace(options, tensor_split=tuple(float(count) for count in split))
        elif lever.startswith("kv-"):
            kind = CACHE_TYPES.get(lever[3:])
            if kind is None or not self._smaller(kind.name):
                return None
            settings = replace(settings, kv_k=kind.name, kv_v=kind.name)
        else:
            return None
        return Planner(self.model, settings, self.devices, self.host, options, self.draft, self.corrections)

    def _smaller(self, name: str) -> bool:
        def share(of: str) -> float:
            return CACHE_TYPES[of].size / CACHE_TYPES[of].block

        return share(name) < max(share(self.settings.kv_k), share(self.settings.kv_v))

    def error_bytes(self, budget: Budget) -> int:
        """Say by how much the work space of any one device may be off."""
        more = self.options.projector_error
        if self.corrections and all(one.exact for one in self.corrections):
            return _ROUNDED + more
        return max(ERROR_BYTES, int(max(need.compute for need in budget.all()) * ERROR_SHARE)) + more


def replace_need(need: DeviceNeed, more: int) -> DeviceNeed:
    """Give a copy that holds so much more."""
    return DeviceNeed(need.device, need.weights, need.kv, need.state, need.compute, need.other + more)


def _lacking(need: DeviceNeed) -> int:
    return need.need + need.device.margin_bytes - (need.device.free_bytes or 0)
