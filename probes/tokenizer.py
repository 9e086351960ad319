"""The model's own tokenizer and chat template by transformers, for servers that do not count; and a count by calibration where there is neither.

This is the only file that imports transformers, and only when a tokenizer is opened. A local folder or a single tokenizer file is read as it is;
a name is looked up where transformers keeps its downloads, and fetched only if that is allowed. No code of a model's repository is run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.evidence.errors import BadFileError, InputError, NotOfferedError
from probes.ladder.text import Counter, weigh

LONGEST_TEMPLATE = 1 << 20
# It talks on standard error while it is imported, and warns of threads in a process that forks; neither is for the user.
_HUSH = {"TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}


@dataclass(slots=True)
class ModelTokenizer:
    """A tokenizer that was opened. All counts are without special tokens unless said otherwise."""

    name: str
    inner: Any = field(repr=False)

    def tokenize(self, text: str) -> list[int]:
        """Give the token ids of raw text, without special tokens."""
        # ``verbose`` off: transformers warns of any text longer than the model's window, which is just what is tested here.
        return [int(i) for i in self.inner(text, add_special_tokens=False, verbose=False)["input_ids"]]

    def count(self, text: str) -> int:
        """Count the tokens of raw text, without special tokens."""
        return len(self.tokenize(text))

    def detokenize(self, ids: Sequence[int]) -> str:
        """Give the text of token ids, as it was."""
        return str(self.inner.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    @property
    def has_template(self) -> bool:
        """Whether it carries a chat template."""
        return bool(getattr(self.inner, "chat_template", None))

    def chat_text(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Give a chat as the template writes it, ready for the answer. NotOfferedError where there is no template or it fails."""
        if not self.has_template:
            raise NotOfferedError(
                f"the tokenizer {self.name} has no chat template: chat tokens can only be counted by the server"
            )
        if len(str(self.inner.chat_template)) > LONGEST_TEMPLATE:
            raise NotOfferedError(
                f"the chat template of {self.name} is longer than 1 MiB: chat tokens can only be counted by the server"
            )
        try:
            return str(
                self.inner.apply_chat_template([dict(m) for m in messages], tokenize=False, add_generation_prompt=True)
            )
        except Exception as e:  # a template is a program of the model's maker and may raise anything
            raise NotOfferedError(
                f"the chat template of {self.name} failed ({type(e).__name__}): chat tokens can only be counted by the server"
            ) from e

    def count_chat(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Count a chat's prompt tokens, template included (which writes its own special tokens)."""
        return self.count(self.chat_text(messages))

    def counter(self) -> Counter:
        """Give it as the ladder's counter."""
        return Counter(
            count=self.count, tokenize=self.tokenize, detokenize=self.detokenize, name=f"transformers: {self.name}"
        )


def open_tokenizer(where: str, *, fetch: bool = False) -> ModelTokenizer:
    """Open ``--tokenizer``: a folder with tokenizer files, a ``tokenizer.json``, a ``.gguf`` is refused with the reason, or a model's name.

    A name is read from the local cache of transformers; ``fetch`` allows a download. BadFileError for a file or folder that is no tokenizer,
    InputError for a name that cannot be had.
    """
    path = Path(where).expanduser()
    if path.suffix.lower() == ".gguf":
        raise BadFileError(
            f"{path.name} is a model file: give --tokenizer the folder that holds its tokenizer.json, or leave it out"
        )
    for name, value in _HUSH.items():
        os.environ.setdefault(name, value)
    if path.is_file():
        return _open_file(path)
    if path.is_dir():
        return ModelTokenizer(path.name, _from_pretrained(str(path), where, local=True))
    if os.sep in where and not _is_name(where):
        raise BadFileError(f"{where} does not exist: give --tokenizer a folder with tokenizer.json, or a model's name")
    return ModelTokenizer(where, _from_pretrained(where, where, local=not fetch))


def _is_name(where: str) -> bool:
    """Whether it looks like owner/name."""
    parts = where.split("/")
    return len(parts) == 2 and all(p and not p.startswith((".", "~")) for p in parts)


def _open_file(path: Path) -> ModelTokenizer:
    if path.stat().st_size > 256 << 20:
        raise BadFileError(f"{path.name} is larger than 256 MiB: that is no tokenizer.json")
    try:
        import transformers  # noqa: PLC0415 (heavy, and only when used)

        make: Any = transformers.PreTrainedTokenizerFast
        return ModelTokenizer(path.name, make(tokenizer_file=str(path)))
    except Exception as e:  # the reader raises bare exceptions for what is no tokenizer
        raise BadFileError(
            f"{path.name} is not a tokenizer.json that can be read ({type(e).__name__}): give the model's own"
        ) from e


def _from_pretrained(source: str, shown: str, *, local: bool) -> Any:
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 (heavy, and only when used)

        return AutoTokenizer.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    except Exception as e:  # many kinds, from a missing file to a bad regular expression
        if Path(source).is_dir():
            raise BadFileError(
                f"{shown} holds no tokenizer that can be read ({type(e).__name__}): it needs tokenizer.json"
            ) from e
        raise InputError(
            f"the tokenizer {shown} could not be had ({type(e).__name__}): give --tokenizer a folder with the model's tokenizer.json"
        ) from e


# --- calibration ---------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Calibrated:
    """Counts by comparison with counts that a server gave for other texts (its usage counter). Good to a few percent for text of the same kind."""

    per_weight: float
    overhead: float
    spread: float
    """How far the given counts were from what this would have said, the largest, as a share."""

    def count(self, text: str) -> int:
        """Guess the tokens of raw text, without what a template adds."""
        return round(self.per_weight * weigh(text))

    def count_chat(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Guess a chat's prompt tokens, template included."""
        return round(self.overhead + self.per_weight * sum(weigh(m.get("content", "")) for m in messages))

    def counter(self) -> Counter:
        """Give it as the ladder's counter. The first count of a real request tells how far off it is."""
        return Counter(count=self.count, name=f"calibration (within {self.spread:.1%})")


def calibrate(counts: Sequence[tuple[str, int]]) -> Calibrated:
    """Learn from (text, prompt tokens that the server counted for it, template included). Two texts of different length are needed.

    InputError where the counts make no sense: not rising with the text, or a server that counts nothing.
    """
    points = [(weigh(text), float(count)) for text, count in counts if count > 0]
    if len({w for w, _ in points}) < 2:
        raise InputError(
            "tokens cannot be counted: the server counted fewer than two different texts; give --tokenizer"
        )
    low, high = min(points), max(points)
    slope = (high[1] - low[1]) / (high[0] - low[0])
    if slope <= 0:
        raise InputError(
            "tokens cannot be counted: the server's counts do not rise with the text (does it truncate?); give --tokenizer"
        )
    overhead = max(0.0, low[1] - slope * low[0])
    spread = max(abs(count - (overhead + slope * w)) / count for w, count in points)
    return Calibrated(slope, overhead, spread)
