# ruff: noqa: E501 - a pattern is read best on one line
"""A bug report or forum text, pasted: log blocks become events, commands and variables settings, prose answers.

Everything that is taken from it has the report as its source, except the lines of a log block, which a program wrote. Line numbers are those
of the pasted text.
"""

from __future__ import annotations

import io
import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from probes.backends.commands import detect_backend, parse_command, parse_modelfile, split_command
from probes.evidence.answers import Answer, Mechanisms
from probes.evidence.errors import BadFileError
from probes.evidence.events import LogEvent
from probes.evidence.records import Evidence, Payload, Source, found
from probes.evidence.subject import BackendIdentity, Configuration, Setting

from .fold import Folder
from .frame import clean, time_and_level
from .likeness import likeness
from .mechanisms import mechanisms
from .prose import is_negated, is_remedy, read_counts, read_length, read_prose, sentences, without_questions
from .reader import collect_log, tail_events
from .sayings import Value
from .source import open_source

Kind = Literal["case", "answers", "log", "report"]

MOST_COMMANDS = 20
LONGEST_TITLE = 240
LONGEST_COMMAND = 6000
LONGEST_LINE = 20_000
LONGEST_WORD = 600
LONGEST_BLANK = 200
SHORT_TEXT = 12
"""Of so many rows a text that has a person's row is what they pasted together, and no log."""
MAX_REPORT = 4 << 20
"""A pasted report is text of people: what is longer is a log."""

_FENCE = re.compile(r"^\s{0,8}(?:>\s*)*(`{3,}|~{3,})\s*([\w+-]*)")
_TAG = re.compile(r"</?(?:details|summary|pre|code|br|p|b|i|div|span|sub|sup|kbd|img|a)\b[^>]{0,300}>", re.IGNORECASE)
_PROGRAMS = r"(?:llama-(?:server|cli|bench|perplexity|swap)|ollama|vllm|sglang|koboldcpp\w*|lms|mlx_lm(?:\.\w+)?|python3?|docker|podman|llama_cpp|tabbyapi|server)"
_PROGRAM = re.compile(rf"{_PROGRAMS}(?:\.exe|\.py)?[\"']?\s")
_COMMAND = re.compile(
    rf"(?:^|[\s\"'`(:$>])((?:[A-Z][A-Z0-9_]{{0,60}}=\S{{1,200}}\s{{1,4}}){{0,12}}(?:(?:sudo|nohup|env)\s{{1,4}}){{0,3}}(?:[\w.~/\\:$-]{{0,200}}[/\\])?{_PROGRAMS}(?:\.exe|\.py)?[\"']?\s{{1,4}}(?:(?:serve|run|server|load|start|-m|--?[a-zA-Z])\S*)[^\n]*)"
)
_VARIABLE = re.compile(
    r"\b((?:OLLAMA|LLAMA_ARG|GGML|CUDA|HSA|HIP|ROCR|VLLM|SGLANG|PYTORCH|MLX|LLAMA)_(?!ASSERT\b)[A-Z0-9_]{1,60})[\"'`*]{0,3}[^\S\n]{0,4}[=:][\"'`*]{0,3}[^\S\n]{0,4}[\"'`*]{0,3}(?![A-Z][A-Z0-9_]{3,60}:)(?=\S{0,40}\w)([^\s\"'`,;)*]{1,400})"
)
_SETTINGS: tuple[tuple[str, str], ...] = (
    (
        "ctx",
        r"num_ctx|n_ctx|ctx[-_ ]size|contextsize|context[-_ ](?:size|length|window)|max[-_]model[-_]len|max_seq_len|context_length|n-ctx|ctx",
    ),
    ("parallel", r"num_parallel|n_parallel|parallel|max[-_]num[-_]seqs"),
    ("batch", r"n_batch|batch[-_]size|blasbatchsize|batch|max[-_]num[-_]batched[-_]tokens"),
    ("ubatch", r"n_ubatch|ubatch[-_]size|ubatch|chunked[-_]prefill[-_]size|prefill[-_]step[-_]size"),
    ("gpu_layers", r"n_gpu_layers|num_gpu|gpu[-_]layers|ngl"),
    ("kv_type", r"kv[-_ ]?(?:cache[-_ ])?(?:type|dtype|quant)|cache[-_ ]type|type_k|cache_mode|kv_type"),
    ("flash_attention", r"flash[-_ ]?att(?:n|ention)"),
    ("gpu_memory_utilization", r"gpu[-_]memory[-_]utili[sz]ation"),
    ("output_tokens", r"max[-_](?:new[-_])?tokens|num_predict|n_predict"),
    ("model_path", r"model(?:[-_ ]name|[-_ ]path)?"),
)
_SETTING = {
    name: re.compile(
        rf"(?<![\w-])-{{0,2}}(?:{pattern})[\"'`]?\s*(?:=|:|\s\|\s)\s*[\"'`]?([^\n\"'`|]{{1,80}})", re.IGNORECASE
    )
    for name, pattern in _SETTINGS
}
_LOG_SHAPE = re.compile(
    r"^\s*(?:\[[\d:. T-]{5,}\]|\S{0,40}\s\|\s|(?:slot|srv|que|main|common|ggml\w*|llama\w*|llm_load\w*|load_tensors|print_info|sched_reserve|graph_reserve|clip\w*|set\w*|CUDA error|ROCm error|RuntimeError|torch\.|Traceback|panic:|INFO|WARN(?:ING)?|ERROR|DEBUG|warning|error)\b[^.!?]{0,200}[:=|]|\s*(?:Device \d+:|current device:|CtxLimit:)|time=\S+ level=|\(\w+ pid=\d+\)|(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d |[A-Za-z_]\w{3,40}: \S)"
)
_COPIES = re.compile(
    r"pipeline parallelism\b[^.\n]{0,40}?\b(?:with |of )?(two|three|four|five|six|eight|[2-8]) copies", re.IGNORECASE
)
_HOW_MANY = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, **{str(n): n for n in range(2, 9)}}
_SENTENCE_WORDS = re.compile(
    r"\b(?:the|and|with|is|was|when|my|I|it|but|if|of|a|then|that|so|on|in|to|are|for|at|this|not|no|now|only|than|from|has|have|does)\b"
)
_SPEAKER = re.compile(
    r"\w*(?:Error|Exception|Warning)\b|(?i:error|warning|warn|fatal|panic|info|debug)\b|\[|\(|\w+_\w+[:(]|(?:slot|srv|que|main|common|sched) "
)
"""How a program begins a line that is a whole sentence."""
_MAKERS = {
    "llama.cpp": r"\bllama(?:\.cpp|-server|-cli|\.?cpp)\b", "ik_llama.cpp": r"\bik[-_]llama(?:\.cpp)?\b", "beellama.cpp": r"\bbeellama(?:\.cpp)?\b",
    "ollama": r"\bollama\b", "lm-studio": r"\blm ?studio\b|\blms\b", "mlx_lm": r"\bmlx[-_]?lm\b|\bomlx\b|\bvmlx\b|\bmlx-serve\b", "vllm": r"\bvllm\b",
    "sglang": r"\bsglang\b", "koboldcpp": r"\bkobold(?:cpp)?\b", "tabbyapi": r"\btabby(?:api)?\b|\bexllama\w*\b",
    "text-generation-webui": r"\btext-generation-webui\b|\boobabooga\b|\btextgen\b|\bOutput generated in [\d.]+ seconds|\bexllama(?:v[23])?_hf\b", "llama-cpp-python": r"\bllama[-_]cpp[-_]python\b",
    "llama-swap": r"\bllama-swap\b", "llama-manager": r"\bllama-manager\b",
}  # fmt: skip


@dataclass(slots=True)
class _Block:
    """A piece of the text: fenced (code) or not, and the number of its first line."""

    text: str
    line: int
    fenced: bool
    language: str = ""


def split_blocks(text: str) -> list[_Block]:
    """Split Markdown into fenced code and the rest; an unclosed fence ends with the text."""
    blocks: list[_Block] = []
    lines: list[str] = []
    first, fence, language = 1, "", ""

    def close(next_line: int) -> None:
        nonlocal lines, first
        if any(line.strip() for line in lines):
            blocks.append(_Block("\n".join(lines), first, bool(fence), language))
        lines, first = [], next_line

    for number, line in enumerate(text.split("\n"), start=1):
        match = _FENCE.match(line)
        if match and (not fence or (match[1].startswith(fence) and not match[2])):
            close(number + 1)
            fence, language = ("", "") if fence else (match[1], match[2].lower())
            continue
        lines.append(line)
    close(0)
    return blocks


def read_pasted(text: str, name: str = "report") -> list[Evidence]:
    """Read a pasted report into evidence: log events, settings, which server, answers. Never raises on bad text."""
    text = clean_report(text)
    evidence: list[Evidence] = []
    prose: list[str] = []
    folder = Folder(2000)
    log_lines: list[tuple[int, str]] = []
    code: list[str] = []
    wished = False
    for block in split_blocks(text):
        rows = block.text.split("\n")
        commands = _commands(block.text)
        if block.fenced:
            code.append(block.text)
            log_lines.extend(
                (block.line + offset, row)
                for offset, row in enumerate(rows)
                if not commands or len(rows) > 12 or not any(command[:40] in row for command in commands)
            )
            continue
        for offset, row in enumerate(rows):
            plain = _QUOTED.sub("", _TAG.sub(" ", row))
            heading = _HEADING.match(plain)
            if heading is not None:
                # A form's heading is no sentence of the user, and what was expected did not happen.
                title = next(part for part in heading.groups() if part is not None)
                wished = _WISHED.search(title) is not None
                prose.extend(("" if _FORM.search(title) else title, ""))
                continue
            if wished or _UNTICKED.match(plain):
                continue
            if is_log_line(plain) or _within_log(rows, offset):
                log_lines.append((block.line + offset, plain.strip().strip("`")))
                prose.append("")
            else:
                prose.append(_EMPHASIS.sub("", plain))
    running = "\n".join(prose)
    for event in _log_events(log_lines, name):
        folder.add(event)
    evidence.extend(
        found(event, source="log", origin=f"{name}, line {event.line}")
        for event in folder.events()
        if event.event != "http" or ((event.status or 0) >= _ENDED_BADLY and event.seconds)
    )
    seen_lines = {number for number, _row in log_lines}
    quoted = _prose_events(text, seen_lines, name)
    headings = {number for number, row in enumerate(text.split("\n"), start=1) if _HEADING.match(row)}
    shown_below = {event.event for event in (*folder.events(), *quoted) if event.line not in headings}
    evidence.extend(
        found(event, source="report", origin=f"{name}, line {event.line}")
        for event in quoted
        # a title that repeats what a line below it shows is no line of a log
        if not (event.line in headings and event.event in shown_below)
    )
    copies = _COPIES.search(running[:200_000])
    if copies is not None and not any(event.event == "pipeline-copies" for event in folder.events()):
        told_copies = LogEvent(
            event="pipeline-copies", line=0, text=copies[0][:200], count=_HOW_MANY.get(copies[1].lower())
        )
        evidence.append(found(told_copies, source="report", origin=name))
    backend = _backend(text)
    evidence.extend(_settings(text, "\n".join(code), running, name))
    loose = _loose_flags(running, backend.name if backend is not None else None)
    if loose is not None:
        evidence.append(found(loose, source="report", origin=f"{name}, flags"))
    if backend is not None:
        evidence.append(found(backend, source="report", origin=name))
        choice = backend.name
        if choice == "mlx_lm" and re.search(r"\b(?:omlx|vmlx|mlx-serve|mlx-engine)\b", text, re.IGNORECASE):
            choice = "mlx-other"
        evidence.append(found(Answer(question="backend", value=choice), source="report", origin=name))
    answers = {**read_counts("\n".join(code)), **read_prose(_without_code(running))}
    if answers.get("error_kind") == "internal" and any(
        (one.data or {}).get("event") in _NAMED_FAILURES for one in evidence if one.kind == LogEvent.kind
    ):
        # a program's own words for a failure say more than that something broke inside
        del answers["error_kind"]
    _correct(answers, [*folder.events(), *quoted], text)
    if "symptom" not in answers:
        shown = next((_SHOWS[event.event] for event in folder.events() if event.event in _SHOWS), None)
        if shown is None and _NOT_LOADED.search("\n".join(code)):
            shown = "immediate-oom"
        if shown is not None:
            answers["symptom"] = shown
    evidence.extend(
        found(Answer(question=question, value=value), source="report", origin=name)
        for question, value in answers.items()
    )
    parts = sentences(_without_code(running))
    on_topic = bool(folder.events() or quoted or {"symptom", "error_kind"} & answers.keys())
    named, like = (
        mechanisms(_title(text), parts),
        likeness(_title(text), parts, backend.name if backend is not None else None, on_topic=on_topic),
    )
    if named or like:
        evidence.append(found(Mechanisms(named=named, like=like), source="report", origin=name))
    return evidence


def _correct(answers: dict[str, Value], events: list[LogEvent], text: str) -> None:
    """Take out answers that are read from what a program said of itself, or that say nothing: its numbers mean what they mean there."""
    if any(event.event == "alloc-failed" and event.free_bytes is not None for event in events):
        answers.pop("room_left", None)
    refusals = {event.limit for event in events if event.event == "refused" and event.limit}
    if answers.get("window_asked") in refusals:
        # what was refused is the window in force, whatever was asked for
        del answers["window_asked"]
    if answers.get("other_engine") == "works" and not events and "symptom" not in answers:
        servers = {name for name, pattern in _MAKERS.items() if re.search(pattern, text[:200_000], re.IGNORECASE)}
        if len(servers) < 2 and not re.search(r"\b(?:an?other|different|elsewhere|others?)\b", text, re.IGNORECASE):
            # the one server that is named is no other one
            del answers["other_engine"]
    cut = _CUT_TO.search(text)
    if cut is not None:
        length = read_length(cut["n"] or cut["n2"], cut["k"] or cut["k2"])
        if length is not None and length >= 256 and "window_asked" not in answers:
            # beside a window that was asked for it is another setting, and does not say that the first one was not taken
            answers.setdefault("window_shown", length)


_CUT_TO = re.compile(
    r"\btruncation[-_ ]length[\"'`*]{0,3}(?:\s{1,3}(?:is|was|of|at|to|set|still|stands?|being|the|default)){0,4}\s{0,4}[=:(|]{0,2}\s{0,4}[\"'`*]{0,3}(?P<n>\d[\d,_]{0,9})\s?(?P<k>[kK])?\b"
    r"|\btruncate (?:the )?prompt (?:up )?to (?:this|that) length[\"'`*]{0,3}(?:\s{1,3}(?:is|was|of|at|to|set)){0,3}\s{0,4}[=:(|]{0,2}\s{0,4}[\"'`*]{0,3}(?P<n2>\d[\d,_]{0,9})\s?(?P<k2>[kK])?\b",
    re.IGNORECASE,
)
"""text-generation-webui's setting: to so many tokens it cuts a prompt, whatever window the model was loaded with."""


def _title(text: str) -> str:
    """Give the title of a report: its first heading or first line, where that is short and no form's heading; else nothing."""
    first = next((line.strip() for line in text.split("\n", 20) if line.strip()), "")
    heading = re.match(r"#{1,3}\s+(.+)", first)
    if heading is not None:
        return "" if _FORM.search(heading[1]) or _WISHED.search(heading[1]) else heading[1][:LONGEST_TITLE]
    return (
        first if len(first) <= LONGEST_TITLE and not first.endswith((".", ":", "!")) and not is_log_line(first) else ""
    )


_ENDED_BADLY = 499
"""From this status on a request came to nothing: how long it took says why."""
_NAMED_FAILURES = frozenset(
    ["refused", "alloc-failed", "pool-full", "device-lost", "watchdog", "kernel-error", "oom-killer", "load-failed"]
)
_NOT_LOADED = re.compile(r"(?:failed to|unable to|could not|error) load(?:ing)? (?:the )?model", re.IGNORECASE)
_SHOWS = {
    "refused": "fixed-length-error", "truncated": "forgetting", "context-shift": "forgetting", "corrupt-output": "forgetting",
    "full-reprocess": "slow-long-context", "spill": "slow-long-context", "alloc-failed": "immediate-oom", "load-failed": "immediate-oom",
    "device-lost": "fixed-length-error", "watchdog": "fixed-length-error", "kernel-error": "fixed-length-error", "decode-failed": "fixed-length-error",
    "oom-killer": "flaky", "pool-full": "flaky",
}  # fmt: skip
"""What is wrong, where nobody says it and the lines of a log show it."""


_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.{1,200}?)\s*#*\s*$|^\s{0,3}\*\*([^*\n]{1,80})\*\*:?\s*$")
_WISHED = re.compile(
    r"^cpus?\W*$|^processors?\W*$|expected|proposed|suggest\w*|feature request|solution you.d like|prerequisites|checklist|before (?:submitting|you)|existing issue|기대|예상 ?(?:동작|결과)",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"^(?:what (?:is|was) (?:the issue|happening)|what happened|describe the (?:bug|issue|problem)|(?:steps )?to reproduce|steps|reproduc\w+|environment|current behaviou?r"
    r"|actual behaviou?r|problem(?: description)?.{0,40}|(?:relevant )?log\w*(?: output)?|os|operating systems?|gpus?|cpus?|hardware|models?|name and version|versions?|\w+ version|ggml backends"
    r"|first bad commit|additional (?:context|information)|screenshots?|system info\w*|how would you.{0,60}|your current environment|workaround|is there an existing.{0,40}|title)\W*$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"^\s{0,3}>(?: ?>)?[^\S\n](?!>)")
"""How Markdown and mail mark what is quoted: a log's line behind it is a log's line."""
_EMPHASIS = re.compile(r"(?<!\*)\*\*(?!\*)")
"""Markdown's bold: nothing that is said."""
_UNTICKED = re.compile(r"^\s{0,8}[-*] \[[ xX]\] ")
"""A form's boxes, ticked or not, say nothing about the trouble."""


def clean_report(text: str) -> str:
    """Take terminal codes and carriage returns out, and cut what is too long."""
    text = text[:MAX_REPORT].replace("\r\n", "\n").replace("\r", "\n")
    return bounded(clean(text))


def bounded(text: str) -> str:
    """Cut lines, words and runs of blanks that no person and no program writes, so that every pattern has an end soon. Lines keep their numbers."""
    text = _BLANKS.sub(" " * LONGEST_BLANK, text)
    text = _LONG_WORD.sub(lambda word: word[0][:LONGEST_WORD], text)
    if len(text) > LONGEST_LINE:
        text = "\n".join(line[:LONGEST_LINE] for line in text.split("\n"))
    return text


_BLANKS = re.compile(rf"[^\S\n]{{{LONGEST_BLANK + 1},}}")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def is_log_line(line: str) -> bool:
    """Say whether a line outside any fence looks like a program's output rather than a person's sentence."""
    stripped = line.strip()
    if not stripped or stripped.startswith(("#", "- [", "* [", "|---", "<!--")):
        return False
    if stripped.startswith(("{", "[{")) and stripped.endswith(("}", "]")):
        return True
    time, level = time_and_level(stripped)
    if time is not None and (level is not None or len(stripped) > len(time) + 8):
        return True
    plain_words = len(_SENTENCE_WORDS.findall(stripped[:400]))
    spoken = plain_words >= 5 or (plain_words >= 3 and (stripped.endswith((".", "!", "?")) or ". " in stripped))
    if spoken and not _SPEAKER.match(stripped):
        return False
    return bool(_LOG_SHAPE.match(stripped)) and not stripped.startswith(
        ("Note:", "Edit:", "Update:", "Version:", "Model:", "System:")
    )


def _within_log(rows: list[str], offset: int) -> bool:
    """Say whether a line is the rest of a log's line that was broken when it was pasted: log lines right before and after it, and no sentence."""
    if not 0 < offset < len(rows) - 1:
        return False
    before, line, after = rows[offset - 1 : offset + 2]
    words = len(_SENTENCE_WORDS.findall(line[:400]))
    spoken = words >= 5 or (words >= 2 and line.rstrip().endswith((".", "!", "?", ":")))
    return len(line.strip()) > 0 and not spoken and is_log_line(before) and is_log_line(after)


def _log_events(rows: list[tuple[int, str]], name: str) -> list[LogEvent]:
    """Read log lines that stand apart in the text, keeping their numbers."""
    if not rows:
        return []
    text = "\n".join(row for _number, row in rows)
    numbers = [number for number, row in rows for _part in range(row.count("\n") + 1)]

    def place(line: int) -> int:
        return numbers[line - 1] if 0 < line <= len(numbers) else line

    events, _summary = collect_log(io.BytesIO(text.encode("utf-8", "replace")), name, max_events=2000)
    return [
        event.model_copy(
            update={
                "line": place(event.line),
                "last_line": place(event.last_line) if event.last_line else None,
                "further_lines": tuple(place(number) for number in event.further_lines),
            }
        )
        for event in events
    ]


_TELLING = frozenset(
    [
        "alloc-failed", "load-failed", "decode-failed", "kernel-error", "device-lost", "watchdog", "oom-killer", "refused", "truncated",
        "pool-full", "hardware", "full-reprocess", "config-ignored", "window-capped", "corrupt-output", "pipeline-copies", "layers-offloaded",
        "placement", "reply", "context-shift", "flash-attention", "memory-use", "kv-cache", "buffer", "spill",
    ]
)  # fmt: skip


def _prose_events(text: str, seen: set[int], name: str) -> list[LogEvent]:
    """Read what a person quotes in a sentence: an error's own words, a status line. Only what one program's rule knows."""
    rows = ["" if number in seen else row[:2000] for number, row in enumerate(text.split("\n"), start=1)]
    events = [event for event in tail_events("\n".join(rows), name) if _tells(event)]
    told = {line for event in events for line in (event.line, event.last_line or 0, *event.further_lines)}
    kept = "\n".join(rows)[:MOST_QUOTED]
    for match in _QUOTATION.finditer(kept):
        inside = next(part for part in match.groups() if part is not None)
        first = kept.count("\n", 0, match.start()) + 1
        if told.isdisjoint(range(first, first + inside.count("\n") + 1)):
            # its own words alone: the sentence around them hides them from the rules, or a line's end cuts them
            events.extend(
                event.model_copy(update={"line": first, "last_line": None, "further_lines": ()})
                for event in tail_events(" ".join(inside.split()), name)
                if _tells(event)
            )
    return events[:200]


MOST_QUOTED = 100_000
_QUOTATION = re.compile(
    r"[\"](?=\S)((?:[^\"\n]|\n(?!\s*\n)){16,600})[\"]|[\u201c\u201e](?=\S)((?:[^\u201c-\u201e\n]|\n(?!\s*\n)){16,600})[\u201c\u201d]"
    r"|\u00ab\s?((?:[^\u00ab\u00bb\n]|\n(?!\s*\n)){16,600})\u00bb|`(?=\S)((?:[^`\n]|\n(?!\s*\n)){16,600})`|(?<!\w)'(?=\S)((?:[^'\n]|\n(?!\s*\n)){16,600})'(?!\w)"
)
"""What somebody puts between quotation marks, also over a line's end."""


def _tells(event: LogEvent) -> bool:
    return event.event in _TELLING and event.dialect not in {"generic", "answers"}


def _commands(text: str) -> list[str]:
    found_commands: list[str] = []
    for match in (match for line in _joined(text) for match in _COMMAND.finditer(line)):
        command = match[1].strip().rstrip("`'\")")
        words = split_command(command)
        if len(words) > 1 and detect_backend(words) is not None and command not in found_commands:
            found_commands.append(command)
            if len(found_commands) == MOST_COMMANDS:
                break
    return found_commands


_WORKS = re.compile(
    r"\b(?:works?|worked|(?:is|was|runs?) (?:fine|ok|okay|stable)|no (?:problems?|issues?|crash\w*|errors?)|run it this way|workaround|succeeds?|loads? fine|good run|control)\b",
    re.IGNORECASE,
)
_WORKS_NOT = re.compile(
    r"\b(?:not|n.t|never|no longer|used to|until|fails?|failed|crash\w*(?! with)|error)\b", re.IGNORECASE
)


def _told_to_work(text: str, command: str) -> bool:
    """Say whether a later command is the one that works: its settings are not those that it fails with."""
    at = text.rfind(command[:60])
    if at < 0:
        return False
    before = [line for line in text[max(0, at - 300) : at].split("\n") if len(line.strip("`~ ")) > 6]
    if not before:
        return False
    last = re.split(r"(?<=[.!?])\s", before[-1])[-1]
    return _WORKS.search(last) is not None and _WORKS_NOT.search(last.split(",")[-1]) is None


_MORE_FLAGS = re.compile(r"\s{0,40}--?[A-Za-z][\w-]{0,60}(?:[\s=]|$)")


def _joined(text: str) -> list[str]:
    """Give the lines that may hold a command, continued ones joined and cut."""
    lines: list[str] = []
    held = ""
    goes_on = False
    for line in text.split("\n"):
        part = line.rstrip()
        if goes_on and not held and len(lines[-1]) < LONGEST_COMMAND and _MORE_FLAGS.match(part):
            # Flags on lines of their own belong to the command above, with or without a mark at the line's end.
            lines[-1] = f"{lines[-1]} {part.strip()}"[:LONGEST_COMMAND]
            continue
        if part.endswith(("\\", "^", " `")) and len(held) < LONGEST_COMMAND:
            held += part[:-1].strip()[:LONGEST_COMMAND] + " "
            continue
        whole = (held + (part.strip() if held else part))[:LONGEST_COMMAND]
        held = ""
        goes_on = _PROGRAM.search(f"{whole} ") is not None
        if goes_on:
            lines.append(whole)
    if held and _PROGRAM.search(held):
        lines.append(held[:LONGEST_COMMAND])
    return lines[:400]


def _settings(text: str, code: str, prose: str, name: str) -> list[Evidence]:
    evidence: list[Evidence] = []
    for number, command in enumerate(_commands(text)):
        if number and _told_to_work(text, command):
            continue
        configuration = parse_command(split_command(command), source="report")
        if configuration.settings:
            evidence.append(found(configuration, source="report", origin=f"{name}, command"))
    told = " \n".join(part for part in sentences(prose) if not is_remedy(part))
    variables = {match[1]: match[2][:400] for match in list(_VARIABLE.finditer(f"{code}\n{told}"))[:200]}
    if variables:
        backend = next(
            (
                name
                for start, name in (("OLLAMA_", "ollama"), ("LLAMA_ARG_", "llama.cpp"))
                if any(key.startswith(start) for key in variables)
            ),
            None,
        )
        configuration = parse_command([], variables, backend, source="report")
        if configuration.settings:
            evidence.append(found(configuration, source="report", origin=f"{name}, environment"))
    if "contextsize=" in text:
        from probes.backends.settings_files import read_printed_options  # noqa: PLC0415 - few reports hold such a line

        printed = read_printed_options(text)
        if printed is not None and printed.settings:
            settings = {key: one.model_copy(update={"source": "report"}) for key, one in printed.settings.items()}
            evidence.append(
                found(
                    printed.model_copy(update={"settings": settings}),
                    source="report",
                    origin=f"{name}, printed options",
                )
            )
    for words in _listed_commands(code):
        backend = detect_backend(words) or _flags_backend({word.split("=", 1)[0] for word in words}) or "llama.cpp"
        configuration = parse_command(words, None, backend, source="report")
        if configuration.settings:
            evidence.append(found(configuration, source="report", origin=f"{name}, command list"))
    if re.search(r"^[^\S\n]*PARAMETER[^\S\n]+\w+[^\S\n]+\S", text, re.MULTILINE):
        modelfile = "\n".join(line for line in text.split("\n") if re.match(r"\s*(?:PARAMETER|FROM)\s", line))
        evidence.append(
            found(parse_modelfile(modelfile, source="report"), source="report", origin=f"{name}, Modelfile")
        )
    settings = _named_settings(
        "\n".join(row for row in prose.split("\n") if len(row) > 2000 or not is_remedy(row)) + f"\n{code}"
    )
    if not any("kv_type_k" in (one.data or {}).get("settings", {}) for one in evidence):
        settings = {**_cache_told(without_questions(prose[:_MOST_TOLD])), **settings}
    if settings:
        evidence.append(found(Configuration(settings=settings), source="report", origin=f"{name}, settings"))
    return evidence


_MOST_TOLD = 40_000
_CACHE_TYPE = (
    r"(?P<type>[fF]16|[bB][fF]16|[fF][pP]16|[qQ][458]_[01]|[iI][qQ]4_[nN][lL]|[fF][pP]8|[iI][nN][tT]8|turbo\d)"
)
_CACHE_WORD = r"(?:[kK][vV](?:[- ]?[cC]ache)?|[kK]/[vV](?:[- ]?[cC]ache)?|[cC]ontext [cC]ache)"
_CACHE_TOLD = (
    re.compile(rf"\b{_CACHE_TYPE}[- ](?:\w+[- ])?(?:(?:for|on|in) (?:the |both )?)?{_CACHE_WORD}\b"),
    re.compile(
        rf"\b{_CACHE_WORD}(?: types?| quanti[sz]ation| quant)?(?: (?:is|was|set|quanti[sz]ed|stored|kept|as|at|in|to|of|with))* {_CACHE_TYPE}\b"
    ),
)


def _cache_told(prose: str) -> dict[str, Setting]:
    """Read the type of the KV cache where it is told in a sentence, and one alone."""
    matches = [
        match
        for pattern in _CACHE_TOLD
        for match in pattern.finditer(prose)
        if not is_negated(near := prose[max(0, match.start() - 80) : match.start()], len(near))
    ]
    types = {match["type"].lower() for match in matches}
    if len(types) != 1:
        return {}
    setting = Setting(value=types.pop(), source="report", raw=" ".join(matches[0][0].split())[:200])
    return {"kv_type_k": setting, "kv_type_v": setting}


_FLAG = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]{0,40})(?:(?:=| {1,2})[\"'`]?([^\s\"'`,;()]{1,120}))?")
_FLAGS_OF = (
    ("vllm", frozenset(["--max-model-len", "--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens", "--enforce-eager", "--kv-cache-dtype"])),
    ("sglang", frozenset(["--mem-fraction-static", "--chunked-prefill-size", "--context-length", "--max-running-requests"])),
    ("koboldcpp", frozenset(["--contextsize", "--quantkv", "--gpulayers", "--usecublas", "--usevulkan", "--blasbatchsize"])),
    ("llama.cpp", frozenset(["-c", "--ctx-size", "-np", "--parallel", "-ub", "--ubatch-size", "-b", "--batch-size", "-ngl", "-ctk", "-ctv", "-fa", "-ts", "-sm",
        "--tensor-split", "--cache-type-k", "--cache-type-v", "--cache-ram", "-ot", "--n-cpu-moe", "-ncmoe", "--cpu-moe", "-md", "--model-draft", "--mmproj",
        "--flash-attn", "--no-mmap", "--mlock", "--swa-full", "--context-shift", "--kv-unified", "--fit"])),
)  # fmt: skip


_LISTED = re.compile(
    r"^\s*-\s+(?:\"([^\"\n]{0,300})\"|'([^'\n]{0,300})'|(\S[^\n]{0,300}?))\s*,?\s*$|^\s*(?:\"([^\"\n]{1,300})\"|'([^'\n]{1,300})')\s*,?\s*$"
)


def _listed_commands(code: str) -> list[list[str]]:
    """Read commands that a compose file or a JSON list spells word by word, a word a line."""
    commands: list[list[str]] = []
    words: list[str] = []
    for line in [*code.split("\n")[:20_000], ""]:
        match = _LISTED.match(line) if len(line) <= 400 else None
        if match is not None:
            word = next((part for part in match.groups() if part is not None), "")
            words.extend(word.split() if word.startswith("-") and " " in word else [word])
            continue
        if sum(word.startswith("-") for word in words) >= 2 and len(commands) < MOST_COMMANDS:
            commands.append(words[:200])
        words = []
    return commands


def _flags_backend(flags: set[str]) -> str | None:
    """Say whose flags these are: the server that has the most of them."""
    counts = [(len(flags & known), name) for name, known in _FLAGS_OF]
    most = max(counts, key=lambda one: one[0])
    return most[1] if most[0] else None


def _loose_flags(prose: str, backend: str | None) -> Configuration | None:
    """Read flags that somebody names in a sentence without the whole command: each as it is first said, what only helped left out."""
    words: list[str] = []
    seen: set[str] = set()
    for part in sentences(prose):
        if "-" not in part or is_remedy(part) or (_PROGRAM.search(part) and _commands(part)):
            continue
        for match in _FLAG.finditer(part):
            flag = match[1]
            if flag not in seen and any(flag in flags for _name, flags in _FLAGS_OF):
                seen.add(flag)
                words.append(flag)
                if match[2] is not None and not match[2].startswith("-"):
                    words.append(match[2].rstrip(".:?!"))
        if len(words) > 80:
            break
    if not words:
        return None
    kind = _flags_backend(seen)
    family = {"llama.cpp", "ik_llama.cpp", "beellama.cpp", "llama-cpp-python", "llama-swap", "llama-manager"}
    if kind == "llama.cpp" and backend in family:
        kind = backend
    configuration = parse_command(words, None, kind or backend or "llama.cpp", source="report")
    return configuration if configuration.settings else None


def _named_settings(text: str) -> dict[str, Setting]:
    """Read ``name: value`` and ``name = value`` as people list their settings."""
    settings: dict[str, Setting] = {}

    def put(key: str, value: object, raw: str) -> None:
        settings.setdefault(key, Setting(value=value, source="report", raw=" ".join(raw.split())[:200]))

    for line in text.split("\n")[:20_000]:
        if len(line) > 2000 or is_log_line(line):
            continue
        for key, pattern in _SETTING.items():
            match = pattern.search(line)
            if match is None:
                continue
            value, raw = match[1].strip().rstrip(",.;}"), match[0]
            if key == "kv_type":
                types = re.findall(
                    r"\b(?:f16|bf16|f32|fp16|q[4568]_[01K]|iq4_nl|q8|q4|q6|fp8\w*|int8|turbo\d\w*|kvarn\d)\b",
                    value,
                    re.IGNORECASE,
                )
                if types:
                    put("kv_type_k", types[0].lower(), raw)
                    put("kv_type_v", types[-1].lower(), raw)
            elif key == "flash_attention":
                low = value.lower()
                if re.match(r"(?:true|on|1|yes|enabled)\b", low):
                    put(key, "on", raw)
                elif re.match(r"(?:false|off|0|no|disabled)\b", low):
                    put(key, "off", raw)
            elif key == "gpu_memory_utilization":
                number = re.match(r"0?\.\d+|1\.0", value)
                if number:
                    put(key, float(number[0]), raw)
            elif key == "model_path":
                if 2 <= len(value) <= 80 and re.search(r"\d", value):
                    put(key, value, raw)
            else:
                number = re.match(r"(\d[\d,_]*(?:\.\d+)?)\s*([kKmM])?\b", value)
                length = read_length(number[1], number[2]) if number else None
                if length is not None:
                    put(key, length, raw)
    return settings


def _backend(text: str) -> BackendIdentity | None:
    """Say which server the report is about: its command, or the name that it uses most."""
    for command in _commands(text):
        backend = detect_backend(split_command(command))
        if backend is not None:
            fork = _fork_named(text) if backend == "llama.cpp" else None
            if fork is not None:
                # its program is called as llama.cpp's
                return BackendIdentity(name=fork, version=_version(text), recognised_by="its name in the report")
            return BackendIdentity(name=backend, version=_version(text), recognised_by="a command in the report")
    counts = {name: len(re.findall(pattern, text, re.IGNORECASE)) for name, pattern in _MAKERS.items()}
    counts["vllm"] += len(_VLLM_LINE.findall(text[:200_000]))
    # A wrapper or fork names what is inside it too: the outer name wins.
    for outer in (
        "ik_llama.cpp",
        "beellama.cpp",
        "llama-cpp-python",
        "koboldcpp",
        "text-generation-webui",
        "ollama",
        "lm-studio",
    ):
        if counts.get(outer):
            counts["llama.cpp"] = 0
    if counts["llama-cpp-python"]:
        counts["llama.cpp"] = 0
    # The one that is named most; of two, the one that is named first.
    best = max(counts, key=lambda name: (counts[name], -_first(_MAKERS[name], text)))
    if counts[best]:
        return BackendIdentity(name=best, version=_version(text), recognised_by="its name in the report")
    return None


_VLLM_LINE = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w/.]{1,80}\.py:\d+\]|[\w/.]{1,80}\.py:\d+\])"
)
"""How vLLM begins its lines, and no other server."""
_FORKS = {"ik_llama.cpp": r"\bik[-_]llama(?:\.cpp)?\b", "beellama.cpp": r"\bbeellama(?:\.cpp)?\b"}


def _fork_named(text: str) -> str | None:
    """Say which fork of llama.cpp a report is about: the one that it names, and names more than llama.cpp itself."""
    itself = len(re.findall(r"(?<![\w-])llama\.cpp\b|\bmainline\b", text, re.IGNORECASE))
    named = {name: len(re.findall(pattern, text, re.IGNORECASE)) for name, pattern in _FORKS.items()}
    best = max(named, key=lambda name: named[name])
    return best if named[best] > itself else None


def _first(pattern: str, text: str) -> int:
    match = re.search(pattern, text, re.IGNORECASE)
    return match.start() if match else len(text)


def _version(text: str) -> str | None:
    match = re.search(
        r"\b(?:version|build|release|ver\.?|ollama|vllm|sglang|koboldcpp|lm ?studio|mlx[-_]lm)\s*[:=(]?\s*`?(v?\d+\.\d+(?:\.\d+)*(?:[-\w.]{0,20})?|b\d{3,6})\b|\b(b\d{4,6})\b",
        text[:200_000],
        re.IGNORECASE,
    )
    return (match[1] or match[2]) if match else None


def _without_code(prose: str) -> str:
    """Keep short inline code (names, numbers), drop long pieces (commands)."""
    return re.sub(r"`([^`\n]{1,200})`", lambda match: match[1] if len(match[1]) <= 40 else " ", prose)


# --- what is it ----------------------------------------------------------------------------------------------------------------------------


_TRACE = re.compile(r"\s+\S|Traceback \(most recent call last\)|(?:\w+\.)*\w*(?:Error|Exception)\b:")
"""A line of a Python traceback, or another that is indented under the line before."""


def kind_of(sample: str) -> Kind:
    """Say what a text is, from its beginning: an exported case, answers, a log, or a person's report."""
    stripped = sample.lstrip("\ufeff \t\r\n")
    if (
        stripped.startswith("{")
        and re.search(r"\"schema_version\"\s*:", stripped[:4000])
        and re.search(r"\"(?:case|evidence|verdict|records)\"\s*:", stripped)
    ):
        return "case"
    if _is_answers(stripped):
        return "answers"
    stripped = bounded(stripped)
    if _FENCE.search(stripped) or re.search(r"^\s{0,3}(?:```|~~~|#{1,4} )", stripped, re.MULTILINE):
        return "report"
    rows = [row for row in stripped.split("\n") if row.strip()][:400]
    if not rows:
        return "report"
    known = {
        event.line
        for event in tail_events("\n".join(rows))
        if event.dialect not in {"generic", "answers"} and event.event != "command"
    }
    if len(rows) <= SHORT_TEXT and any(
        _beside_a_log(clean(row), known=number in known) for number, row in enumerate(rows, start=1)
    ):
        return "report"
    log_like = sum(1 for row in rows if is_log_line(clean(row)) or row.lstrip().startswith("{"))
    if log_like * 2 >= len(rows):
        return "log"
    sentences = sum(
        1
        for row in rows
        if re.search(r"[a-z가-힣]{2}[.!?。]$", row.rstrip())
        or len(re.findall(r"\b(?:the|and|with|is|was|when|my|I)\b", row)) >= 3
    )
    # a log that ends in a traceback has more lines of that than of its own
    own = [row for row in rows if not _TRACE.match(row)]
    if log_like * 2 >= len(own) and sentences * 4 <= len(own):
        return "log"
    return "log" if len(known) * 3 >= len(rows) and sentences * 4 <= len(rows) else "report"


_PROMPT = re.compile(r"\s{0,40}(?:\([\w.-]{1,40}\)\s{0,4})?(?:[$>#%]\s{1,4}|[A-Z][A-Za-z ]{1,30}:\s{0,4})?")
"""What people put before a command: a shell's mark, or a word for it."""


_BRACKETED = re.compile(r"[\[\]<>{}=|]")


def _beside_a_log(row: str, *, known: bool) -> bool:
    """Say whether a row of a short text is what a person put beside a program's lines: the command it was started with, or a word on which server it is.

    ``known``: whether the row is one of a program's own.
    """
    time, _level = time_and_level(row)
    if time is not None or _TRACE.match(row):
        return False
    commands = _commands(row)
    if commands:
        at = row.find(commands[0][:40])
        opening = _PROMPT.match(row)
        return (opening is not None and at <= opening.end()) or not (is_log_line(row) or _BRACKETED.search(row[:at]))
    return not known and not is_log_line(row) and _names_a_server(row)


def _names_a_server(row: str) -> bool:
    return any(
        (match.start() == 0 or row[match.start() - 1] not in "/\\._-")
        for pattern in _MAKERS.values()
        for match in [re.search(pattern, row[:400], re.IGNORECASE)]
        if match is not None
        # a path's or a module's name, and the beginning of a program's line, are its own
        and row[match.end() : match.end() + 1] not in {"/", "\\", "_"}
    )


def _is_answers(text: str) -> bool:
    if len(text) > 200_000:
        return False
    if not re.search(r"^[ \t{]{0,80}\"?(?:symptom|when|changed|window_wanted)\"?\s*[:=]", text, re.MULTILINE):
        return False
    try:
        data = json.loads(text) if text.startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict)


def read_any(given: str | os.PathLike[str], name: str | None = None) -> tuple[Kind, list[Evidence]]:
    """Decide what a file (or a text) is and read it: ``log`` and ``report`` give evidence; ``case`` and ``answers`` are for the caller.

    A ``str`` that is no existing path is the text itself; ``-`` is standard input. BadFileError for a file that cannot be read.
    """
    is_path = not isinstance(given, str) or given == "-" or _exists(given)
    if not is_path:
        text = str(given)
        kind = kind_of(text[:262_144])
        if kind == "report":
            return kind, read_pasted(text, name or "report")
        return kind, _as_evidence(tail_events(text, name or "log"), name or "log") if kind == "log" else []
    source = open_source(given, name)
    pieces: list[bytes] = []
    size = 0
    for block in source.blocks():
        pieces.append(block)
        size += len(block)
        if size > MAX_REPORT:
            break
    source.close()
    data = b"".join(pieces)
    text = data.decode("utf-8", "replace")
    kind = kind_of(text[:262_144])
    if kind in {"case", "answers"}:
        return kind, []
    if kind == "report" and size <= MAX_REPORT:
        return kind, read_pasted(text, source.name)
    if str(given) == "-":
        if size > MAX_REPORT:
            raise BadFileError("a log of that size cannot be read from standard input here; give its file name")
        return "log", _as_evidence(tail_events(text, source.name), source.name)
    events, summary = collect_log(given, name)
    return "log", [*_as_evidence(events, source.name), found(summary, source="log", origin=source.name)]


def _as_evidence(events: list[LogEvent], name: str) -> list[Evidence]:
    folder = Folder(5000)
    for event in events:
        folder.add(event)
    return [_evidence(event, "log", f"{name}, line {event.line}") for event in folder.events()]


def _evidence(payload: Payload, source: Source, origin: str) -> Evidence:
    return found(payload, source=source, origin=origin)


def _exists(text: str) -> bool:
    if len(text) > 4096 or "\n" in text or "\0" in text:
        return False
    try:
        return Path(text).exists()
    except OSError:
        return False
