"""The README is true: its commands exist with the options that it shows, its links lead somewhere, its support table names every backend."""

import re
from functools import cache
from pathlib import Path

import pytest

from diagnose.cli import COMMANDS, command_line

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = sorted(
    {
        match[1].strip()
        for match in re.finditer(r"`(?:uv run (?:--extra demo )?)?(?:… \\\| )?ctxdoctor ([a-z][^`]*)`", README)
    }
)


@cache
def help_of(command):
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        command_line([command, "--help"])
    return said.getvalue()


def test_there_are_commands_to_check():
    assert len(SHOWN) >= 10


@pytest.mark.parametrize("shown", SHOWN)
def test_every_command_that_is_shown_exists_with_its_options(shown):
    command, *rest = shown.split()
    if command == "COMMAND":
        return
    assert command in COMMANDS
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"'[^']*'", "", " ".join(rest))):
        assert option in help_of(command) or option == "--help", f"{command} has no {option}"


def test_every_command_is_mentioned():
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", README), command


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"`((?:probes|rules|reports|diagnose|tests)/[\w./-]+)`", README):
        assert (ROOT / path).exists(), path


def test_the_support_table_names_every_backend():
    from probes.backends.recognise import BACKENDS

    for name in BACKENDS:
        if name == "openai-compatible":
            continue
        shown = {
            "ollama": "Ollama",
            "lm-studio": "LM Studio",
            "vllm": "vLLM",
            "sglang": "SGLang",
            "koboldcpp": "KoboldCpp",
            "tabbyapi": "TabbyAPI",
        }.get(name, name)
        assert shown in README, name


ROWS = {
    "llama.cpp": "llama.cpp (`llama-server`)",
    "mlx_lm": "mlx_lm.server",
    "ik_llama.cpp": "ik_llama.cpp",
    "beellama.cpp": "beellama.cpp",
    "ollama": "Ollama",
    "lm-studio": "LM Studio",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "koboldcpp": "KoboldCpp",
    "tabbyapi": "TabbyAPI",
    "text-generation-webui": "text-generation-webui",
    "llama-cpp-python": "llama-cpp-python",
    "openai-compatible": "anything else",
}
REAL = {
    "llama.cpp": "test_llamacpp_real.py",
    "mlx_lm": "test_mlx_real.py",
    "koboldcpp": "test_koboldcpp_real.py",
    "ik_llama.cpp": "test_ik_real.py",
    "vllm": "test_vllm_real.py",
    "llama-cpp-python": "test_llama_cpp_python_real.py",
    "text-generation-webui": "test_text_generation_webui_real.py",
    "ollama": "test_ollama_real.py",
}


def test_the_support_table_says_what_the_backends_offer():
    """Each cell that follows from a backend's offers agrees with them, and only what a test runs for real is called so."""
    from probes.backends.recognise import BACKENDS

    lines = [line for line in README.splitlines() if line.startswith("| ") and line.count("|") == 9]
    assert len(lines) > 8
    table = {cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in lines)}
    assert set(ROWS) == set(BACKENDS) - {"llama-swap", "llama-manager"}
    for name, begins in ROWS.items():
        offers = BACKENDS[name].offers
        [cells] = [cells for shown, cells in table.items() if shown.startswith(begins)]
        _, _, window, counted, _, cache, logprobs, settings, _, _ = cells
        assert counted.startswith(("server", "its own")) is ("tokenize" in offers), name
        assert cache.startswith("per request") is ("cache-off" in offers), name
        assert (logprobs != "where an answer has them") is ("logprobs" in offers), name
        # KoboldCpp and llama-cpp-python tell theirs by their process and its files only
        assert (settings != "not offered") is (
            "configuration" in offers or name in {"koboldcpp", "llama-cpp-python"}
        ), name
        assert window.startswith("run for real") is (name in REAL), name
        if name in REAL:
            assert (ROOT / "tests" / "backends" / REAL[name]).is_file()


def test_the_two_commands_of_the_beginning_are_what_ci_runs():
    assert "uv run pytest" in README
    assert "uv run pytest" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "uv run --extra demo ctxdoctor demo" in README
