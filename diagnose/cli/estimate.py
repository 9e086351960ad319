"""``ctxdoctor estimate MODEL``: what a model, window and cache type need on each device, and the longest window that fits."""

from __future__ import annotations

from typing import Annotated

import typer

from .estimate_run import carry_out


def estimate_command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="GGUF file, or a folder with config.json and safetensors")
    ],
    ctx: Annotated[
        str | None, typer.Option("--ctx", "-c", help="window in tokens: 8192, 8k, 128K; 0 or absent: the trained one")
    ] = None,
    kv: Annotated[
        str | None, typer.Option("--kv", metavar="K[/V]", help="cache type, such as q8_0 or q8_0/q4_0")
    ] = None,
    parallel: Annotated[
        str | None, typer.Option("--parallel", "-np", help="slots; absent: 4 that share one cache, as llama-server")
    ] = None,
    kv_unified: Annotated[
        bool | None, typer.Option("--kv-unified/--no-kv-unified", help="one cache for all slots")
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", "-b", help="batch size")] = None,
    ubatch: Annotated[str | None, typer.Option("--ubatch", "-ub", help="micro-batch size")] = None,
    swa_full: Annotated[bool, typer.Option("--swa-full", help="full-size cache for sliding-window layers")] = False,
    flash_attn: Annotated[str, typer.Option("--flash-attn", "-fa", help="on, off or auto")] = "auto",
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", metavar="[NAME=]SIZE", help="free memory of one device; repeat. Absent: this machine's"),
    ] = None,
    ram: Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="free memory of the host")] = None,
    tensor_split: Annotated[
        str | None, typer.Option("--tensor-split", "-ts", help="shares of the devices, such as 3,1")
    ] = None,
    gpu_layers: Annotated[
        str | None, typer.Option("--gpu-layers", "-ngl", help="layers on devices; absent: all")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--override-tensor", "-ot", metavar="REGEX=DEVICE", help="tensors to cpu, gpu0, gpu1 …; repeat"),
    ] = None,
    cpu_moe: Annotated[bool, typer.Option("--cpu-moe", help="all experts in host memory")] = False,
    n_cpu_moe: Annotated[
        int, typer.Option("--n-cpu-moe", min=0, max=4096, help="experts of the first N layers in host memory")
    ] = 0,
    no_kv_offload: Annotated[bool, typer.Option("--no-kv-offload", help="caches in host memory")] = False,
    draft: Annotated[
        str | None,
        typer.Option("--draft", metavar="FILE|mtp", help="draft model, or mtp for the model's own prediction layers"),
    ] = None,
    mmproj: Annotated[str | None, typer.Option("--mmproj", metavar="FILE", help="projector (multimodal part)")] = None,
    no_mmproj_offload: Annotated[bool, typer.Option("--no-mmproj-offload", help="projector in host memory")] = False,
    margin: Annotated[
        list[str] | None,
        typer.Option("--margin", metavar="SIZE", help="safety margin of each device; repeat for one each"),
    ] = None,
    levers: Annotated[
        str | None, typer.Option("--levers", help="order of the levers, such as kv-q8_0,micro-batch")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            help="for a folder: vllm, sglang, mlx_lm or exllama; for a GGUF file: llama.cpp, vllm or sglang",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option("--settings", metavar="FILE|-", help="JSON lines of settings, each answered on one line"),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            "--planner",
            metavar="auto|FILE",
            help="take the work space from llama.cpp's own llama-fit-params: on the path, itself, or beside a llama-server",
        ),
    ] = None,
    build: Annotated[
        str | None,
        typer.Option(
            "--build", metavar="N", help="llama.cpp's build, such as b5898: older ones reserve more work space"
        ),
    ] = None,
    output_format: Annotated[str, typer.Option("--format", help="text or json")] = "text",
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="write there instead of to standard output")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="accepted for uniformity: there is no progress here")] = False,
) -> None:
    """Say what a model needs on each device at a window, which device fills first, and what would make the window longer."""
    carry_out(
        model,
        {
            "ctx": ctx,
            "kv": kv,
            "parallel": parallel,
            "kv_unified": kv_unified,
            "batch": batch,
            "ubatch": ubatch,
            "swa_full": swa_full,
            "flash_attn": flash_attn,
            "gpu": gpu,
            "ram": ram,
            "tensor_split": tensor_split,
            "gpu_layers": gpu_layers,
            "override": override,
            "cpu_moe": cpu_moe,
            "n_cpu_moe": n_cpu_moe,
            "no_kv_offload": no_kv_offload,
            "draft": draft,
            "mmproj": mmproj,
            "no_mmproj_offload": no_mmproj_offload,
            "margin": margin,
            "levers": levers,
            "backend": backend,
            "settings": settings,
            "planner": planner,
            "build": build,
            "output_format": output_format,
            "out": out,
            "quiet": quiet,
        },
    )
