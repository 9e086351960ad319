"""Write the page of architectures: what each keeps in memory by the table, and how that was checked. ``python -m tests.tools.architectures [--check]``.

The page is made of the table and the two reference sets, so it names what was compared with llama.cpp and what was only read from its sources.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from probes.model_file.architectures import NEEDS_TARGET, RULES, Rule
from probes.model_file.gguf_header import read_header

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "probes" / "model_file" / "ARCHITECTURES.md"
SETS = ("kv_truth.json.xz", "kv_truth_more.json.xz")
KINDS = {
    "attention": "keys and values in every layer",
    "none": "nothing: encoders and diffusion models",
    "recurrent": "a state instead of a cache",
    "hybrid": "states in some layers, keys and values in the others",
    "hybrid-indexed": "as hybrid, with an indexer's keys beside",
    "dsa": "compressed keys and an indexer's",
    "dsa-window": "the same, with a sliding window in some layers",
    "msa": "keys and values, and an indexer's in sparse layers",
    "dsv4": "window, compressed and indexer caches, and compressors' states",
}


def compared() -> dict[str, int]:
    """Count, for each architecture, the settings that were compared byte for byte."""
    counts: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        for name in SETS:
            truth = json.loads(lzma.decompress((ROOT / "tests" / "model_file" / name).read_bytes()))
            architecture = {}
            for gguf, model in truth["models"].items():
                path.write_bytes(bytes.fromhex(model if isinstance(model, str) else model["head"]))
                architecture[gguf] = read_header(path).architecture
            for record in truth["records"]:
                if record["result"] == "ok":
                    counts[str(architecture[record["gguf"]])] += 1
    return counts


def mechanism(rule: Rule) -> str:
    """Say in words what the table knows of an architecture beside its kind."""
    parts = []
    if rule.mla:
        parts.append("compressed keys (MLA) where the file has them")
    if rule.window is not None:
        size = rule.window.fixed or rule.window.size
        parts.append("sliding window" + (f" of {size}" if size else ""))
    if rule.rollback:
        parts.append("states several deep with speculation")
    if rule.draft:
        parts.append("can run its own prediction layers")
    return "; ".join(parts)


def page() -> str:
    """Make the page."""
    counts = compared()
    sure = {name for name, count in counts.items() if count and name in RULES}
    unsure = sorted(set(RULES) - sure)
    lines = [
        "# Architectures",
        "",
        "Made by `python -m tests.tools.architectures`. What a GGUF model's `general.architecture` keeps in memory, as llama.cpp build 11434 has it.",
        "",
        (
            f"{len(RULES)} architectures are known. {len(sure)} of them were compared with what llama.cpp allocated, to the byte, at the number of settings given "
            "below (tests/model_file). The others were only read from its sources:"
        ),
        "",
        *(f"- `{name}`: {_why_unsure(name)}" for name in unsure),
        "",
        (
            "Uncertain for every architecture is the work space, which is a fitted model with its error stated; cache types of forks, which are documented sizes; "
            "and other engines than llama.cpp, whose pools are arithmetic from their documentation."
        ),
        "An architecture that is not in this table is said to be unknown, with the range that plain attention gives.",
    ]
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name, rule in sorted(RULES.items()):
        by_kind[rule.memory].append(name)
    for kind, words in KINDS.items():
        lines += [
            "",
            f"## {words[0].upper()}{words[1:]}",
            "",
            "| architecture | beside that | settings compared |",
            "| --- | --- | --- |",
        ]
        lines += [
            f"| `{name}` | {mechanism(RULES[name])} | {counts.get(name, 0) or 'none'} |" for name in by_kind[kind]
        ]
    return "\n".join(lines) + "\n"


def _why_unsure(name: str) -> str:
    if name in NEEDS_TARGET:
        return "it drafts for another model and does not start alone"
    if name == "gptj":
        return "llama.cpp knows the name and does not load it"
    return "no model of it could be made that llama.cpp runs without real weights"


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say whether it is fresh."""
    text = page()
    if "--check" in arguments:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
