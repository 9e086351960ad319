"""The bug forms of the projects: which fields each asks for, and what of a case goes into each.

Titles are those of the forms as they stand in each project's repository, so that a person finds the field to paste into; everything else is
written here. A project without a form of its own gets neutral fields, and is said to have none.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from probes.evidence.errors import InputError
from probes.evidence.words import Words, words

from .baseline import command_line
from .escape import ROOM, Markdown, Ours, Several, code, fence, finalize, prose, sentence, visible
from .figures import SYMPTOMS, count, number, percent, plain, seconds, size

if TYPE_CHECKING:
    from .document import CaseDocument, Rung
    from .view import FactRow, Text, View

Part = Literal[
    "version", "os", "os-choice", "hardware", "gpu-vendor", "cpu-vendor", "gpu-library", "ggml-backend", "model", "environment", "python", "command",
    "steps", "describe", "describe-and-steps", "expected", "logs", "extra", "first-bad", "screenshots", "tick",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """A project's bug form: its title's beginning, and each field's title with the parts of a case that fill it."""

    id: str
    name: str
    title: str
    fields: tuple[tuple[str, tuple[Part, ...]], ...]
    own: bool = True
    note: Words | None = None


FORMS: Final[dict[str, Form]] = {
    form.id: form
    for form in (
        Form(
            "llama.cpp",
            "llama.cpp",
            "Eval bug: ",
            (
                ("Name and Version", ("version",)),
                ("Operating systems", ("os-choice",)),
                ("GGML backends", ("ggml-backend",)),
                ("Hardware", ("hardware",)),
                ("Models", ("model",)),
                ("Problem description & steps to reproduce", ("describe-and-steps",)),
                ("First Bad Commit", ("first-bad",)),
                ("Relevant log output", ("logs",)),
            ),
        ),
        Form(
            "ollama",
            "Ollama",
            "",
            (
                ("What is the issue?", ("describe-and-steps", "environment", "logs")),
                ("OS", ("os-choice",)),
                ("GPU", ("gpu-vendor",)),
                ("CPU", ("cpu-vendor",)),
                ("Ollama version", ("version",)),
            ),
        ),
        Form(
            "vllm",
            "vLLM",
            "[Bug]: ",
            (
                ("Your current environment", ("environment",)),
                ("🐛 Describe the bug", ("describe-and-steps", "logs")),
                ("Before submitting a new issue...", ("tick",)),
            ),
            note=words(
                "This project also asks for the output of its own script collect_env.py; add it to the first field."
            ),
        ),
        Form(
            "sglang",
            "SGLang",
            "[Bug] ",
            (
                ("Checklist", ("tick",)),
                ("Describe the bug", ("describe", "logs")),
                ("Reproduction", ("command", "steps")),
                ("Environment", ("environment",)),
            ),
            note=words(
                "This project also asks for the output of: python3 -m sglang.check_env; add it to the last field."
            ),
        ),
        Form(
            "mlx-lm",
            "mlx-lm",
            "",
            (
                ("Summary", ("describe",)),
                ("System", ("environment",)),
                ("Steps to reproduce", ("command", "steps")),
                ("Expected behavior", ("expected",)),
                ("Logs", ("logs",)),
            ),
            own=False,
        ),
        Form(
            "lm-studio",
            "LM Studio",
            "",
            (
                ("Which version of LM Studio?", ("version",)),
                ("Which operating system?", ("os",)),
                ("What is the bug?", ("describe", "environment")),
                ("Screenshots", ("screenshots",)),
                ("Logs", ("logs",)),
                ("To Reproduce", ("steps",)),
            ),
        ),
        Form(
            "koboldcpp",
            "KoboldCpp",
            "",
            (
                ("Describe the Issue", ("describe-and-steps",)),
                ("Additional Information:", ("environment", "command", "logs")),
            ),
        ),
        Form(
            "tabbyapi",
            "TabbyAPI",
            "[BUG]",
            (
                ("OS", ("os-choice",)),
                ("GPU Library", ("gpu-library",)),
                ("Python version", ("python",)),
                ("Describe the bug", ("describe",)),
                ("Reproduction steps", ("command", "steps")),
                ("Expected behavior", ("expected",)),
                ("Logs", ("logs",)),
                ("Additional context", ("environment", "extra")),
                ("Acknowledgements", ("tick",)),
            ),
        ),
        Form(
            "text-generation-webui",
            "text-generation-webui",
            "",
            (
                ("Describe the bug", ("describe",)),
                ("Is there an existing issue for this?", ("tick",)),
                ("Reproduction", ("command", "steps")),
                ("Screenshot", ("screenshots",)),
                ("Logs", ("logs",)),
                ("System Info", ("environment",)),
            ),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class RequestForm:
    """How a long request is sent to a server: where, under which name the prompt goes, and whether it may be given as exact token numbers."""

    port: int
    path: str
    prompt: str
    fields: tuple[str, ...]
    options: str
    exact: bool = False


_OPENAI: Final = '"max_tokens": {answer}'
REQUESTS: Final[dict[str, RequestForm]] = {
    "llama.cpp": RequestForm(
        8080, "/completion", "prompt", ("temperature",), '"n_predict": {answer}, "cache_prompt": False', exact=True
    ),
    "ollama": RequestForm(
        11434,
        "/api/generate",
        "prompt",
        ("model", "stream"),
        '"raw": True, "options": {{"num_ctx": {window}, "num_predict": {answer}, "temperature": 0}}',
    ),
    "vllm": RequestForm(8000, "/v1/completions", "prompt", ("model", "temperature"), _OPENAI, exact=True),
    "sglang": RequestForm(
        30000,
        "/generate",
        "input_ids",
        (),
        '"sampling_params": {{"max_new_tokens": {answer}, "temperature": 0}}',
        exact=True,
    ),
    "mlx-lm": RequestForm(8080, "/v1/completions", "prompt", ("model", "temperature"), _OPENAI),
    "lm-studio": RequestForm(1234, "/v1/completions", "prompt", ("model", "temperature"), _OPENAI),
    "koboldcpp": RequestForm(
        5001,
        "/api/v1/generate",
        "prompt",
        (),
        '"max_length": {answer}, "max_context_length": {window}, "temperature": 0.01',
    ),
    "tabbyapi": RequestForm(5000, "/v1/completions", "prompt", ("model", "temperature"), _OPENAI),
    "text-generation-webui": RequestForm(5000, "/v1/completions", "prompt", ("temperature",), _OPENAI),
}
_MOST_ASIDE: Final = 6
ALIASES: Final[dict[str, str]] = {
    "llamacpp": "llama.cpp",
    "llama-server": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "ik_llama.cpp": "llama.cpp",
    "ik-llama.cpp": "llama.cpp",
    "mlx_lm": "mlx-lm",
    "mlxlm": "mlx-lm",
    "mlx": "mlx-lm",
    "lmstudio": "lm-studio",
    "lm studio": "lm-studio",
    "tabby": "tabbyapi",
    "textgen": "text-generation-webui",
    "oobabooga": "text-generation-webui",
}


def form_for(name: str | None) -> Form:
    """Find the form of a project by its name. InputError where there is none."""
    key = (name or "").strip().lower()
    key = ALIASES.get(key, key)
    if key not in FORMS:
        raise InputError(f"no bug form for {name or 'an unknown server'!r}: choose --for {', '.join(FORMS)}")
    return FORMS[key]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a filled form, ready to be pasted."""

    title: str
    body: Markdown


_LEADS: Final[dict[Part, Words]] = {
    "logs": words("Log lines:"),
    "command": words("Command line of the server:"),
    "environment": words("Environment:"),
}


def filled(form: Form, view: View, document: CaseDocument) -> tuple[Field, ...]:
    """Fill each field from the case."""
    fill = _Fill(view, document, form)
    fields = []
    for title, parts in form.fields:
        # Several parts in one field are told apart by a line above each block.
        bodies = [
            f"{_LEADS[part]}\n\n{body}" if part in _LEADS and len(parts) > 1 else body
            for part in parts
            if (body := fill.part(part))
        ]
        fields.append(Field(title, Markdown("\n\n".join(bodies) or str(words("unknown")))))
    return tuple(fields)


def _named(name: str | None, version: str | None, build: str | None) -> str:
    """Give name, version and build, each said once."""
    # One number, once: b6123 and 6123 (79c1160b) are the same build; the longer one says more.
    said = [part for part in (version, build) if part]
    if len(said) == 2 and said[0].lower().lstrip("bv") in said[1]:
        said = said[1:]
    elif len(said) == 2 and said[1].lower().lstrip("bv") in said[0]:
        said = said[:1]
    said = [part for part in said if part not in (name or "")]
    return " ".join((*([name] if name else []), *said))


def _told(value: Text) -> str:
    return finalize(value) if isinstance(value, Words | Ours) else code(value)


class _Fill:
    def __init__(self, view: View, document: CaseDocument, form: Form) -> None:
        self.view, self.document, self.form = view, document, form
        rungs = [r for r in document.rungs if r.run == view.run]
        lengths = {id(r): r.planned_tokens or r.input_tokens for r in rungs}
        self.failing: Rung | None = min(
            (r for r in rungs if r.result != "passed"), key=lambda r: (lengths[id(r)], r.attempt), default=None
        )
        limit = lengths[id(self.failing)] if self.failing else None
        self.passing: Rung | None = max(
            (r for r in rungs if r.result == "passed" and (limit is None or lengths[id(r)] < limit)),
            key=lambda r: r.input_tokens,
            default=None,
        )

    def part(self, part: Part) -> str:
        return str(getattr(self, "_" + part.replace("-", "_"))())

    def _list(self, items: list[tuple[Words, object]]) -> str:
        return "\n".join(
            f"- {finalize(label)}: {self._shown(value)}" for label, value in items if value not in {None, ""}
        )

    @staticmethod
    def _shown(value: object) -> str:
        if isinstance(value, Words):
            return sentence(value)
        return str(value) if isinstance(value, Markdown | Ours | int | float) else code(value)

    def _version(self) -> str:
        backend = self.document.subject.backend
        named = _named(backend.name, backend.version, backend.build)
        if named and self._of_another():
            return sentence(
                words(
                    "unknown; the case is not of {project}, it is of {server}",
                    project=Ours(self.form.name),
                    server=named,
                )
            )
        return code(named) if named else str(words("unknown"))

    def _of_another(self) -> bool:
        return server_of_another(self.form, self.document) is not None

    def _os(self) -> str:
        return code(self.document.subject.hardware.os) if self.document.subject.hardware.os else str(words("unknown"))

    def _os_choice(self) -> str:
        text = (self.document.subject.hardware.os or "").lower()
        mac = "macOS" if self.form.id == "ollama" else "Mac"
        choices = (
            ("wsl", "WSL2" if self.form.id == "ollama" else "Windows (WSL2)"),
            ("windows", "Windows"),
            ("darwin", mac),
            ("mac", mac),
        )
        choice = next(
            (
                name
                for sign, name in (*choices, ("bsd", "BSD"), ("linux", "Linux"), ("ubuntu", "Linux"))
                if sign in text
            ),
            None,
        )
        if choice is None:
            return self._os()
        return f"{choice} ({self._os()})"

    def _vendors(self) -> list[str]:
        return list(dict.fromkeys((d.vendor or "").lower() for d in self.document.subject.hardware.devices))

    def _gpu_vendor(self) -> str:
        names = {"nvidia": "Nvidia", "amd": "AMD", "intel": "Intel", "apple": "Apple"}
        vendors = [names.get(v, "Other") for v in self._vendors()]
        head = ", ".join(dict.fromkeys(vendors)) or str(words("unknown"))
        devices = self._devices()
        return f"{head}\n\n{devices}" if devices else head

    def _cpu_vendor(self) -> str:
        cpu = self.document.subject.hardware.cpu
        if not cpu:
            return str(words("unknown"))
        name = next((n for n in ("Intel", "AMD", "Apple") if n.lower() in cpu.lower()), "Other")
        return f"{name} ({code(cpu)})"

    def _gpu_library(self) -> str:
        library = {"nvidia": "CUDA", "amd": "AMD ROCm"}
        found = [library[v] for v in self._vendors() if v in library]
        drivers = [d.driver for d in self.document.subject.hardware.devices if d.driver]
        said = ", ".join(dict.fromkeys(found)) or str(words("unknown"))
        return f"{said} ({sentence(words('driver {driver}', driver=drivers[0]))})" if drivers else said

    def _ggml_backend(self) -> str:
        names = {"nvidia": "CUDA", "amd": "HIP", "intel": "SYCL", "apple": "Metal"}
        logs = " ".join(line.text.lower() for line in self.document.log_lines)
        for sign, name in (
            ("vulkan", "Vulkan"),
            ("rocm", "HIP"),
            ("sycl", "SYCL"),
            ("metal", "Metal"),
            ("cuda", "CUDA"),
        ):
            if re.search(rf"\b(?:ggml[_-])?{sign}", logs):
                return name
        vendors = [v for v in self._vendors() if v]
        if not vendors:
            return "CPU"
        return ", ".join(dict.fromkeys(names.get(v, "CPU") for v in vendors))

    def _devices(self) -> str:
        lines = []
        for d in self.document.subject.hardware.devices[: self.view.limits.peaks]:
            told: list[Words] = [words("{name}", name=d.name or d.id)]
            if d.total_bytes is not None:
                told.append(words("memory {memory}", memory=size(d.total_bytes)))
            elif d.free_bytes is not None:
                told.append(words("free {memory}", memory=size(d.free_bytes)))
            if d.driver:
                told.append(words("driver {driver}", driver=d.driver))
            if d.link:
                told.append(words("link {link}", link=d.link))
            lines.append("- " + "; ".join(finalize(each) for each in told))
        return "\n".join(lines)

    def _hardware(self) -> str:
        h = self.document.subject.hardware
        rest = self._list(
            [
                (words("Processor"), h.cpu),
                (words("System memory"), size(h.ram_bytes) if h.ram_bytes is not None else None),
            ]
        )
        return "\n".join(p for p in (self._devices(), rest) if p) or str(words("unknown"))

    def _model(self) -> str:
        m = self.document.subject.model
        return self._list(
            [
                (words("Model"), m.name),
                (words("File"), m.path or (None if m.name else self._model_name())),
                (words("Quantisation"), m.quantization),
                (words("Size"), size(m.size_bytes) if m.size_bytes is not None else None),
                (words("Architecture"), m.architecture),
                (words("Trained window"), count(m.trained_window) if m.trained_window is not None else None),
                (words("Fingerprint of the header"), m.header_hash),
            ]
        ) or str(words("unknown"))

    def _python(self) -> str:
        return str(words("unknown"))

    def _environment(self) -> str:
        s = self.document.subject
        settings = self._list(
            [
                (
                    words("Backend"),
                    _named(s.backend.name, s.backend.version, s.backend.build) or None,
                ),
                (words("Operating system"), s.hardware.os),
                (words("Window asked for / in force / of each slot"), self._windows()),
                (words("KV cache, K / V"), " / ".join(t for t in (s.kv_cache.type_k, s.kv_cache.type_v) if t) or None),
                (
                    words("Layers on the GPU"),
                    plain(s.placement.gpu_layers) if s.placement.gpu_layers is not None else None,
                ),
                (
                    words("Split over devices"),
                    plain(s.placement.tensor_split) if s.placement.tensor_split is not None else None,
                ),
                (
                    words("Batch / micro-batch"),
                    f"{s.runtime.batch or '?'} / {s.runtime.ubatch or '?'}"
                    if s.runtime.batch or s.runtime.ubatch
                    else None,
                ),
                (words("Requests at once"), plain(s.runtime.parallel) if s.runtime.parallel is not None else None),
                (
                    words("Flash attention"),
                    plain(s.runtime.flash_attention) if s.runtime.flash_attention is not None else None,
                ),
                (words("Speculation"), plain(s.runtime.speculation) if s.runtime.speculation is not None else None),
                (words("Position scaling"), plain(s.runtime.rope) if s.runtime.rope is not None else None),
            ]
        )
        nothing = str(words("unknown"))
        return "\n".join(p for p in (settings, self._hardware(), self._model()) if p and p != nothing) or nothing

    def _windows(self) -> Ours | None:
        w = self.document.subject.window
        if w.asked is None and w.in_force is None and w.per_slot is None:
            return None
        return Ours(" / ".join(count(v) if v is not None else "?" for v in (w.asked, w.in_force, w.per_slot)))

    def _command(self) -> str:
        line = command_line(self.document)
        return fence(visible(line), "sh", longest_line=ROOM.get().command) if line else ""

    def _describe(self) -> str:
        view, document = self.view, self.document
        lines = [sentence(said) for said in view.verdict[:1]]
        if view.symptom is not None:
            lines.append(sentence(words("Symptom: {symptom}.", symptom=view.symptom)))
        lines.append(Markdown(finalize(view.statement)))
        facts = self._list(
            [
                (words("First failing input"), self._rung(self.failing)),
                (words("Last passing input"), self._rung(self.passing)),
                (
                    words("Window it was started with; it did not come up")
                    if not self.document.rungs and _at_load(self.document)
                    else words("Window in force"),
                    count(document.window.in_force) if document.window.in_force is not None else None,
                ),
            ]
        )
        error = view.errors[0] if view.errors else ""
        parts = [" ".join(line if line.endswith(".") else f"{line}." for line in lines), facts]
        if error:
            parts += [str(words("Exact error:")), fence(error)]
        found = self._findings()
        if found:
            parts.append(found)
        return "\n\n".join(p for p in parts if p)

    def _rung(self, rung: Rung | None) -> Words | None:
        if rung is None:
            return None
        speed = number(rung.generation_tps) if rung.generation_tps is not None else words("unknown")
        prefill = number(rung.prefill_tps) if rung.prefill_tps is not None else words("unknown")
        recall = (
            percent(rung.canaries.hit / rung.canaries.asked)
            if rung.canaries and rung.canaries.asked
            else words("unknown")
        )
        return words(
            "{tokens} tokens (prefill {prefill} tok/s, generation {speed} tok/s, facts recalled: {recall})",
            tokens=count(rung.input_tokens),
            prefill=prefill,
            speed=speed,
            recall=recall,
        )

    def _findings(self) -> str:
        """What the measurements say of causes, and what was ruled out: a maintainer need not ask for it."""
        lines = []
        for cause in self.view.causes[:3]:
            title = prose(cause.title) if cause.title else code(cause.id)
            lines.append(f"- {finalize(cause.band)}: {title} ({code(cause.id)})")
            lines += [
                f"  - {self._truth(clue.holds)}{prose(clue.words)}{self._facts(clue.facts)}"
                for clue in (*cause.clues_for, *cause.clues_against)[: self.view.limits.clues]
            ]
        lead = words("What the measurements point to:") if self.document.rungs else words("What was given points to:")
        out = [str(lead) + "\n\n" + "\n".join(lines)] if lines else []
        aside = [
            f"- {prose(title) if title else code(id_)} ({finalize(band)}): {finalize(because)}"
            for id_, title, band, because in self.view.set_aside[:_MOST_ASIDE]
        ]
        rest = [id_ for id_, *_ in self.view.set_aside[_MOST_ASIDE:]] + list(self.view.also_aside)
        if rest:
            aside.append("- " + sentence(words("Also: {causes}", causes=Several(tuple(rest)))))
        if aside:
            out.append(str(words("What was looked at and set aside:")) + "\n\n" + "\n".join(aside))
        return "\n\n".join(out)

    @staticmethod
    def _truth(holds: bool | None) -> str:
        if holds is None:
            return ""
        return f"{finalize(words('yes:') if holds else words('no:'))} "

    @staticmethod
    def _facts(facts: tuple[FactRow, ...]) -> str:
        shown = [f"{prose(f.name)} = {_told(f.found)}" for f in facts if f.found is not None]
        return f" ({'; '.join(shown)})" if shown else ""

    def _steps(self) -> str:
        document = self.document
        reproduce = document.reproduce
        steps: list[str] = []
        line = command_line(document)
        if line:
            steps.append(
                f"{words('Start the server with the command above.')}"
                if self._has_command()
                else f"{words('Start the server:')} {code(line, longest=ROOM.get().command)}"
            )
        else:
            start = self._start()
            steps.append(
                sentence(words("Start the server with: {settings}", settings=Several(start)))
                if start
                else str(words("Start the server; its command line is not known."))
            )
        failing = self.failing.input_tokens if self.failing else reproduce.input_tokens if reproduce else None
        if failing is not None:
            steps.append(
                sentence(
                    words(
                        "Send one request with {tokens} input tokens; this is the smallest that failed.",
                        tokens=count(failing),
                    )
                )
            )
        elif document.window.verified_input_tokens is not None:
            steps.append(
                sentence(
                    words(
                        "Send one request with {tokens} input tokens.",
                        tokens=count(document.window.verified_input_tokens),
                    )
                )
            )
        if reproduce is not None and reproduce.fill:
            steps.append(sentence(words("Fill the input so: {how}", how=prose(reproduce.fill))))
        if reproduce is not None and (reproduce.endpoint or reproduce.body):
            steps.append(
                sentence(
                    words(
                        "The request is {endpoint} with the body {body}",
                        endpoint=reproduce.endpoint or "?",
                        body=reproduce.body or "?",
                    )
                )
            )
        if self.failing is not None:
            steps.append(sentence(words("It ends so: {result}", result=self.failing.error or self.failing.result)))
        elif self.view.errors and not document.rungs:
            steps.append(sentence(words("It ends so: {result}", result=self.view.errors[0])))
        if self.passing is not None and failing is None:
            passed = count(self.passing.input_tokens)
            steps.append(sentence(words("One request with {tokens} input tokens passes.", tokens=passed)))
        elif self.passing is not None:
            steps.append(
                sentence(words("The same with {tokens} input tokens passes.", tokens=count(self.passing.input_tokens)))
            )
        listed = "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1))
        return "\n\n".join(part for part in (listed, self._request(failing)) if part)

    def _start(self) -> tuple[str, ...]:
        """Give what is known of how the server was started, where no command line is: its model and its window."""
        s = self.document.subject
        window = s.window.asked or s.window.in_force
        named = self._model_name()
        return tuple(
            text
            for text in (
                named and str(words("model {name}", name=named)),
                window and str(words("window {tokens} tokens", tokens=count(window))),
            )
            if text
        )

    def _model_name(self) -> str | None:
        """Give the model's name or file; where nothing else tells it, the file in the line that failed to load it."""
        m = self.document.subject.model
        if m.name or m.path:
            return m.name or m.path
        for line in self.document.log_lines:
            found = _MODEL_FILE.search(line.text)
            if found is not None:
                return found[1]
        return None

    def _request(self, failing: int | None) -> str:
        """The smallest request that failed as a command to run: the length is exact or near, the text is nobody's."""
        way = REQUESTS.get(self.form.id)
        if failing is None or way is None:
            return ""
        document = self.document
        answer = (self.failing.output_tokens if self.failing else None) or document.window.output_tokens or 16
        body = {
            "model": json.dumps(visible(document.subject.model.name or "MODEL")),
            "stream": "False",
            "temperature": "0",
        }
        fields = [f'"{way.prompt}": ' + (f"[1000] * {failing}" if way.exact else f'"word " * {failing}')]
        fields += [f'"{name}": {body[name]}' for name in way.fields]
        if way.options:
            asked = document.subject.window.asked or document.subject.window.in_force or failing + answer
            fields.append(way.options.format(answer=answer, window=asked))
        program = "import json; print(json.dumps({" + ", ".join(fields) + "}))"
        port = re.search(r":(\d{2,5})(?:/|$)", document.subject.backend.url or "")
        address = f"http://127.0.0.1:{port[1] if port else way.port}{way.path}"
        locked = any(word.startswith("--api-key") for word in document.subject.backend.command or ())
        key = '-H "Authorization: Bearer $API_KEY" ' if locked else ""
        line = f"python3 -c {shlex.quote(program)} | curl -sS {address} {key}-H 'Content-Type: application/json' -d @-"
        lead = (
            words("The same as a command: one token again and again, so the length is exact and the text is nobody's.")
            if way.exact
            else words("The same as a command: one word again and again, about a token each.")
        )
        note = words("It shows limits of length, memory and time; where recall failed, facts have to be in the text.")
        return f"{lead} {note}\n\n{fence(line, 'sh', longest_line=ROOM.get().command)}"

    def _has_command(self) -> bool:
        return any("command" in parts or "describe-and-steps" in parts for _, parts in self.form.fields)

    def _describe_and_steps(self) -> str:
        command = self._command()
        if command:
            command = f"{_LEADS['command']}\n\n{command}"
        return "\n\n".join(p for p in (self._describe(), command, self._steps(), self._expected()) if p)

    def _expected(self) -> str:
        w = self.document.window
        window = w.in_force or w.asked
        if window is None:
            return ""
        if not self.document.rungs and _at_load(self.document):
            return sentence(
                words("Expected: the server starts with a window of {tokens} tokens.", tokens=count(window))
            )
        criteria = self.document.criteria
        said = [
            sentence(
                words(
                    "Expected: inputs up to the window in force, {tokens} tokens, are accepted and used.",
                    tokens=count(window),
                )
            )
        ]
        if criteria.min_generation_tps is not None:
            said.append(
                sentence(
                    words(
                        "Generation of at least {speed} tok/s was required.", speed=number(criteria.min_generation_tps)
                    )
                )
            )
        if criteria.max_first_token_s is not None:
            said.append(
                sentence(words("The first token was required within {time}.", time=seconds(criteria.max_first_token_s)))
            )
        return " ".join(said)

    def _logs(self) -> str:
        lines = [text for quote in self.view.quotes for _, text in quote.lines]
        if not lines:
            lines = list(self.view.errors)
        if not lines:
            return str(words("No log was given."))
        return fence(
            "\n".join(visible(line, lines=True).replace("\n", " ") for line in lines),
        )

    def _extra(self) -> str:
        test = self.view.next_test
        if test is None:
            return ""
        said = (
            words("Next test: {test}", test=test.lead)
            if test.undoes
            else words("Next single test: {test}", test=test.lead)
        )
        return sentence(said)

    def _first_bad(self) -> str:
        version = next((c for c in self.view.changes if "version" in c.variable or "build" in c.variable), None)
        if version is None:
            return str(words("unknown"))
        return sentence(
            words(
                "The version changed from {before} to {after} in run {run}.",
                before=version.before,
                after=version.after,
                run=Ours(str(version.run)),
            )
        )

    def _screenshots(self) -> str:
        return str(words("none"))

    def _tick(self) -> str:
        return str(words("To be answered by the person who posts this."))


_MODEL_FILE: Final = re.compile(r"model[^'\"\n]{0,40}['\"]([^'\"\n]{1,300}\.gguf)['\"]", re.IGNORECASE)
_LOAD_FAILED: Final = re.compile(
    r"failed to (?:create context|load (?:the )?model|initialize the context|allocate (?:buffer for kv|compute buffers))|error loading model|"
    r"unable to load model|model requires more system memory|engine core initialization failed",
    re.IGNORECASE,
)
_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|outofmemory|\boom\b|unable to allocate|failed to allocate", re.IGNORECASE
)


def _texts(document: CaseDocument) -> str:
    return "\n".join(line.text for line in document.log_lines)


def _at_load(document: CaseDocument) -> bool:
    """Say whether the log shows that the server did not come up."""
    return bool(_LOAD_FAILED.search(_texts(document)))


def _what_fails(document: CaseDocument) -> Words:
    """Give what fails where no symptom was told: from the lengths that were measured, else from the errors, else nothing is claimed."""
    if any(rung.result != "passed" for rung in document.rungs):
        return words("long context fails")
    text = _texts(document)
    memory, load = _OUT_OF_MEMORY.search(text), _LOAD_FAILED.search(text)
    if load:
        return words("out of memory while the model is loaded") if memory else words("the model fails to load")
    if memory:
        return words("out of memory")
    return words("a problem with long context")


def server_of_another(form: Form, document: CaseDocument) -> str | None:
    """Give the server's name where the case is of a server that this form is not for, as far as is known."""
    name = (document.subject.backend.name or "").strip()
    own = ALIASES.get(name.lower(), name.lower())
    return name if own in FORMS and own != form.id else None


def title_of(form: Form, document: CaseDocument) -> Words:
    """Give a title for the issue: what fails, with what, at which length."""
    rungs = [r for r in document.rungs if r.result != "passed"]
    tokens = min((r.input_tokens for r in rungs), default=None)
    symptom = SYMPTOMS.get(document.case.symptom or "") or _what_fails(document)
    model = document.subject.model.name or document.subject.model.path
    if model is None:
        return words("{start}{symptom}", start=Ours(form.title), symptom=symptom)
    if tokens is None:
        return words("{start}{symptom}, {model}", start=Ours(form.title), symptom=symptom, model=model)
    return words(
        "{start}{symptom} at {tokens} input tokens, {model}",
        start=Ours(form.title),
        symptom=symptom,
        tokens=count(tokens),
        model=model,
    )
