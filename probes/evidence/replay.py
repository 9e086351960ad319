"""The same request as the first one of a freshly started server, and after it: what only the first request after loading does is told apart."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from .records import Payload
from .request import Outcome, RequestError


class FreshReplay(Payload):
    """A request replayed on a server that was started anew for it."""

    kind: ClassVar[str] = "fresh_replay"
    prompt_tokens: int = Field(ge=0)
    load_s: float = Field(ge=0, description="how long the start took")
    first: Outcome = Field(description="the very first request after loading")
    first_s: float = Field(ge=0)
    later_passed: int = Field(ge=0)
    later_tried: int = Field(ge=0)
    later_s: tuple[float, ...] = ()
    error: RequestError | None = Field(default=None, description="the first one's, else the last of the later ones")
