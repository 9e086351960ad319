"""Carry out ``ctxdoctor estimate``: read the options, answer one or many settings, draw or print the answer.

:func:`quick` does it without the option library for plain command lines, because importing that costs ten times what the answer does; what it
does not understand it leaves to :func:`diagnose.cli.estimate.estimate_command`, which has the same options, with help and error messages.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from probes.evidence.errors import BadFileError, InputError
from probes.evidence.sizes import parse_memory, show_size
from probes.evidence.words import Words, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diagnose.estimate_folder import PoolModel
    from diagnose.estimating import Document, Why
    from probes.model_file.planner import GivenDevice, Model, Options

_MOST_LINE = 1 << 16

VALUES = {
    "--ctx": "ctx", "-c": "ctx", "--kv": "kv", "--parallel": "parallel", "-np": "parallel", "--batch": "batch", "-b": "batch",
    "--ubatch": "ubatch", "-ub": "ubatch", "--flash-attn": "flash_attn", "-fa": "flash_attn", "--ram": "ram",
    "--tensor-split": "tensor_split", "-ts": "tensor_split", "--gpu-layers": "gpu_layers", "-ngl": "gpu_layers",
    "--n-cpu-moe": "n_cpu_moe", "--draft": "draft", "--mmproj": "mmproj", "--levers": "levers", "--backend": "backend",
    "--settings": "settings", "--format": "output_format", "--out": "out", "--planner": "planner",
    "--build": "build",
}  # fmt: skip
"""Options that take one value → the parameter."""
REPEATED = {"--gpu": "gpu", "--override-tensor": "override", "-ot": "override", "--margin": "margin"}
FLAGS = {
    "--kv-unified": ("kv_unified", True), "--no-kv-unified": ("kv_unified", False), "--swa-full": ("swa_full", True),
    "--cpu-moe": ("cpu_moe", True), "--no-kv-offload": ("no_kv_offload", True), "--no-mmproj-offload": ("no_mmproj_offload", True),
    "--quiet": ("quiet", True),
}  # fmt: skip
LLAMA_CPP = {
    "llama.cpp": "llama.cpp", "llamacpp": "llama.cpp", "llama-cpp": "llama.cpp", "llama-server": "llama.cpp", "llama-router": "llama.cpp",
    "llama-swap": "llama.cpp", "ik-llama.cpp": "ik_llama.cpp", "ik-llama": "ik_llama.cpp", "ollama": "ollama", "lm-studio": "lm-studio",
    "lmstudio": "lm-studio", "koboldcpp": "koboldcpp", "llama-cpp-python": "llama-cpp-python", "text-generation-webui": "text-generation-webui",
}  # fmt: skip
"""What runs GGUF files with llama.cpp's arithmetic, as people write it (underscores as hyphens) → its name."""
DEFAULTS: dict[str, Any] = {
    "ctx": None, "kv": None, "parallel": None, "kv_unified": None, "batch": None, "ubatch": None, "swa_full": False, "flash_attn": "auto",
    "gpu": None, "ram": None, "tensor_split": None, "gpu_layers": None, "override": None, "cpu_moe": False, "n_cpu_moe": 0,
    "no_kv_offload": False, "draft": None, "mmproj": None, "no_mmproj_offload": False, "margin": None, "levers": None, "backend": None,
    "settings": None, "output_format": "text", "out": None, "quiet": False, "planner": None, "build": None,
}  # fmt: skip


def quick(arguments: list[str]) -> int | None:
    """Answer a plain command line: 0 when done, None if the option library should look at it. InputError as ever."""
    given = dict(DEFAULTS)
    models: list[str] = []
    rest = iter(arguments)
    for one in rest:
        name, equals, value = one.partition("=") if one.startswith("--") else (one, "", "")
        if name == "--lang":
            if not equals and next(rest, None) is None:
                return None
        elif name in VALUES or name in REPEATED:
            text = value if equals else next(rest, None)
            if text is None or (not equals and text.startswith("--")):
                return None
            if name in VALUES:
                given[VALUES[name]] = text
            else:
                given[REPEATED[name]] = [*(given[REPEATED[name]] or []), text]
        elif one in FLAGS:
            given[FLAGS[one][0]] = FLAGS[one][1]
        elif one in {"--debug", "--no-color"}:
            continue
        elif one.startswith("-"):
            return None
        else:
            models.append(one)
    if len(models) != 1 or not _whole(given):
        return None
    carry_out(models[0], given)
    return 0


def _whole(given: dict[str, Any]) -> bool:
    text = str(given["n_cpu_moe"])
    if not (text.isascii() and text.isdigit() and int(text) <= 4096):
        return False
    given["n_cpu_moe"] = int(text)
    return True


def carry_out(model: str, choices: dict[str, Any]) -> None:
    """Do it: ``choices`` has the parameters of the command by name."""
    if choices["output_format"] not in {"text", "json"}:
        raise InputError(f"estimate can be shown as text or json, not as {choices['output_format'][:40]!r}")
    as_json = choices["output_format"] == "json"
    given = {
        name: choices[name] for name in ("ctx", "parallel", "kv_unified", "batch", "ubatch", "swa_full", "flash_attn")
    }
    given.update(_cache_types(choices["kv"]))
    if os.path.isdir(model):  # noqa: PTH112 - pathlib is slower to import than the header is to read
        lines: Iterable[str] = _folder(model, given, choices, as_json=as_json)
    else:
        lines = _gguf(model, given, choices, as_json=as_json)
    _write(lines, choices["out"])


def _cache_types(kv: str | None) -> dict[str, str | None]:
    if kv is None:
        return {}
    key, slash, value = kv.partition("/")
    if not key or (slash and not value) or "/" in value:
        raise InputError("a cache type is written like q8_0, or q8_0/q4_0 for keys and values")
    return {"kv_k": key, "kv_v": value or key}


def _gguf(path: str, given: dict[str, Any], choices: dict[str, Any], *, as_json: bool) -> Iterator[str]:
    if choices["backend"] is not None and _plain(choices["backend"]) not in LLAMA_CPP:
        yield from _gguf_in_pool(path, given, choices, as_json=as_json)
        return
    from diagnose.estimating import bad_line, document, settings_from  # noqa: PLC0415 - not needed for --help
    from probes.model_file.context import as_engine  # noqa: PLC0415
    from probes.model_file.planner import LEVERS, Model  # noqa: PLC0415

    model = Model.read(path)
    devices, host, notes = devices_for(choices["gpu"], choices["ram"], choices["margin"])
    options, draft = _options(choices, len(devices))
    order = _order(choices["levers"], LEVERS)
    own = _own_planner(choices, notes)
    build = _build(choices["build"])
    engine = LLAMA_CPP[_plain(choices["backend"])] if choices["backend"] is not None else None
    if engine not in {None, "llama.cpp"}:
        notes["basis.engine"] = {
            "why": "not-offered",
            "note": words(
                "counted as llama.cpp, with its defaults; {engine} may choose another window, cache type or number of slots",
                engine=engine,
            ).english,
        }
    if choices["settings"] is None:
        asked, ignored = settings_from(given)
        asked = as_engine(asked, engine, build)
        found = document(
            model, asked, devices, host, options, draft=draft, order=order, notes={**notes, **ignored}, own_planner=own
        )
        yield json_line(found, pretty=True) if as_json else _drawn(found)
        return
    for number, line in enumerate(_lines(choices["settings"]), start=1):
        if not line.strip():
            continue
        try:
            asked, ignored = settings_from({**given, **_object(line)})
            asked = as_engine(asked, engine, build)
        except InputError as error:
            sys.stderr.write(f"ctxdoctor: line {number} of the settings: {error}\n")
            yield json_line(bad_line(model, number, str(error)))
            continue
        answer = document(
            model, asked, devices, host, options, draft=draft, order=order, notes={**notes, **ignored}, own_planner=own
        )
        yield json_line(answer)


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _gguf_in_pool(path: str, given: dict[str, Any], choices: dict[str, Any], *, as_json: bool) -> Iterator[str]:
    """Answer for a GGUF file in an engine that fills a pool, by that engine's rules."""
    from diagnose.estimate_folder import GgufInPool  # noqa: PLC0415
    from probes.model_file.planner import Model  # noqa: PLC0415

    yield from _pool(GgufInPool(Model.read(path)), given, choices, as_json=as_json)


def _own_planner(choices: dict[str, Any], notes: dict[str, Why]) -> str | None:
    """Find llama.cpp's own planner where it was asked for: by name, beside a server's binary that was named, or on the path."""
    asked = choices["planner"]
    if asked is None:
        return None
    from probes.model_file.own_planner import PROGRAM, find_planner  # noqa: PLC0415 - only where it is asked for

    if choices["gpu"] is not None:
        notes["basis.compute"] = {
            "why": "not-offered",
            "note": f"{PROGRAM} plans for this machine's devices, not for described ones",
        }
        return None
    if asked == "auto":
        program = find_planner()
        if program is None:
            notes["basis.compute"] = {
                "why": "not-offered",
                "note": f"no {PROGRAM} is on the path; give its place with --planner",
            }
        return program
    if os.path.basename(asked).startswith(PROGRAM):  # noqa: PTH119 - pathlib is slower to import than the header is to read
        if not os.access(asked, os.X_OK):
            raise InputError(f"{asked[:200]!r} is no program that can be run")
        return str(asked)
    program = find_planner(asked)
    if program is None:
        raise InputError(f"there is no {PROGRAM} beside {asked[:200]!r} nor on the path")
    return program


def json_line(found: Document, *, pretty: bool = False) -> str:
    """Give the document as JSON: indented for one, one line each for many."""
    return json.dumps(found, indent=2) if pretty else json.dumps(found, separators=(",", ":"))


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
) -> tuple[tuple[GivenDevice, ...], GivenDevice, dict[str, Why]]:
    """Give devices and host to plan for: those described, or this machine's; with notes on what could not be read. InputError."""
    from probes.model_file.planner import DEFAULT_MARGIN, GivenDevice  # noqa: PLC0415

    margins = [parse_memory(one, "--margin") for one in margin or []]

    def enough_for(devices: int) -> None:
        if len(margins) > devices + 1:
            raise InputError(
                f"--margin is given {len(margins)} times: that is more than one each for devices ({devices}) and host"
            )

    def margin_of(index: int) -> int:
        return margins[min(index, len(margins) - 1)] if margins else DEFAULT_MARGIN

    notes: dict[str, Why] = {}
    if gpu is not None:
        described = []
        for index, text in enumerate(gpu):
            name, equals, size = text.rpartition("=")
            described.append(
                GivenDevice(
                    f"gpu{index}",
                    name.strip()[:200] if equals and name.strip() else f"GPU {index}",
                    parse_memory(size, "--gpu", nothing=False),
                    margin_of(index),
                )
            )
        free = None if ram is None else parse_memory(ram, "--ram", nothing=False)
        enough_for(len(described))
        return tuple(described), GivenDevice("host", "host memory", free, margin_of(len(described))), notes
    free = _free_ram() if ram is None else parse_memory(ram, "--ram", nothing=False)
    devices = _machine_devices(notes, margin_of, free)
    enough_for(len(devices))
    return devices, GivenDevice("host", "host memory", free, margin_of(len(devices))), notes


def _machine_devices(notes: dict[str, Why], margin_of: Any, ram: int | None) -> tuple[GivenDevice, ...]:
    if not _may_have_devices():
        return ()
    from probes.gpu import read_devices  # noqa: PLC0415 - drivers are asked only where there may be one
    from probes.model_file.session import as_usable, given_device  # noqa: PLC0415

    found = []
    for index, told in enumerate(read_devices(when="estimate").devices):
        device = as_usable(told, ram)
        if device.free_bytes is None:
            notes[f"devices.{device.id}.free_bytes"] = {
                "why": "not-offered",
                "note": "the driver does not tell its free memory; give it with --gpu",
            }
        found.append(given_device(device, margin_of(index)))
    return tuple(found)


def _may_have_devices() -> bool:
    """Say whether asking the drivers is worth its time: on Linux a device file tells."""
    if not sys.platform.startswith("linux"):
        return True
    return any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dri", "/dev/kfd", "/dev/dxg"))  # noqa: PTH110


def _free_ram() -> int | None:
    """Give the host memory that can still be had: the kernel's own estimate, or what a container's limit leaves."""
    free = _meminfo()
    if free is None:
        import psutil  # noqa: PLC0415 - dear, and Linux tells it in a file

        free = int(psutil.virtual_memory().available)
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:  # noqa: PTH123
            most = file.read().strip()
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:  # noqa: PTH123
            used = int(file.read())
        return min(free, max(0, int(most) - used)) if most.isdigit() else free
    except (OSError, ValueError):
        return free


def _meminfo() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            for line in file:
                name, _, rest = line.partition(":")
                words_of = rest.split()
                if name == "MemAvailable" and words_of and words_of[0].isdigit():
                    return int(words_of[0]) * 1024
    except OSError:
        pass
    return None


def _options(choices: dict[str, Any], devices: int) -> tuple[Options, Model | None]:
    from probes.model_file.planner import Model, Options  # noqa: PLC0415

    draft: Model | None = None
    kind = ""
    if choices["draft"] is not None:
        kind = "mtp" if choices["draft"].lower() == "mtp" else "model"
        if kind == "model":
            draft = Model.read(choices["draft"])
    weights = work = inputs = 0
    if choices["mmproj"] is not None:
        from probes.model_file.projector import read_projector  # noqa: PLC0415 - only where there is one

        projector = read_projector(choices["mmproj"], flash_attn=str(choices["flash_attn"]))
        weights, work, inputs = projector.weights, projector.compute or 0, projector.inputs or 0
    return (
        Options(
            gpu_layers=_layers(choices["gpu_layers"]),
            tensor_split=_split(choices["tensor_split"], devices),
            overrides=_overrides(choices, devices),
            kv_offload=not choices["no_kv_offload"],
            draft=kind,
            projector_bytes=weights + work,
            projector_on_host=choices["no_mmproj_offload"],
            projector_inputs=inputs,
            projector_error=work // 4,
        ),
        draft,
    )


def _build(text: str | None) -> int | None:
    if text is None:
        return None
    number = text.lower().removeprefix("b")
    if not number.isascii() or not number.isdigit() or len(number) > 6:
        raise InputError("--build is the number of a llama.cpp build, such as b5898")
    return int(number)


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


def _overrides(choices: dict[str, Any], devices: int) -> tuple[tuple[str, int], ...]:
    found = []
    # llama.cpp divides a list at its commas, whatever the expressions hold.
    for text in (piece for one in choices["override"] or () for piece in one.split(",")):
        pattern, equals, target = text.rpartition("=")
        if not equals or not pattern or len(pattern) > 500:
            raise InputError("an override is written like 'ffn_.*_exps=cpu', several of them divided by commas")
        found.append((pattern, _target(target.strip().lower(), devices)))
    if choices["cpu_moe"]:
        found.append((r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", -1))
    found += [(rf"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps", -1) for layer in range(choices["n_cpu_moe"])]
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
    from probes.model_file.context import CACHE_TYPES  # noqa: PLC0415 - not needed for --help

    order = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in order:
        if name not in known and not (name.startswith("kv-") and name[3:] in CACHE_TYPES):
            raise InputError(
                f"there is no lever {name[:40]!r}; the levers are {', '.join(known)}, and kv- with any other cache type"
            )
    if not order:
        raise InputError(f"--levers is a list of levers: {', '.join(known)}")
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


def _folder(path: str, given: dict[str, Any], choices: dict[str, Any], *, as_json: bool) -> Iterator[str]:
    from diagnose.estimate_folder import FolderModel  # noqa: PLC0415

    yield from _pool(FolderModel.read(path), given, choices, as_json=as_json)


def _pool(folder: PoolModel, given: dict[str, Any], choices: dict[str, Any], *, as_json: bool) -> Iterator[str]:
    from diagnose.estimate_folder import bad_folder_line, folder_document, passed_over  # noqa: PLC0415

    engine = folder.engine(choices["backend"])
    devices, host, notes = devices_for(choices["gpu"], choices["ram"], choices["margin"])
    notes.update(passed_over({name: value for name, value in choices.items() if name not in given}, engine))
    if choices["settings"] is None:
        found = folder_document(folder, given, choices["backend"], devices, host, notes)
        yield json_line(found, pretty=True) if as_json else _drawn(found)
        return
    for number, line in enumerate(_lines(choices["settings"]), start=1):
        if not line.strip():
            continue
        try:
            yield json_line(
                folder_document(folder, {**given, **_object(line)}, choices["backend"], devices, host, notes)
            )
        except InputError as error:
            sys.stderr.write(f"ctxdoctor: line {number} of the settings: {error}\n")
            yield json_line(bad_folder_line(folder, number, str(error)))


def _drawn(found: Document) -> str:
    """Draw the document for people."""
    from io import StringIO  # noqa: PLC0415

    from rich.console import Console  # noqa: PLC0415 - only for people

    wide = sys.stdout.isatty()
    console = Console(
        file=StringIO(),
        force_terminal=wide and "NO_COLOR" not in os.environ,
        width=None if wide else 118,
        highlight=False,
    )
    with console.capture() as capture:
        draw(console, found)
    return capture.get().rstrip("\n")


_FIRST = ("model.file", "draft.file", "model.weights_bytes")
"""What decides whether the rest can be relied on comes before it."""


def draw(console: Any, found: Document) -> None:
    """Draw one estimate on a rich console: model, sum of each device, caches, longest window, levers."""
    from rich.markup import escape  # noqa: PLC0415

    from diagnose.language import spoken  # noqa: PLC0415

    for path in _FIRST:
        if path in found["unknown"]:
            console.print(
                str(words("Careful: {why}", why=escape(spoken(found["unknown"][path]["note"])))), style="bold red"
            )
    model = found["model"]
    name = os.path.basename(model["path"])  # noqa: PTH119
    trained = model["trained_window"]
    console.print(
        words(
            "{model}: architecture {architecture}, trained to {trained} tokens, weights {weights}",
            model=escape(name),
            architecture=escape(model["architecture"] or "?"),
            trained=f"{trained:,}" if trained else "?",
            weights=show_size(model["weights_bytes"] or 0),
        ).__str__()
    )
    if found["result"] == "refused":
        console.print(
            str(
                words(
                    "{engine} refuses these settings: {why}",
                    engine=escape(found["basis"]["engine"]),
                    why=escape(spoken(found["refused_because"] or "")),
                )
            )
        )
        _draw_unknown(console, found, {"kv"})
        return
    if found["result"] == "unknown":
        for path, why in found["unknown"].items():
            if path not in _FIRST:
                console.print(str(words("unknown: {path}: {why}", path=escape(path), why=escape(spoken(why["note"])))))
        return
    console.print(
        str(
            words(
                "window {ctx} tokens ({slot} a slot, {slots} slots), cache {k}/{v}",
                ctx=f"{found['ctx_in_force'] or 0:,}",
                slot=f"{found['ctx_per_slot'] or 0:,}",
                slots=found["settings"]["parallel"],
                k=escape(found["settings"]["kv_k"]),
                v=escape(found["settings"]["kv_v"]),
            )
        )
    )
    _draw_devices(console, found)
    _draw_parts(console, found)
    _draw_windows(console, found)
    _draw_unknown(console, found)


def _draw_unknown(console: Any, found: Document, said: Iterable[str] = ()) -> None:
    from rich.markup import escape  # noqa: PLC0415

    from diagnose.language import spoken  # noqa: PLC0415

    for path, why in found["unknown"].items():
        if path not in _FIRST and path not in said:
            first, _, rest = path.partition(".")
            if first == "devices" and rest:
                # a key of the JSON says nothing to people, a device's name does
                path = _place(found, rest.partition(".")[0])  # noqa: PLW2901
            console.print(
                str(
                    words("not counted or not known: {path}: {why}", path=escape(path), why=escape(spoken(why["note"])))
                ),
                style="dim",
            )


def _table(*columns: str) -> Any:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def _draw_devices(console: Any, found: Document) -> None:
    from rich.markup import escape  # noqa: PLC0415

    from diagnose.language import spoken  # noqa: PLC0415

    table = _table(
        str(words("device")), str(words("weights")), str(words("cache")), str(words("state")), str(words("work space")),
        str(words("other")), str(words("needs")), str(words("margin")), str(words("free")), str(words("fits")),
    )  # fmt: skip
    for device in found["devices"]:
        kind = {"unified": words("unified memory"), "host": None, "dedicated": None}[device["memory"]]
        name = escape(spoken(device["name"])) + (f" ({kind})" if kind else "")
        verdict = {True: words("yes"), False: words("no"), None: words("unknown")}[device["fits"]]
        sizes = (
            device["weights_bytes"], device["kv_bytes"], device["state_bytes"], device["compute_bytes"], device["other_bytes"], device["need_bytes"],
            device["margin_bytes"],
        )  # fmt: skip
        free = show_size(device["free_bytes"]) if device["free_bytes"] is not None else "?"
        style = "red" if device["fits"] is False else ""
        table.add_row(name, *[show_size(size) for size in sizes], free, str(verdict), style=style)
    console.print(table)
    error = found["basis"]["error"]
    if error:
        by_planner = words(
            "Caches and states are exact. Work space is what llama.cpp's own planner says, right to about {error}.",
            error=show_size(error),
        )
        modelled = words(
            "Caches and states are exact. Work space is a fitted model, right to about {error}.", error=show_size(error)
        )
        console.print(str(by_planner if found["basis"]["compute"] == "planner" else modelled), style="dim")


def _split_words(shares: Sequence[int | float], even: Words, fewer: Words | None = None) -> Words:
    """Say what a split does: one that gives a device nothing is not even, it leaves devices out."""
    return even if all(shares) else fewer if fewer is not None else words("fewer devices")


def _place(found: Document, id_: str) -> str:
    """Give what people call a device, or what else ends a window."""
    from diagnose.language import spoken  # noqa: PLC0415

    names = {device["id"]: device["name"] for device in found["devices"]}
    if id_ == "trained window":
        return str(words("the length that the model was trained to"))
    return spoken(names.get(id_, id_))


def _draw_parts(console: Any, found: Document) -> None:
    table = _table(str(words("cache")), str(words("cells")), str(words("streams")), str(words("layers")), "K", "V")
    for part in found["kv"]["parts"]:
        table.add_row(
            part["name"],
            f"{part['cells']:,}",
            str(part["streams"]),
            str(len(part["layers"])),
            show_size(part["k_bytes"]),
            show_size(part["v_bytes"]),
        )
    if found["kv"]["parts"]:
        console.print(table)


def _draw_windows(console: Any, found: Document) -> None:
    from rich.markup import escape  # noqa: PLC0415

    from diagnose.estimating import LEVER_WORDS  # noqa: PLC0415

    longest = found["longest_window"]
    short = [device for device in found["devices"] if device["fits"] is False]
    for device in short:
        spare = (device["free_bytes"] or 0) - device["need_bytes"]
        if spare >= 0:
            console.print(
                str(
                    words(
                        "{device} has the {need} that this needs; what does not fit is the safety margin of {margin} on top. "
                        "Set a smaller one with --margin: at most {spare} is left for it.",
                        device=escape(device["name"]),
                        need=show_size(device["need_bytes"]),
                        margin=show_size(device["margin_bytes"]),
                        spare=show_size(spare),
                    )
                )
            )
        elif (
            not longest["tokens"]
            and device["weights_bytes"]
            < (device["free_bytes"] or 0)
            <= device["margin_bytes"] + device["weights_bytes"]
        ):
            console.print(
                str(
                    words(
                        "The safety margin of {margin} leaves no room for the weights on {device}, which has {free}. "
                        "Set a smaller one with --margin; 0 shows what fits without one.",
                        margin=show_size(device["margin_bytes"]),
                        device=escape(device["name"]),
                        free=show_size(device["free_bytes"] or 0),
                    )
                )
            )
    if longest["tokens"] is None:
        return
    if short:
        first = max(
            short, key=lambda device: device["need_bytes"] + device["margin_bytes"] - (device["free_bytes"] or 0)
        )
        lacking = first["need_bytes"] + first["margin_bytes"] - (first["free_bytes"] or 0)
        console.print(
            str(words("Fills first: {device}, by {size}.", device=escape(first["name"]), size=show_size(lacking)))
        )
    console.print(
        str(
            words(
                "Longest window that fits: {tokens} tokens; limited by: {limit}",
                tokens=f"{longest['tokens']:,}",
                limit=escape(_place(found, longest["limited_by"] or "?")),
            )
        )
    )
    if len(found["levers"]) > 1:
        table = _table(
            str(words("lever")), str(words("window")), str(words("gain")), str(words("weights")), str(words("context"))
        )
        for lever in found["levers"]:
            name = str(LEVER_WORDS.get(lever["lever"], lever["lever"]))
            if lever["tensor_split"]:
                name = str(_split_words(lever["tensor_split"], words("split evened out")))
                name += f" (--tensor-split {','.join(map(str, lever['tensor_split']))})"
            gain = f"{lever['gain']:+,}" if lever["lever"] != "baseline" else ""
            table.add_row(
                name, f"{lever['tokens']:,}", gain, show_size(lever["weights_bytes"]), show_size(lever["context_bytes"])
            )
        console.print(table)
    rows = [row for row in found["by_cache_type"] if row["tokens"] is not None]
    if rows:
        console.print(
            str(words("By cache type alone: {list}", list=", ".join(f"{row['kv']} {row['tokens']:,}" for row in rows)))
        )
    if found["even_split"]:
        shares = ",".join(map(str, found["even_split"]))
        console.print(
            str(
                _split_words(
                    found["even_split"],
                    words("Evened out at this window: --tensor-split {split}", split=shares),
                    words("At this window fewer devices are enough: --tensor-split {split}", split=shares),
                )
            )
        )
