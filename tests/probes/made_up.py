"""A made-up server in this process: it reads its prompt as a perfect (or flawed) model would, and counts words as tokens."""

import re

from probes.backends.base import Ask, Backend
from probes.base import ProbeContext
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, WindowReading
from probes.ladder.canaries import NON_LITERAL
from probes.ladder.text import Counter


def pieces(text):
    return re.findall(r"\S+\s*|\s+", text)


def counter():
    vocabulary: dict[str, int] = {}
    words: list[str] = []

    def tokenize(text):
        ids = []
        for piece in pieces(text):
            if piece not in vocabulary:
                vocabulary[piece] = len(words)
                words.append(piece)
            ids.append(vocabulary[piece])
        return ids

    return Counter(
        count=lambda text: len(pieces(text)),
        tokenize=tokenize,
        detokenize=lambda ids: "".join(words[i] for i in ids),
        name="made up",
    )


class MadeUp(Backend):
    """``window``: longer prompts are refused; ``forgets_above``: facts in the first half are lost; ``cuts_above``: silently cut to that many tokens;
    ``by_meaning_up_to``: facts whose question shares no word with them are found up to that length; ``tells_twins``: names that are alike are told apart."""

    name = "made-up"

    def __init__(
        self,
        *,
        window=100_000,
        forgets_above=None,
        cuts_above=None,
        dies_above=None,
        style="completion",
        resumes=True,
        keeps_rules=True,
        by_meaning_up_to=0,
        tells_twins=True,
        prefill_tps=10_000.0,
    ):
        self.windowed = window
        self.forgets_above = forgets_above
        self.cuts_above = cuts_above
        self.dies_above = dies_above
        self.style = style
        self.resumes = resumes
        self.keeps_rules = keeps_rules
        self.by_meaning_up_to = by_meaning_up_to
        self.tells_twins = tells_twins
        self.speed = prefill_tps
        self.cache: list[str] = []
        self.asked: list[tuple[int, int]] = []

    @classmethod
    def recognise(cls, signs):
        return None

    def identity(self):
        return BackendIdentity(name=self.name)

    def model_identity(self):
        return ModelIdentity(name="made up")

    def window(self):
        return WindowReading(in_force=self.windowed)

    def configuration(self):
        return Configuration()

    def complete(self, ask: Ask) -> Completion:
        text = ask.prompt if ask.prompt is not None else ask.messages[-1]["content"]
        words = pieces(text)
        if len(words) > self.windowed:
            return Completion(
                error=RequestError(
                    error="exceeds-window",
                    status=400,
                    message="too long",
                    prompt_tokens=len(words),
                    window=self.windowed,
                )
            )
        if self.dies_above is not None and len(words) > self.dies_above:
            return Completion(error=RequestError(error="connection-lost", message="gone"))
        if self.cuts_above is not None and len(words) > self.cuts_above:
            words = words[-self.cuts_above :]
            text = "".join(words)
        cached = 0
        if ask.use_cache and self.resumes:
            for mine, new in zip(self.cache, words, strict=False):
                if mine != new:
                    break
                cached += 1
        self.cache = words
        self.asked.append((len(words), cached))
        done = max(1, len(words) - cached)
        generated = min(ask.max_tokens, 16)
        return Completion(
            prompt_tokens=len(words),
            cached_tokens=cached,
            processed_tokens=done,
            generated_tokens=generated,
            server_prompt_s=done / self.speed,
            server_generation_s=generated / 100,
            client_first_token_s=done / self.speed,
            client_total_s=done / self.speed + generated / 100,
            text=self.answer(text, len(words), chat=ask.messages is not None),
        )

    def answer(self, text, length, *, chat):
        if chat != (self.style == "question"):
            return "I would rather talk about the weather."
        facts = dict(re.findall(r"^([A-Z]+-\d+) = (\w+)\.", text, re.MULTILINE))
        if self.forgets_above is not None and length > self.forgets_above:
            half = text[len(text) // 2 :]
            facts = dict(re.findall(r"^([A-Z]+-\d+) = (\w+)\.", half, re.MULTILINE))
        for fact, question, end in NON_LITERAL:
            if text.endswith(question if chat else end):
                said = re.search(re.escape(fact).replace(r"\{name\}", r"(\w+)"), text)
                return said[1] if said and length <= self.by_meaning_up_to else "Nobody"
        if not self.tells_twins:
            facts = {key: next(v for k, v in facts.items() if k.split("-")[0] == key.split("-")[0]) for key in facts}
        if not chat:
            key = text.rsplit("\n", 1)[-1].removesuffix(" =").strip()
            return f" {facts.get(key, 'nothing')}."
        if "Answer with the new Python code" in text:
            name = re.search(r"must be called `(\w+)`", text)[1]
            signature = re.search(r"exactly the parameters `([^`]+)`", text)
            words = re.search(r"begins with `([^`]+)`", text)
            head = f"def {name if self.keeps_rules else 'other'}({signature[1] if signature else 'rows'}):\n"
            return f'```python\n{head}    """{words[1] if words else "Say."} done."""\n    return 1\n```'
        asked = re.findall(r"[A-Z]+-\d+", text.rsplit("The text above states", 1)[-1])
        return "\n".join(f"{key} = {facts.get(key, 'unknown')}" for key in asked if key != "NAME-NUMBER")


def context(backend, **more):
    return ProbeContext(backend=backend, counter=counter(), **more)
