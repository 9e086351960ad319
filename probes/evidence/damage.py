"""What a cache of few bits may harm although planted facts are still found: chains of facts, and the next token's distribution."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from .records import Payload, Record, Text


class NextToken(Record):
    """The likeliest next tokens after one prefix of the text: token (id, or text where no id is given) → natural log-probability."""

    at: int = Field(ge=0, description="length of the prefix in characters, the same for every tokenizer")
    top: dict[str, float]


class NextTokens(Payload):
    """Next-token distributions of one text under one cache type; comparable with those of another run on the same text and model."""

    kind: ClassVar[str] = "next_tokens"
    text_hash: str
    tokens: int = Field(
        default=0, ge=0, description="length for which the text was written; another run asks for the same"
    )
    model: Text | None = None
    type_k: Text | None = None
    type_v: Text | None = None
    positions: tuple[NextToken, ...]


class ChainScore(Payload):
    """Chains of facts of which each needs the one before, and the same number of single facts from the same text."""

    kind: ClassVar[str] = "chains"
    at_tokens: int = Field(ge=0)
    steps: int = Field(ge=2)
    hit: int = Field(ge=0)
    asked: int = Field(ge=1)
    single_hit: int = Field(ge=0)
    single_asked: int = Field(ge=1)


class TokenDivergence(Payload):
    """Two runs' next-token distributions compared: Jensen-Shannon divergence in bits (0 the same, 1 nothing in common)."""

    kind: ClassVar[str] = "token_divergence"
    positions: int = Field(ge=1)
    median: float = Field(ge=0, le=1)
    p95: float = Field(ge=0, le=1)
    same_top: float = Field(ge=0, le=1)
    type_k: Text | None = None
    type_v: Text | None = None
    other_run: int = Field(ge=1)
    other_server: Text | None = Field(
        default=None, description="address of the control server that was compared with, where it was no other run"
    )
    other_type_k: Text | None = None
    other_type_v: Text | None = None
