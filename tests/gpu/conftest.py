"""A driver library built for the tests, and a way to hand it to the real binding."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "recordings" / "gpu"


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the driver library for the tests cannot be built")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            path,
            HERE / "fake_nvml.c",
        ],
        check=True,
        timeout=60,
    )
    return path


@pytest.fixture
def nvml(fake_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Call it with a scenario: the real binding then talks to a driver that answers so. Gives the scenario's file, to be changed at will."""
    import pynvml

    scenario = tmp_path / "scenario"
    monkeypatch.setenv("FAKE_NVML", str(scenario))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(fake_nvml_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    # The library reads the environment with getenv, which Python's own mapping writes through to.

    def use(text: str) -> Path:
        scenario.write_text(text)
        return scenario

    return use


@pytest.fixture(scope="session")
def recorded():
    """Give the text of a recording by its name."""
    return lambda name: (RECORDINGS / name).read_text(encoding="utf-8")


@pytest.fixture
def two_uneven_cards(recorded) -> str:
    return recorded("nvml_two_uneven_cards.txt")


def plant_tree(text: str, root: Path) -> Path:
    """Build the files of a recorded tree: "== path" and the lines of the file, or "-> path target" for a link."""
    path: Path | None = None
    lines: list[str] = []

    def finish() -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")

    for line in text.splitlines():
        if line.startswith(("== ", "-> ", "# ")):
            finish()
            path, lines = None, []
            if line.startswith("== "):
                path = root / line[3:].strip()
            elif line.startswith("-> "):
                _mark, name, target = line.split(" ")
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).symlink_to(target)
        else:
            lines.append(line)
    finish()
    return root


@pytest.fixture
def plant(recorded, tmp_path):
    """Build a recorded tree of files by its name; gives the folder that stands for "/"."""
    return lambda name: plant_tree(recorded(name), tmp_path / "root")
