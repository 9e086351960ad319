"""Names that would hide each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(
    path for floor in ("probes", "rules", "reports", "diagnose") for path in (ROOT / floor).rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_nothing_that_a_package_defines_has_the_name_of_one_of_its_modules(package: Path) -> None:
    """Law: importing a module puts it into its package under its own name, so a function of that name is gone from then on."""
    modules = {path.stem for path in package.parent.glob("*.py")} | {
        path.parent.name for path in package.parent.glob("*/__init__.py")
    }
    tree = ast.parse(package.read_text(encoding="utf-8"))
    defined = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    defined |= {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert not defined & modules
