"""The commands that tell two changes apart which were made together: each changes one variable alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.case import Case
from diagnose.readback import Changed
from diagnose.steps import started_by
from probes.backends.commands import as_text, change_command, detect_backend
from probes.evidence.errors import CtxDoctorError


def command_of(case: Case, run: int) -> tuple[str, ...] | None:
    """Give the server's command line as a run had it, or None."""
    return started_by(case.evidence(run)) or None


LEVERS = ("speculation", "mmproj", "mmproj_offload", "ubatch", "batch", "tensor_split", "split_mode", "parallel", "kv_unified", "flash_attention",
          "kv_type", "kv_type_k", "kv_type_v", "model_path", "ctx")  # fmt: skip
"""What costs no quality comes first: the order in which changes are told apart."""


def separating(case: Case, against: int, variables: Sequence[Changed]) -> list[str]:
    """Give the commands that change one variable alone, from the command of the run that is compared with: the A/B that tells them apart."""
    base = command_of(case, against)
    if base is None:
        return []
    backend = detect_backend(base)
    commands: list[str] = []
    for one in sorted(variables, key=lambda each: LEVERS.index(each.name) if each.name in LEVERS else len(LEVERS)):
        if not one.asked or isinstance(one.after, Mapping):
            continue
        try:
            changed = list(base)
            if isinstance(one.after, str) and "/" in one.after and one.name == "kv_type":
                for side, value in zip(("kv_type_k", "kv_type_v"), one.after.split("/"), strict=False):
                    changed = change_command(changed, backend, side, None if value == "not set" else value)
            elif one.name == "model_path":
                continue
            else:
                changed = change_command(base, backend, one.name, one.after)
        except CtxDoctorError:
            continue
        if list(changed) != list(base):
            commands.append(as_text(changed))
    return commands[:4]
