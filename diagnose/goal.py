"""Whether a run reached what was wanted: then the causes that were confirmed on the way are mended, and their tests are not proposed again."""

from __future__ import annotations

from diagnose.window import SLACK, WindowVerdict

__all__ = ["SLACK", "nothing_left", "reached"]


def reached(verdict: WindowVerdict) -> bool:
    """Say whether the target is verified: fully, or as far as a model goes that cannot do the recall test at all."""
    if verdict.target_reached:
        return True
    target = verdict.target_input
    if target is None or not verdict.unable:
        return False
    # a rung's text ends a little early, so that the longest question fits behind it
    return min(verdict.fits or 0, verdict.fast_enough or 0) >= target - max(target // 100, SLACK)


def nothing_left(verdict: WindowVerdict) -> bool:
    """Say whether the target is verified, or, where none was given, every length that was measured held."""
    if verdict.target_input is not None:
        return reached(verdict)
    return bool(verdict.lengths) and all(
        one.fits is True and one.fast_enough is not False and one.recalls is not False for one in verdict.lengths
    )
