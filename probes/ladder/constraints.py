"""Coding constraints: rules for a small code change, planted at the start, middle and end of the text, scored by parsing what was written.

The set is data: a :class:`Task` is a function to change, and constraints drawn from kinds that :func:`check` knows. Nothing is executed.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from probes.evidence.rungs import ConstraintScore
from probes.ladder.scoring import bounded, without_reasoning

ConstraintKind = Literal["name", "forbidden-call", "docstring", "signature", "required-call", "constant", "prefix"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """One rule. ``value`` is what the kind needs: a name, a call, a docstring's first word, parameters with commas between."""

    kind: ConstraintKind
    value: str

    @property
    def text(self) -> str:
        """The rule as it stands in the text and in the request."""
        return {
            "name": f"the new function must be called `{self.value}`",
            "forbidden-call": f"no code may call `{self.value}`",
            "docstring": f"every new function needs a docstring that begins with `{self.value}`",
            "signature": f"the new function must take exactly the parameters `{self.value}`, in this order",
            "required-call": f"the new function must call `{self.value}`",
            "constant": f"the limit must be a module constant called `{self.value}`",
            "prefix": f"every local variable must begin with `{self.value}`",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Task:
    """A small change to code, with its constraints in the order start, middle, end."""

    code: str
    change: str
    constraints: tuple[Constraint, ...]

    def planted(self) -> tuple[str, ...]:
        """Give the lines that stand in the text, one for each constraint."""
        return tuple(f"Coding rule {n}: {c.text}." for n, c in enumerate(self.constraints, 1))

    def request(self, *, restated: bool = True) -> str:
        """Give the end of the prompt: the rules once more, the code, and the change that is asked for."""
        rules = (
            "\n".join(f"{n}. {c.text[0].upper()}{c.text[1:]}." for n, c in enumerate(self.constraints, 1))
            if restated
            else ""
        )
        intro = (
            f"Keep the coding rules of the text above:\n{rules}"
            if restated
            else "Keep the three coding rules that stand in the text above."
        )
        return f"\n\n{intro}\n\n```python\n{self.code}```\n\n{self.change} Answer with the new Python code only, in one code block."


_TASKS: tuple[tuple[str, str], ...] = (
    (
        "def total(rows):\n    result = 0\n    for row in rows:\n        result += row[1]\n    return result\n",
        "Write a new function that adds up only the rows whose first field is not empty.",
    ),
    (
        "def first_word(line):\n    return line.split(' ')[0]\n",
        "Write a new function that gives the last word of a line, or an empty string.",
    ),
    (
        "def largest(values):\n    best = values[0]\n    for v in values:\n        if v > best:\n            best = v\n    return best\n",
        "Write a new function that gives the smallest value, and a default where there is none.",
    ),
)
_NAMES = (
    "sum_known_rows",
    "pick_tail_item",
    "scan_ledger",
    "fold_entries",
    "trace_minimum",
    "gather_valid",
    "reduce_lines",
)
_FORBIDDEN = ("print", "eval", "sorted", "len", "map", "isinstance", "lambda")
_DOCSTRINGS = ("Summary:", "Purpose:", "Contract:", "Note:")
_SIGNATURES = ("items, fallback", "source, strict", "records, limit", "lines, default")


def draw_task(seed: int) -> Task:
    """Give a task whose rules depend on the seed: a name (start), a forbidden call (middle), a docstring or signature (end)."""
    rng = random.Random(f"constraints {seed}")
    code, change = rng.choice(_TASKS)
    last = rng.choice(
        (Constraint("docstring", rng.choice(_DOCSTRINGS)), Constraint("signature", rng.choice(_SIGNATURES)))
    )
    return Task(
        code,
        change,
        (Constraint("name", rng.choice(_NAMES)), Constraint("forbidden-call", rng.choice(_FORBIDDEN)), last),
    )


# --- scoring -------------------------------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"(?:```|~~~)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:(?:```|~~~)|\Z)", re.DOTALL)
LONGEST_CODE = 20_000


def code_of(answer: str) -> ast.Module | None:
    """Parse the Python code of an answer: its fenced blocks, else the answer from its first line of code on. None where nothing parses.

    Code that was cut off in the middle is read up to its last whole statement.
    """
    text = without_reasoning(bounded(answer))
    blocks = [m[2] for m in _FENCE.finditer(text) if m[1].lower() in ("", "python", "py", "python3")]
    starts = [m.start() for m in re.finditer(r"^(?:def |import |from |class |[A-Z_]+ = |@)", text, re.MULTILINE)]
    candidates = ["\n\n".join(blocks), *blocks, *([text[starts[0] :]] if starts else []), text]
    for candidate in candidates:
        lines = textwrap.dedent(candidate[:LONGEST_CODE]).strip("\n").split("\n")
        for end in range(len(lines), max(0, len(lines) - 40), -1):
            tree = _parse("\n".join(lines[:end]))
            if tree is not None and any(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(tree)):
                return tree
    return None


def _parse(code: str) -> ast.Module | None:
    """Parse text that a model wrote. Deep nesting and null bytes are its fault, not ours."""
    if not code.strip():
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _calls(tree: ast.AST) -> set[str]:
    """Give the names that are called, by their last part and in full; a lambda counts as a call of ``lambda``."""
    out: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            full = ast.unparse(node.func)
            out |= {full, full.rsplit(".", 1)[-1]}
        elif isinstance(node, ast.Lambda):
            out.add("lambda")
    return out


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    args = function.args
    rest = [f"*{args.vararg.arg}"] if args.vararg else []
    return [a.arg for a in [*args.posonlyargs, *args.args]] + rest + [a.arg for a in args.kwonlyargs]


def _locals(function: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _check_name(tree: ast.Module, value: str) -> bool:
    return any(f.name == value for f in _functions(tree))


def _check_docstring(tree: ast.Module, value: str) -> bool:
    return all(
        (ast.get_docstring(f) or "").lstrip().startswith(value)
        for f in tree.body
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def _check_signature(tree: ast.Module, value: str) -> bool:
    wanted = [p.strip() for p in value.split(",")]
    return any(_parameters(f) == wanted for f in _functions(tree))


def _check_constant(tree: ast.Module, value: str) -> bool:
    targets = [
        t
        for n in tree.body
        for t in (n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else [])
    ]
    return any(isinstance(t, ast.Name) and t.id == value for t in targets)


_CHECKS: dict[ConstraintKind, Callable[[ast.Module, str], bool]] = {
    "name": _check_name,
    "forbidden-call": lambda tree, value: value not in _calls(tree),
    "docstring": _check_docstring,
    "signature": _check_signature,
    "required-call": lambda tree, value: value in _calls(tree),
    "constant": _check_constant,
    "prefix": lambda tree, value: all(n.startswith(value) for f in _functions(tree) for n in _locals(f)),
}


def score_code(answer: str, constraints: Sequence[Constraint], original: str = "") -> ConstraintScore:
    """Say which constraints an answer's code keeps. Code that does not parse keeps none.

    Functions that the answer repeats unchanged from ``original`` are not held against it.
    """
    tree = code_of(answer)
    if tree is None:
        return ConstraintScore(met=0, asked=len(constraints), failed=tuple(c.text for c in constraints))
    known = _parse(original)
    old = {ast.dump(n) for n in known.body} if known is not None else set()
    tree = ast.Module([n for n in tree.body if ast.dump(n) not in old], tree.type_ignores)
    new = bool(_functions(tree))
    failed = tuple(c.text for c in constraints if not (new and _CHECKS[c.kind](tree, c.value)))
    return ConstraintScore(met=len(constraints) - len(failed), asked=len(constraints), failed=failed)
