"""``ctxdoctor estimate MODEL``: what a model, window and cache type need on each device, and the longest window that fits."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from probes.evidence.errors import BadFileError, InputError
from probes.evidence.sizes import parse_size, show_size
from probes.evidence.words import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.estimate import Estimate
    from probes.evidence.records import Unavailable
    from probes.model_file.budget import GivenDevice, Model, Options
    from probes.model_file.context import ContextSettings

_MOST_LINE = 1 << 16


def estimate_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="GGUF file, or a folder with config.json and safetensors")],
    ctx: Annotated[str | None, typer.Option("--ctx", "-c", help="window in tokens: 8192, 8k, 128K; 0 or absent: the trained one")] = None,
    kv: Annotated[str | None, typer.Option("--kv", metavar="K[/V]", help="cache type, such as q8_0 or q8_0/q4_0")] = None,
    parallel: Annotated[str | None, typer.Option("--parallel", "-np", help="slots; absent: 4 that share one cache, as llama-server")] = None,
    kv_unified: Annotated[bool | None, typer.Option("--kv-unified/--no-kv-unified", help="one cache for all slots")] = None,
    batch: Annotated[str | None, typer.Option("--batch", "-b", help="batch size")] = None,
    ubatch: Annotated[str | None, typer.Option("--ubatch", "-ub", help="micro-batch size")] = None,
    swa_full: Annotated[bool, typer.Option("--swa-full", help="full-size cache for sliding-window layers")] = False,
    flash_attn: Annotated[str, typer.Option("--flash-attn", "-fa", help="on, off or auto")] = "auto",
    gpu: Annotated[list[str] | None, typer.Option("--gpu", metavar="[NAME=]SIZE", help="free memory of one device; repeat. Absent: this machine's")] = None,
    ram: Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="free memory of the host")] = None,
    tensor_split: Annotated[str | None, typer.Option("--tensor-split", "-ts", help="shares of the devices, such as 3,1")] = None,
    gpu_layers: Annotated[str | None, typer.Option("--gpu-layers", "-ngl", help="layers on devices; absent: all")] = None,
    override: Annotated[list[str] | None, typer.Option("--override-tensor", "-ot", metavar="REGEX=DEVICE", help="tensors to cpu, gpu0, gpu1 …; repeat")] = None,
    cpu_moe: Annotated[bool, typer.Option("--cpu-moe", help="all experts in host memory")] = False,
    n_cpu_moe: Annotated[int, typer.Option("--n-cpu-moe", min=0, max=4096, help="experts of the first N layers in host memory")] = 0,
    no_kv_offload: Annotated[bool, typer.Option("--no-kv-offload", help="caches in host memory")] = False,
    draft: Annotated[str | None, typer.Option("--draft", metavar="FILE|mtp", help="draft model, or mtp for the model's own prediction layers")] = None,
    mmproj: Annotated[str | None, typer.Option("--mmproj", metavar="FILE", help="projector (multimodal part)")] = None,
    no_mmproj_offload: Annotated[bool, typer.Option("--no-mmproj-offload", help="projector in host memory")] = False,
    margin: Annotated[list[str] | None, typer.Option("--margin", metavar="SIZE", help="safety margin of each device; repeat for one each")] = None,
    levers: Annotated[str | None, typer.Option("--levers", help="order of the levers, such as kv-q8_0,micro-batch")] = None,
    backend: Annotated[str | None, typer.Option("--backend", help="for a safetensors folder: vllm, sglang, mlx_lm or exllama")] = None,
    settings: Annotated[str | None, typer.Option("--settings", metavar="FILE|-", help="JSON lines of settings, each answered on one line")] = None,
    output_format: Annotated[str, typer.Option("--format", help="text or json")] = "text",
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help="write there instead of to standard output")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no notes")] = False,  # noqa: ARG001 - there is no progress to be quiet about
) -> None:
    """Say what a model needs on each device at a window, which device fills first, and what would make the window longer."""
    if output_format not in {"text", "json"}:
        raise InputError(f"estimate can be shown as text or json, not as {output_format[:40]!r}")
    given: dict[str, Any] = {
        "ctx": ctx,
        "parallel": parallel,
        "kv_unified": kv_unified,
        "batch": batch,
        "ubatch": ubatch,
        "swa_full": swa_full,
        "flash_attn": flash_attn,
        **_cache_types(kv),
    }
    if os.path.isdir(model):  # noqa: PTH112 - pathlib is slower to import than the header is to read
        lines: Iterable[str] = _folder(model, given, backend, _free_of_folder(gpu, margin), as_json=output_format == "json" or settings is not None)
    else:
        lines = _gguf(
            model,
            given,
            _Choices(
                gpu, ram, margin, tensor_split, gpu_layers, override, no_kv_offload, draft, mmproj, no_mmproj_offload, levers, cpu_moe, n_cpu_moe
            ),
            settings,
            as_json=output_format == "json",
        )
    _write(lines, out)


class _Choices:
    """The options about devices, as they were written."""

    def __init__(
        self,
        gpu: list[str] | None,
        ram: str | None,
        margin: list[str] | None,
        tensor_split: str | None,
        gpu_layers: str | None,
        override: list[str] | None,
        no_kv_offload: bool,
        draft: str | None,
        mmproj: str | None,
        no_mmproj_offload: bool,
        levers: str | None,
        cpu_moe: bool,
        n_cpu_moe: int,
    ) -> None:
        self.gpu, self.ram, self.margin = gpu, ram, margin
        self.tensor_split, self.gpu_layers, self.override = tensor_split, gpu_layers, override or []
        self.no_kv_offload, self.draft, self.mmproj, self.no_mmproj_offload = no_kv_offload, draft, mmproj, no_mmproj_offload
        self.levers, self.cpu_moe, self.n_cpu_moe = levers, cpu_moe, n_cpu_moe


def _cache_types(kv: str | None) -> dict[str, str | None]:
    if kv is None:
        return {}
    key, slash, value = kv.partition("/")
    if not key or (slash and not value):
        raise InputError("a cache type is written like q8_0, or q8_0/q4_0 for keys and values")
    return {"kv_k": key, "kv_v": value or key}


def _gguf(path: str, given: dict[str, Any], choices: _Choices, settings: str | None, *, as_json: bool) -> Iterator[str]:
    from diagnose.estimate import bad_line, estimate, settings_from  # noqa: PLC0415 - dear, and not needed for --help
    from probes.model_file.budget import LEVERS, Model  # noqa: PLC0415

    model = Model.read(path)
    devices, host, notes = devices_for(choices.gpu, choices.ram, choices.margin)
    options, draft = _options(choices, len(devices))
    order = _order(choices.levers, LEVERS)
    if settings is None:
        asked, ignored = settings_from(given)
        found = estimate(model, asked, devices, host, options, draft=draft, order=order, notes={**notes, **ignored})
        yield json_line(found, pretty=True) if as_json else _drawn(found, asked)
        return
    for number, line in enumerate(_lines(settings), start=1):
        if not line.strip():
            continue
        try:
            asked, ignored = settings_from({**given, **_object(line)})
        except InputError as error:
            sys.stderr.write(f"ctxdoctor: line {number} of the settings: {error}\n")
            yield json_line(bad_line(model, number, str(error)))
            continue
        yield json_line(estimate(model, asked, devices, host, options, draft=draft, order=order, notes={**notes, **ignored}))


def json_line(found: Estimate, *, pretty: bool = False) -> str:
    """Give the document as JSON: indented for one, one line each for many."""
    return found.model_dump_json(indent=2 if pretty else None)


def _object(line: str) -> dict[str, Any]:
    if len(line) > _MOST_LINE:
        raise InputError("the line is too long for settings")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError('this is no JSON object; write it like {"ctx": 32768, "kv_k": "q8_0"}') from None
    if not isinstance(value, dict):
        raise InputError('settings are an object, such as {"ctx": 32768, "kv_k": "q8_0"}')
    return value


def _lines(source: str) -> Iterator[str]:
    if source == "-":
        for raw in sys.stdin.buffer:
            yield raw.decode("utf-8", "replace")
        return
    try:
        with open(source, "rb") as file:  # noqa: PTH123
            for raw in file:
                yield raw.decode("utf-8", "replace")
    except OSError as error:
        raise BadFileError(f"cannot read the settings {source[:200]!r}: {error.strerror or error}") from None


def devices_for(
    gpu: list[str] | None, ram: str | None, margin: list[str] | None
) -> tuple[tuple[GivenDevice, ...], GivenDevice, dict[str, Unavailable]]:
    """Give devices and host to plan for: those described, or this machine's; with notes on what could not be read. InputError."""
    from probes.model_file.budget import DEFAULT_MARGIN, GivenDevice  # noqa: PLC0415

    margins = [parse_size(one) for one in margin or []]

    def margin_of(index: int) -> int:
        return margins[min(index, len(margins) - 1)] if margins else DEFAULT_MARGIN

    notes: dict[str, Unavailable] = {}
    if gpu is not None:
        described = []
        for index, text in enumerate(gpu):
            name, equals, size = text.rpartition("=")
            described.append(GivenDevice(f"gpu{index}", name.strip()[:200] if equals and name.strip() else f"GPU {index}", parse_size(size), margin_of(index)))
        free = None if ram is None else parse_size(ram)
        return tuple(described), GivenDevice("host", "host memory", free, margin_of(len(described))), notes
    devices = _machine_devices(notes, margin_of)
    free = _free_ram() if ram is None else parse_size(ram)
    return devices, GivenDevice("host", "host memory", free, margin_of(len(devices))), notes


def _machine_devices(notes: dict[str, Unavailable], margin_of: Any) -> tuple[GivenDevice, ...]:
    from probes.evidence.records import Unavailable  # noqa: PLC0415
    from probes.model_file.budget import GivenDevice  # noqa: PLC0415

    if not _may_have_devices():
        return ()
    from probes.gpu import read_devices  # noqa: PLC0415 - drivers are asked only where there may be one

    found = []
    for index, device in enumerate(read_devices(when="estimate").devices):
        if device.free_bytes is None and device.memory != "unified":
            notes[f"devices.{device.id}.free_bytes"] = Unavailable(why="not-offered", note="the driver does not tell its free memory; give it with --gpu")
        found.append(GivenDevice(device.id, device.name, device.free_bytes, margin_of(index), unified=device.memory == "unified"))
    return tuple(found)


def _may_have_devices() -> bool:
    """Say whether asking the drivers is worth its time: on Linux a device file tells."""
    if not sys.platform.startswith("linux"):
        return True
    return any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dri", "/dev/kfd", "/dev/dxg"))  # noqa: PTH110


def _free_ram() -> int | None:
    """Give the host memory that can still be had: the kernel's own estimate, or what a container's limit leaves."""
    import psutil  # noqa: PLC0415

    free = int(psutil.virtual_memory().available)
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:  # noqa: PTH123
            most = file.read().strip()
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:  # noqa: PTH123
            used = int(file.read())
        return min(free, max(0, int(most) - used)) if most.isdigit() else free
    except (OSError, ValueError):
        return free


def _options(choices: _Choices, devices: int) -> tuple[Options, Model | None]:
    from probes.model_file.budget import Model, Options  # noqa: PLC0415
    from probes.model_file.gguf_header import read_header  # noqa: PLC0415

    draft: Model | None = None
    kind = ""
    if choices.draft is not None:
        kind = "mtp" if choices.draft.lower() == "mtp" else "model"
        if kind == "model":
            draft = Model.read(choices.draft)
    projector = 0
    if choices.mmproj is not None:
        projector = sum(tensor.size_bytes or 0 for tensor in read_header(choices.mmproj).tensors)
    return (
        Options(
            gpu_layers=_layers(choices.gpu_layers),
            tensor_split=_split(choices.tensor_split, devices),
            overrides=_overrides(choices, devices),
            kv_offload=not choices.no_kv_offload,
            draft=kind,
            projector_bytes=projector,
            projector_on_host=choices.no_mmproj_offload,
        ),
        draft,
    )


def _layers(text: str | None) -> int | None:
    if text is None or text.lower() in {"all", "auto", "-1"}:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise InputError("--gpu-layers is a number of layers, or all")
    return int(text)


def _split(text: str | None, devices: int) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        shares = tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError:
        raise InputError("--tensor-split is a list of numbers, such as 3,1") from None
    if not all(0 <= share < 1e9 for share in shares) or not any(shares):
        raise InputError("--tensor-split has shares of 0 or more, at least one above 0")
    if len(shares) > devices:
        raise InputError(f"--tensor-split has {len(shares)} shares for {devices} devices")
    return (*shares, *[0.0] * (devices - len(shares)))


def _overrides(choices: _Choices, devices: int) -> tuple[tuple[str, int], ...]:
    found = []
    for text in choices.override:
        pattern, equals, target = text.rpartition("=")
        if not equals or not pattern or len(pattern) > 500:
            raise InputError("an override is written like 'ffn_.*_exps=cpu'")
        found.append((pattern, _target(target.strip().lower(), devices)))
    if choices.cpu_moe:
        found.append((r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", -1))
    found += [(rf"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps", -1) for layer in range(choices.n_cpu_moe)]
    return tuple(found)


def _target(name: str, devices: int) -> int:
    if name in {"cpu", "host"}:
        return -1
    number = name.lstrip("abcdefghijklmnopqrstuvwxyz:")
    if number.isascii() and number.isdigit() and int(number) < devices:
        return int(number)
    raise InputError(f"an override goes to cpu or to one of {devices} devices (gpu0 …), not to {name[:40]!r}")


def _order(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return known
    order = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in order:
        if name not in known and not name.startswith("kv-"):
            raise InputError(f"there is no lever {name[:40]!r}; the levers are {', '.join(known)}")
    return order


def _write(lines: Iterable[str], out: str | None) -> None:
    if out is None:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        return
    try:
        with open(out, "w", encoding="utf-8") as file:  # noqa: PTH123
            for line in lines:
                file.write(line + "\n")
    except OSError as error:
        raise InputError(f"cannot write {out[:200]!r}: {error.strerror or error}") from None


def _free_of_folder(gpu: list[str] | None, margin: list[str] | None) -> int | None:
    if not gpu:
        return None
    devices, _host, _notes = devices_for(gpu, None, margin)
    return sum(max(0, (device.free_bytes or 0) - device.margin_bytes) for device in devices)


def _folder(path: str, given: dict[str, Any], backend: str | None, free: int | None, *, as_json: bool) -> Iterator[str]:
    from diagnose.estimate_folder import draw_folder, estimate_folder  # noqa: PLC0415

    found = estimate_folder(path, given, backend, free)
    yield json_line(found, pretty=True) if as_json else draw_folder(found)


def _drawn(found: Estimate, asked: ContextSettings) -> str:
    """Draw the document for people."""
    from io import StringIO  # noqa: PLC0415

    from rich.console import Console  # noqa: PLC0415 - only for people

    wide = sys.stdout.isatty()
    console = Console(file=StringIO(), force_terminal=wide and "NO_COLOR" not in os.environ, width=None if wide else 118, highlight=False)
    with console.capture() as capture:
        draw(console, found, replace(asked))
    return capture.get().rstrip("\n")


def draw(console: Any, found: Estimate, asked: ContextSettings) -> None:
    """Draw one estimate on a rich console: model, sum of each device, caches, longest window, levers."""
    from rich.markup import escape  # noqa: PLC0415

    name = os.path.basename(found.model.path)  # noqa: PTH119
    trained = found.model.trained_window
    console.print(
        words(
            "{model}: architecture {architecture}, trained to {trained} tokens, weights {weights}",
            model=escape(name),
            architecture=escape(found.model.architecture or "?"),
            trained=f"{trained:,}" if trained else "?",
            weights=show_size(found.model.weights_bytes or 0),
        ).__str__()
    )
    if found.result == "refused":
        console.print(str(words("llama.cpp refuses these settings: {why}", why=escape(found.refused_because or ""))))
        return
    if found.result == "unknown":
        for path, why in found.unknown.items():
            console.print(str(words("unknown: {path}: {why}", path=escape(path), why=escape(why.note))))
        return
    console.print(
        str(
            words(
                "window {ctx} tokens ({slot} a slot, {slots} slots), cache {k}/{v}",
                ctx=f"{found.ctx_in_force or 0:,}",
                slot=f"{found.ctx_per_slot or 0:,}",
                slots=asked.parallel,
                k=escape(asked.kv_k),
                v=escape(asked.kv_v),
            )
        )
    )
    _draw_devices(console, found)
    _draw_parts(console, found)
    _draw_windows(console, found)
    for path, why in found.unknown.items():
        console.print(str(words("not counted or not known: {path}: {why}", path=escape(path), why=escape(why.note))), style="dim")


def _table(*columns: str) -> Any:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def _draw_devices(console: Any, found: Estimate) -> None:
    from rich.markup import escape  # noqa: PLC0415

    table = _table(
        str(words("device")), str(words("weights")), str(words("cache")), str(words("state")), str(words("work space")),
        str(words("other")), str(words("needs")), str(words("margin")), str(words("free")), str(words("fits")),
    )  # fmt: skip
    for device in found.devices:
        kind = {"unified": words("unified memory"), "host": None, "dedicated": None}[device.memory]
        name = escape(device.name) + (f" ({kind})" if kind else "")
        verdict = {True: words("yes"), False: words("no"), None: words("unknown")}[device.fits]
        sizes = (
            device.weights_bytes, device.kv_bytes, device.state_bytes, device.compute_bytes, device.other_bytes, device.need_bytes,
            device.margin_bytes,
        )  # fmt: skip
        free = show_size(device.free_bytes) if device.free_bytes is not None else "?"
        style = "red" if device.fits is False else ""
        table.add_row(name, *[show_size(size) for size in sizes], free, str(verdict), style=style)
    console.print(table)
    error = found.basis.error
    if error:
        console.print(
            str(words("Caches and states are exact. Work space is a fitted model, right to about {error}.", error=show_size(error))), style="dim"
        )


def _draw_parts(console: Any, found: Estimate) -> None:
    table = _table(str(words("cache")), str(words("cells")), str(words("streams")), str(words("layers")), "K", "V")
    for part in found.kv.parts:
        table.add_row(
            part.name, f"{part.cells:,}", str(part.streams), str(len(part.layers)), show_size(part.k_bytes), show_size(part.v_bytes)
        )
    if found.kv.parts:
        console.print(table)


def _draw_windows(console: Any, found: Estimate) -> None:
    from rich.markup import escape  # noqa: PLC0415

    from diagnose.estimate import LEVER_WORDS  # noqa: PLC0415

    longest = found.longest_window
    if longest.tokens is None:
        return
    short = [device for device in found.devices if device.fits is False]
    if short:
        first = max(short, key=lambda device: device.need_bytes + device.margin_bytes - (device.free_bytes or 0))
        lacking = first.need_bytes + first.margin_bytes - (first.free_bytes or 0)
        console.print(str(words("Fills first: {device}, by {size}.", device=escape(first.name), size=show_size(lacking))))
    console.print(
        str(
            words(
                "Longest window that fits: {tokens} tokens; limited by: {limit}",
                tokens=f"{longest.tokens:,}",
                limit=escape(longest.limited_by or "?"),
            )
        )
    )
    if len(found.levers) > 1:
        table = _table(str(words("lever")), str(words("window")), str(words("gain")), str(words("weights")), str(words("context")))
        for lever in found.levers:
            name = str(LEVER_WORDS.get(lever.lever, lever.lever))
            if lever.tensor_split:
                name += f" (--tensor-split {','.join(map(str, lever.tensor_split))})"
            gain = f"{lever.gain:+,}" if lever.lever != "baseline" else ""
            table.add_row(name, f"{lever.tokens:,}", gain, show_size(lever.weights_bytes), show_size(lever.context_bytes))
        console.print(table)
    rows = [row for row in found.by_cache_type if row.tokens is not None]
    if rows:
        console.print(
            str(words("By cache type alone: {list}", list=", ".join(f"{row.kv} {row.tokens:,}" for row in rows)))
        )
    if found.even_split:
        console.print(
            str(words("Evened out at this window: --tensor-split {split}", split=",".join(map(str, found.even_split))))
        )
