"""What a call left that was killed: its server is ended, and the user's server stands again as it was. Nothing is loaded where nothing was left."""

from __future__ import annotations

from diagnose.case import data_home
from diagnose.ui import Ui
from probes.evidence.words import words

WAIT_S = 600.0
"""The user's server is waited for so long, by a call that measures."""


def put_right(ui: Ui, wait_s: float = WAIT_S) -> None:
    """End what was left, put back what was changed, and say so; what belongs to a call that still runs is left alone."""
    if not any(next((data_home() / name).glob("*.json"), None) for name in ("launched", "auto")):
        return
    from diagnose.leftovers import end_leftovers  # noqa: PLC0415 - dear, and only where something was left
    from diagnose.restoring import restore_interrupted  # noqa: PLC0415

    for command in end_leftovers():
        ui.say(words("A server that an earlier ctxdoctor left running was ended: {command}", command=command[:200]))
    for said in restore_interrupted(wait_s):
        ui.say(said)
