"""The filler and the cut: seeded, nested, without verbatim repeats, exact to the token for few calls."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import BadFileError
from probes.ladder.canaries import VALUES
from probes.ladder.text import Counter, cut_to_tokens, generated, read_own, weigh
from tests.ladder.tokens import Tokens, split


def filler(seed: int, units: int) -> str:
    return "".join(u.text for u in itertools.islice(generated(seed), units))


def test_the_seed_alone_decides():
    """Same seed, same text; a longer text begins with the shorter one; another seed, another text."""
    assert filler(5, 400) == filler(5, 400)
    assert filler(5, 800).startswith(filler(5, 400))
    assert filler(5, 400) != filler(6, 400)


def test_every_kind_of_text_is_there():
    """Prose, code, logs and documentation, each with a share that can be noticed."""
    sizes: dict[str, int] = {}
    for unit in itertools.islice(generated(1), 6000):
        sizes[unit.kind] = sizes.get(unit.kind, 0) + len(unit.text)
    assert set(sizes) == {"prose", "code", "log", "docs"}
    assert min(sizes.values()) > 0.05 * sum(sizes.values())


def test_nothing_is_repeated_verbatim_for_long():
    """In 128K tokens of filler no stretch of 160 characters comes twice."""
    text = filler(2, 5500)
    assert len(text) > 400_000
    size, seen = 160, set()
    for start in range(0, len(text) - size, 20):
        seen.add(hash(text[start : start + size]))
    # Any repeat of 180 characters or more covers a window that begins at a multiple of 20 in its first copy, at any place in the second.
    repeats = [i for i in range(len(text) - size) if hash(text[i : i + size]) in seen and i % 20]
    assert not repeats


def test_filler_gives_no_answer_away():
    """No value of a canary stands in the filler, nor anything of a canary's form."""
    text = filler(3, 12_000)
    assert not {w.lower() for w in re.findall(r"[A-Za-z]+", text)} & set(VALUES)
    assert not re.search(r"[A-Z]{3,}-\d+\s*=", text)


@pytest.mark.parametrize("ids", [True, False])
def test_a_cut_is_near_exact_for_two_calls(ids):
    """A 128K text that was counted is cut within 0.1 % for two more calls, and to the token where there are ids."""
    tokens = Tokens()
    text = filler(4, 9000)
    counter = tokens.counter(ids=ids)
    known, known_ids = counter.ids(text)
    want = 131_072
    assert known > want
    cut, have = cut_to_tokens(text, want, counter, known=known, ids=known_ids)
    assert counter.calls <= 3
    assert len(split(text[:cut])) == have
    assert abs(have - want) <= (0 if ids else want * 0.001)


def test_a_tokenizer_that_normalises_is_searched_by_words():
    """Where the text of the ids is not ours, the cut is found by counting."""
    tokens = Tokens()
    counter = Counter(
        count=lambda t: len(tokens.tokenize(t)),
        tokenize=tokens.tokenize,
        detokenize=lambda ids: tokens.detokenize(ids).lower(),
    )
    text = filler(4, 1500)
    cut, have = cut_to_tokens(text, 20_000, counter, calls=4)
    assert len(split(text[:cut])) == have
    assert abs(have - 20_000) <= 20


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=0, max_size=400), st.integers(-5, 600))
def test_any_text_can_be_cut(text, want):
    """The cut is a beginning of the text, its count is the true one, and it never asks more than it may."""
    tokens = Tokens()
    counter = tokens.counter(ids=bool(len(text) % 2))
    cut, have = cut_to_tokens(text, want, counter, calls=2)
    assert 0 <= cut <= len(text)
    assert have == len(split(text[:cut]))
    assert counter.calls <= 3


def test_weight_compares_kinds_of_text():
    """By weight, a piece's share of a text's tokens is known within a fifth, whatever its kind."""
    pieces: dict[str, str] = {}
    for unit in itertools.islice(generated(8), 3000):
        pieces[unit.kind] = pieces.get(unit.kind, "") + unit.text
    whole = "".join(pieces.values())
    scale = len(split(whole)) / weigh(whole)
    for text in pieces.values():
        assert weigh(text) * scale == pytest.approx(len(split(text)), rel=0.2)


class TestOwnText:
    """A user's own files: read once, bounded, never followed out of the folder."""

    def test_files_are_read_and_then_filler_follows(self, tmp_path):
        """Own text first, in an order by seed; where it ends the project's filler goes on."""
        for n in range(6):
            (tmp_path / f"{n}.txt").write_text(f"my own line {n}\nand a second one\n")
        own = read_own(tmp_path, seed=1)
        assert own.files == 6
        units = list(itertools.islice(own.stream(1), 40))
        assert [u.kind for u in units[:12]] == ["own"] * 12
        assert units[12].kind != "own"
        assert read_own(tmp_path, seed=2).units != own.units

    def test_what_is_no_text_is_left_out(self, tmp_path):
        """Binary files, hidden folders, links and unreadable encodings are left out and counted; long lines are cut, nothing is lost."""
        (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 10)
        (tmp_path / "b.txt").write_bytes("ä".encode("utf-16-le") * 200)
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "x.txt").write_text("hidden")
        (tmp_path / "long.txt").write_text("x" * 5000)
        (tmp_path / "link.txt").symlink_to("/etc/hostname")
        own = read_own(tmp_path)
        assert own.files == 1
        assert own.left_out == 3
        assert "".join(u.text for u in own.units) == "x" * 5000 + "\n\n"
        assert max(len(u.text) for u in own.units) <= 2002

    def test_a_folder_without_text_is_said(self, tmp_path):
        """One line that says what to do."""
        with pytest.raises(BadFileError, match="--text"):
            read_own(tmp_path)
        with pytest.raises(BadFileError, match="not a folder"):
            read_own(tmp_path / "none")

    def test_a_pipe_is_not_opened(self, tmp_path):
        """A named pipe in the folder does not make the tool hang."""
        import os

        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "a.txt").write_text("text")
        assert read_own(tmp_path).files == 1


def test_a_lying_tokenizer_is_survived():
    """Counts at random never break the cut, only its quality."""
    rng = random.Random(1)
    counter = Counter(count=lambda _t: rng.randrange(0, 5000))
    cut, _have = cut_to_tokens(filler(1, 500), 1000, counter, calls=6)
    assert cut >= 0
