"""The model's own tokenizer, opened only when used; and a count by calibration."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from probes.evidence.errors import BadFileError, InputError, NotOfferedError
from probes.ladder.rungs import build_ladder
from probes.tokenizer import calibrate, open_tokenizer
from tests.ladder.tokens import split


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A real, small tokenizer of the kind that models carry: byte-level pieces, trained on the ladder's own filler, with a chat template."""
    import itertools

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from probes.ladder.text import generated

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["".join(u.text for u in itertools.islice(generated(9), 300))], trainer)
    path = tmp_path_factory.mktemp("tokenizer")
    inner.save(str(path / "tokenizer.json"))
    template = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant: {% endif %}"
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": template,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


class TestOwn:
    """``--tokenizer``."""

    def test_ids_and_back(self, folder):
        """Text of every kind comes back as it was; no special token is counted; it says who counts."""
        own = open_tokenizer(str(folder))
        text = "Line one.\n\n  def f(a): return a  # 17\tüñí 漢字 🙂 <s>"
        assert own.detokenize(own.tokenize(text)) == text
        assert own.count("") == 0
        assert own.counter().name.startswith("transformers")

    def test_a_ladder_is_cut_to_the_token(self, folder):
        """With a real byte-pair tokenizer, for a few calls."""
        ladder = build_ladder([1024, 4096], open_tokenizer(str(folder)).counter(), seed=2)
        assert [r.tokens for r in ladder.rungs] == [960, 4032]
        assert ladder.calls <= 16

    def test_a_single_file_will_do(self, folder):
        """A tokenizer.json has no template; that is said where one is needed."""
        own = open_tokenizer(str(folder / "tokenizer.json"))
        assert own.count("hello there") > 0
        assert not own.has_template
        with pytest.raises(NotOfferedError, match="template"):
            own.count_chat([{"role": "user", "content": "hi"}])

    def test_a_chat_is_counted_with_its_template(self, folder):
        """Special tokens of the template count as one each."""
        own = open_tokenizer(str(folder))
        messages = [{"role": "user", "content": "hello there"}]
        assert own.chat_text(messages) == "<s>user: hello there</s><s>assistant: "
        assert own.count_chat(messages) == own.count("user: hello there") + own.count("assistant: ") + 3

    def test_a_template_that_fails_is_an_error_of_ours(self, folder):
        """It is a program of somebody else's."""
        own = open_tokenizer(str(folder))
        own.inner.chat_template = "{{ raise_exception('no system messages') }}"
        with pytest.raises(NotOfferedError, match="failed"):
            own.count_chat([{"role": "user", "content": "x"}])

    def test_what_is_no_tokenizer(self, folder, tmp_path):
        """Each with one line that says what to give."""
        (tmp_path / "tokenizer.json").write_text("{}")
        (tmp_path / "model.gguf").write_bytes(b"GGUF")
        (tmp_path / "empty").mkdir()
        for wrong in (
            tmp_path / "tokenizer.json",
            tmp_path / "model.gguf",
            tmp_path / "empty",
            tmp_path / "none" / "there",
        ):
            with pytest.raises(BadFileError, match=r"--tokenizer|tokenizer\.json"):
                open_tokenizer(str(wrong))

    def test_a_name_that_is_not_there_is_not_fetched(self):
        """Without leave nothing is downloaded."""
        with pytest.raises(InputError, match="--tokenizer"):
            open_tokenizer("nobody/no-such-model")

    def test_importing_it_does_not_import_transformers(self):
        """Only opening a tokenizer does."""
        code = "import sys, probes.tokenizer; sys.exit('transformers' in sys.modules or 'tokenizers' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


class TestCalibration:
    """Where a server only reports what it used."""

    def test_it_learns_weight_and_overhead(self):
        """A server that counts as the fake tokenizer does, plus 11 for its template."""
        import itertools

        from probes.ladder.text import generated

        text = "".join(u.text for u in itertools.islice(generated(5), 4000))
        used = [(text[:n], len(split(text[:n])) + 11) for n in (2000, 20_000, 60_000)]
        learned = calibrate(used)
        unseen = text[60_000:160_000]
        assert learned.count(unseen) == pytest.approx(len(split(unseen)), rel=0.05)
        assert learned.spread < 0.1
        assert "calibration" in learned.counter().name
        assert learned.count_chat([{"role": "user", "content": unseen}]) >= learned.count(unseen)

    def test_counts_that_make_no_sense(self):
        """One text only, or a server whose counts stand still because it truncates."""
        for wrong in ([], [("a b", 2)], [("a b", 0), ("a b c", 0)], [("a " * 10, 50), ("a " * 100, 50)]):
            with pytest.raises(InputError, match="--tokenizer"):
                calibrate(wrong)
