"""What is installed is one package, and it finds its own floors whatever else has their names."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A fresh environment with the wheel, a stranger named ``rules`` beside it, and our dependencies behind both."""
    place = tmp_path_factory.mktemp("env")
    venv.create(place, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for stranger in ("rules", "reports", "probes", "diagnose"):
        (site / stranger).mkdir()
        (site / stranger / "__init__.py").write_text("raise RuntimeError('a stranger of the same name was imported')\n")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin" / "python"


def test_the_wheel_holds_one_package(wheel):
    """Law: the top level of the wheel is ctxdoctor and its dist-info, nothing else; no tests, no caches."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"ctxdoctor"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    assert "ctxdoctor/diagnose/llama_server.py" in names
    assert any(name.endswith(".toml") and "/rules/" in name for name in names)
    assert any(name.startswith("ctxdoctor/reports/templates/") for name in names)
    assert any(name.endswith(".po") for name in names)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "ctxdoctor", "--version"],
        ["-c", "import sys; sys.argv = ['ctxdoctor', '--version']; from ctxdoctor import main; main()"],
    ],
)
def test_version_answers(installed, tmp_path, arguments):
    done = subprocess.run(
        [installed, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ctxdoctor 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "ctxdoctor", "facts", "--format", "json"],
        ["-c", "import sys; sys.argv = ['ctxdoctor', 'rules', '--format', 'json']; from ctxdoctor import main; main()"],
    ],
)
def test_our_own_floors_are_found_beside_strangers(installed, tmp_path, arguments):
    """Law: packages of the same plain names in site-packages are never imported instead of ours."""
    done = subprocess.run(
        [installed, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.lstrip().startswith("[")


def test_nothing_heavy_is_imported_for_help():
    """Law: --help and --version import neither transformers, pynvml, jinja2, httpx2 nor pydantic."""
    code = (
        "import sys; sys.path.insert(0, '.'); from diagnose.cli import command_line; command_line(['--help']);"
        "heavy = {'transformers', 'pynvml', 'jinja2', 'httpx2', 'pydantic', 'rich', 'numpy', 'typer'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "estimate" in done.stdout


def test_no_lock_file_is_tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        assert "uv.lock" not in done.stdout.splitlines()
