"""The questionnaire as data: what is asked, why, in which words, when, and which fact the answer feeds.

The interview (``diagnose.interview``), an answers file (``diagnose.answers_file``) and a replayed report use the same questions. Core
questions come before the first probe, at most seven for any symptom. A follow-up is asked only while the fact that it feeds can still
change the verdict; what can be found out by looking is looked at first and only confirmed. Every question takes "I don't know".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from probes.evidence.words import Words, words

AnswerType = Literal["choice", "many", "tokens", "number", "text", "yes-no"]
"""``choice``: one id; ``many``: a tuple of ids; ``tokens``: int, a length in tokens; ``number``: float in ``unit``; ``yes-no``: bool."""

Value = str | int | float | bool | tuple[str, ...] | None
"""One answer's value as it is kept. None is "I don't know"."""

DO_NOT_KNOW = "dont-know"
"""What stands for "I don't know" in an answers file."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that can be chosen."""

    id: str
    words: Words


@dataclass(frozen=True, slots=True)
class Is:
    """Another question was answered with one of ``ids`` (yes/no: "yes", "no"; "any": answered at all)."""

    question: str
    ids: tuple[str, ...]

    def holds(self, answers: Mapping[str, Value]) -> bool | None:
        """Say whether it holds; None while the other question is open, or was answered with "I don't know"."""
        value = answers.get(self.question)
        if value is None:
            return None
        if "any" in self.ids:
            return True
        if isinstance(value, bool):
            return ("yes" if value else "no") in self.ids
        given = value if isinstance(value, tuple) else (str(value),)
        return any(one in self.ids for one in given)

    def document(self) -> dict[str, Any]:
        """Give the condition as plain data."""
        return {"question": self.question, "one_of": list(self.ids)}


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of these holds."""

    tests: tuple[Is | AnyOf | AllOf, ...]

    def holds(self, answers: Mapping[str, Value]) -> bool | None:
        """Say whether one holds (Kleene)."""
        found = [test.holds(answers) for test in self.tests]
        return True if True in found else None if None in found else False

    def document(self) -> dict[str, Any]:
        """Give the condition as plain data."""
        return {"any_of": [test.document() for test in self.tests]}


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of these hold."""

    tests: tuple[Is | AnyOf | AllOf, ...]

    def holds(self, answers: Mapping[str, Value]) -> bool | None:
        """Say whether all hold (Kleene)."""
        found = [test.holds(answers) for test in self.tests]
        return False if False in found else None if None in found else True

    def document(self) -> dict[str, Any]:
        """Give the condition as plain data."""
        return {"all_of": [test.document() for test in self.tests]}


AskedWhen = Is | AnyOf | AllOf


@dataclass(frozen=True, slots=True)
class Question:
    """One question. ``fact`` is the id of the fact that the answer feeds (for ``many``, the fact is the set of ids chosen)."""

    id: str
    words: Words
    why: Words
    type: AnswerType
    fact: str
    choices: tuple[Choice, ...] = ()
    asked_when: AskedWhen | None = None
    core: bool = False
    detectable: bool = False
    """Whether a live server, its machine or its log may tell it: then it is only confirmed."""
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    example: str = field(default="", compare=False)

    def applies(self, answers: Mapping[str, Value]) -> bool | None:
        """Say whether it makes sense after these answers; None where that is still open."""
        return True if self.asked_when is None else self.asked_when.holds(answers)

    def choice_ids(self) -> tuple[str, ...]:
        """Give the ids that may be chosen; empty for types without choices."""
        return tuple(choice.id for choice in self.choices)


def _c(name: str, text: Words) -> Choice:
    return Choice(name, text)


def _is(question_id: str, *ids: str) -> Is:
    return Is(question_id, ids)


_OOM = _is("symptom", "immediate-oom")
_FIXED = _is("symptom", "fixed-length-error")
_SLOW = _is("symptom", "slow-long-context")
_FORGETS = _is("symptom", "forgetting")
_FLAKY = _is("symptom", "flaky")
_FAILS = _is("symptom", "immediate-oom", "fixed-length-error", "flaky")
_FAILS_LATER = _is("symptom", "fixed-length-error", "flaky")
_WRONG = _is("symptom", "forgetting", "flaky", "fixed-length-error")
_SLOW_OR_FLAKY = _is("symptom", "slow-long-context", "flaky")
_MEMORY = AnyOf(
    (
        _OOM,
        _is("error_kind", "gpu-memory", "one-piece", "memory-guard", "host-memory", "create-context"),
        _SLOW_OR_FLAKY,
    )
)
_UPGRADED = _is("changed", "server", "driver", "client")

CORE: tuple[Question, ...] = (
    Question(
        "symptom",
        words("What goes wrong?"),
        words("It decides which causes are looked at first. None is closed by it."),
        "choice",
        "symptom",
        (
            _c("immediate-oom", words("It does not load or start: out of memory, or it fails at once")),
            _c("fixed-length-error", words("It fails with an error at a certain length, or whenever the text is long")),
            _c("slow-long-context", words("It works, but it is too slow")),
            _c("forgetting", words("It answers, but forgets, ignores the text, or writes nonsense")),
            _c("flaky", words("Sometimes it works and sometimes it fails, with the same settings")),
        ),
        core=True,
    ),
    Question(
        "when",
        words("When does it happen? Choose everything that fits."),
        words(
            "The moment of the failure tells which piece of memory, which limit or which part of the program is at work."
        ),
        "many",
        "told.when",
        (
            _c("at-load", words("While the model loads or the server starts")),
            _c("first-request", words("At the first request, even a short one")),
            _c("long-prompt", words("Only when the prompt is long")),
            _c("long-answer", words("In the middle of a long answer")),
            _c("window-full", words("When the chat has filled its window")),
            _c("second-turn", words("From the second message on; the first answer is right")),
            _c("over-time", words("After hours of use, or after many requests")),
            _c("together", words("When several requests come at the same time")),
            _c("with-picture", words("When a picture is sent")),
            _c("after-restart", words("Right after the server was restarted or the model was loaded again")),
            _c("after-sleep", words("After the computer slept")),
            _c("after-idle", words("After a pause of a minute or more between two messages")),
            _c("under-load", words("After some minutes of hard work, whatever the length")),
            _c("repeated-prompt", words("When a prompt begins like an earlier one")),
            _c("now-and-then", words("Now and then, without a pattern")),
            _c("always", words("Always, also with short texts")),
        ),
        core=True,
    ),
    Question(
        "changed",
        words("What changed before it began? Choose everything that fits."),
        words("What worked before and fails now usually fails because of what changed last."),
        "many",
        "told.changed",
        (
            _c("nothing", words("Nothing that I know of")),
            _c("never-worked", words("It never worked; this is the first try")),
            _c("server", words("The server program was updated, or replaced by another")),
            _c("client", words("The program that talks to the server was updated, or replaced")),
            _c("driver", words("The graphics driver or the operating system was updated")),
            _c("model", words("Another model or another file of it")),
            _c("window", words("A longer window")),
            _c("cache-type", words("The number format of the cache (KV cache type)")),
            _c("speculation", words("A draft model, MTP or another kind of speculation was turned on")),
            _c("slots", words("More parallel requests or slots")),
            _c("batch", words("The batch or micro-batch size")),
            _c("hardware", words("A card was added, moved or replaced")),
            _c("split", words("How the model is spread over cards and memory")),
            _c("other-setting", words("Another setting")),
        ),
        core=True,
    ),
    Question(
        "window_wanted",
        words("How long should the window be, in tokens?"),
        words("It is the goal that is tested. A window that covers the work is enough; longer costs memory and speed."),
        "tokens",
        "told.window_wanted",
        core=True,
        low=1,
        high=20_000_000,
        unit="tokens",
        example="131072 or 128K",
    ),
    Question(
        "speed_wanted",
        words("How many tokens per second must the answer come at, at least?"),
        words("Below it a length counts as too slow, even if it works."),
        "number",
        "told.speed_wanted",
        core=True,
        low=0,
        high=100_000,
        unit="tokens/s",
        example="10",
    ),
    Question(
        "requests_at_once",
        words("How many requests run at the same time, at most?"),
        words(
            "Parallel requests share the window or multiply the memory. Agents and titles of chats count as requests too."
        ),
        "number",
        "told.requests_at_once",
        core=True,
        low=1,
        high=100_000,
        unit="requests",
        example="1",
    ),
    Question(
        "client",
        words("Which kind of program sends the requests?"),
        words("Some programs cut, change or time out prompts themselves."),
        "choice",
        "told.client",
        (
            _c("own-page", words("The server's own page, app or command line")),
            _c("chat-app", words("A chat application or front end, such as Open WebUI or SillyTavern")),
            _c("agent", words("A coding agent or another agent")),
            _c("retrieval", words("A program that adds documents to the prompt (retrieval, RAG)")),
            _c("script", words("A script or program of my own")),
            _c("benchmark", words("A benchmark or load test")),
            _c("proxy", words("Another program behind a proxy or router")),
        ),
        core=True,
    ),
)

_ERRORS: tuple[Question, ...] = (
    Question(
        "error_text",
        words("What does the error say, word for word? Paste the lines around it too."),
        words("The exact words tell which allocation or limit failed. It is read like a log."),
        "text",
        "told.error_text",
        asked_when=AnyOf((_FAILS, _FORGETS)),
        detectable=True,
    ),
    Question(
        "error_kind",
        words("What is the error about, as far as it says?"),
        words("Out of memory, a refused length and a lost card need different, sometimes opposite, changes."),
        "choice",
        "told.error_kind",
        (
            _c("gpu-memory", words("Out of memory on the graphics card")),
            _c("one-piece", words("One buffer is larger than the largest allowed")),
            _c("host-memory", words("The system's memory: refused, or the program was killed")),
            _c("memory-guard", words("The server's own memory limit or guard stopped it")),
            _c("create-context", words("The context or cache could not be created, without a word about why")),
            _c("too-long", words("The prompt is longer than the window, or the context is exceeded")),
            _c("no-room", words("No free slot, no room in the cache")),
            _c("shift", words("Context shift")),
            _c("needs-setting", words("A setting needs another one, or is not supported")),
            _c("device-lost", words("The card was lost, hung, timed out, or is not ready")),
            _c(
                "kernel",
                words(
                    "A CUDA, HIP, Metal or Vulkan error that is not about memory: invalid argument, illegal access, launch failed"
                ),
            ),
            _c("timeout", words("A timeout, or the connection was closed")),
            _c("too-many", words("Too many requests, or the server is busy")),
            _c("internal", words("An internal error, assertion or crash that names none of these")),
            _c("machine-restarts", words("The whole computer stops or restarts")),
            _c("none", words("There is no error message")),
        ),
        asked_when=AnyOf((_FAILS, _FORGETS)),
        detectable=True,
    ),
    Question(
        "failed_while",
        words("What was the server doing when it failed?"),
        words("Weights, cache, working buffers, reading and writing take memory one after the other."),
        "choice",
        "told.failed_while",
        (
            _c("weights", words("Loading the weights")),
            _c("cache", words("Making the cache or the context, after the weights")),
            _c("buffers", words("Reserving working buffers, warming up, or recording graphs, after the cache")),
            _c("reading", words("Reading the prompt")),
            _c("writing", words("Writing the answer")),
            _c("picture", words("Encoding a picture")),
            _c("restoring", words("Reusing or restoring an earlier prompt")),
            _c("idle", words("Nothing at that moment")),
        ),
        asked_when=_FAILS,
        detectable=True,
    ),
    Question(
        "fails_at",
        words("At how many tokens does it fail, or begin to go wrong?"),
        words("Limits of windows, timers and kernels leave their mark in this number."),
        "tokens",
        "told.fails_at",
        asked_when=AnyOf((_FIXED, _FORGETS, _SLOW_OR_FLAKY)),
        detectable=True,
        low=1,
        high=20_000_000,
        unit="tokens",
        example="72000",
    ),
    Question(
        "works_at",
        words("Up to how many tokens does it work well?"),
        words("The pair of lengths shows whether it is a step or a slope, and how far the limit is from the window."),
        "tokens",
        "told.works_at",
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="64000",
    ),
    Question(
        "same_length",
        words("Is the length at which it fails the same each time?"),
        words("An exact length speaks for a limit; a length that wanders, for memory that something else takes."),
        "choice",
        "told.same_length",
        (
            _c("exact", words("Exactly the same")),
            _c("about", words("About the same")),
            _c("varies", words("It varies")),
            _c("any", words("It does not depend on the length")),
        ),
        asked_when=AnyOf((_FAILS_LATER, _FORGETS)),
        detectable=True,
    ),
    Question(
        "smaller_batch",
        words("What happens with a smaller micro-batch (for example -ub halved, or a smaller prefill chunk)?"),
        words("A watchdog and a launch limit move with it; a memory wall of the cache does not."),
        "choice",
        "told.smaller_batch",
        (
            _c("cures", words("It works then")),
            _c("later", words("It fails at a greater length")),
            _c("same", words("No difference")),
            _c("worse", words("It fails earlier")),
        ),
        asked_when=AnyOf((_FAILS, _SLOW)),
    ),
    Question(
        "smaller_window",
        words("What happens with a smaller window?"),
        words("If the window does not matter, the cache is not the cause."),
        "choice",
        "told.smaller_window",
        (
            _c("cures", words("It works then, or is fast")),
            _c("same", words("No difference")),
        ),
    ),
    Question(
        "seconds_to_failure",
        words("How many seconds pass from sending until it fails?"),
        words("A round number of seconds (30, 60, 300, 600) is a timer of a client or proxy, not memory."),
        "number",
        "told.seconds_to_failure",
        asked_when=_FAILS_LATER,
        detectable=True,
        low=0,
        high=1_000_000,
        unit="s",
        example="300",
    ),
    Question(
        "same_seconds",
        words("Is it about the same number of seconds each time, whatever the length?"),
        words("A timer ends a request after a time; a limit ends it at a length."),
        "yes-no",
        "told.same_seconds",
        asked_when=_FAILS_LATER,
    ),
    Question(
        "retry_passes",
        words("Does the very same request pass when it is sent again?"),
        words("After a timeout the work that was done is still in the cache, so the second try is quick."),
        "yes-no",
        "told.retry_passes",
        asked_when=_FAILS_LATER,
    ),
    Question(
        "fresh_start",
        words("Does a fresh start of the server cure it?"),
        words("What a fresh start cures is a state that grew or went wrong, not a setting."),
        "choice",
        "told.fresh_start",
        (
            _c("cures", words("Yes")),
            _c("for-a-while", words("Yes, for a while")),
            _c("reboot-only", words("No, only a restart of the computer does")),
            _c("no", words("No")),
        ),
    ),
    Question(
        "new_chat",
        words("Is a new, empty chat right (or fast) again?"),
        words("Then the length is at work, or what is kept of the old chat, and not the card or the driver."),
        "yes-no",
        "told.new_chat",
        asked_when=AnyOf((_SLOW, _FORGETS, _FAILS_LATER)),
    ),
    Question(
        "random_reload",
        words("Does it change from one load of the model to the next, with nothing changed?"),
        words("Then it hangs by what happens to be free when the model is loaded."),
        "yes-no",
        "told.random_reload",
        asked_when=AnyOf((_SLOW_OR_FLAKY, _OOM)),
    ),
)

_COMPARED: tuple[Question, ...] = (
    Question(
        "older_version",
        words("Does the version before the update still work, with the same settings?"),
        words("Then the program's own default, estimate or code changed, and not your machine."),
        "yes-no",
        "told.older_version",
        asked_when=_UPGRADED,
    ),
    Question(
        "other_engine",
        words("How does another program do with the same model, window and machine?"),
        words("If another engine does it, model and hardware are able, and this engine or its settings are at fault."),
        "choice",
        "told.other_engine",
        (
            _c("works", words("It works there, or is clearly faster")),
            _c("same", words("The same trouble there")),
        ),
    ),
    Question(
        "other_models",
        words("How do other models do on the same server?"),
        words("One model alone points to its architecture; all of them, to the server or the machine."),
        "choice",
        "told.other_models",
        (
            _c("fine", words("Other models are fine")),
            _c("smaller-fine", words("Only smaller ones are fine")),
            _c("same", words("The same trouble with all")),
        ),
    ),
    Question(
        "other_machines",
        words("Was it seen on other machines too?"),
        words("The same fault on several makes of hardware is the program's; on one card alone it may be the card's."),
        "choice",
        "told.other_machines",
        (
            _c("many", words("Yes, on several kinds of hardware")),
            _c("one-kind", words("Only on this make of card")),
            _c("one", words("Only on this machine")),
        ),
    ),
    Question(
        "other_way_in",
        words("Does the same text work on another way in, such as the server's own page instead of the API?"),
        words("Then the model and its window are right, and the way in cuts or drops something."),
        "yes-no",
        "told.other_way_in",
        asked_when=AnyOf((_FORGETS, _FIXED, _SLOW)),
    ),
    Question(
        "other_client",
        words("Does another program work well with the same server and model?"),
        words("Then the client is at fault: its timeout, its window, or what it changes in the prompt."),
        "yes-no",
        "told.other_client",
    ),
)

_WINDOW: tuple[Question, ...] = (
    Question(
        "window_set",
        words("Where was the window set?"),
        words("A window that was set in one place often does not reach the place where the model is loaded."),
        "choice",
        "told.window_set",
        (
            _c("not-set", words("Nowhere: the program chose it")),
            _c("server-start", words("When the server was started: command line, environment, service file")),
            _c("config-file", words("In a configuration file of the server, or of a router before it")),
            _c("model", words("With the model: Modelfile, preset, load settings")),
            _c("request", words("In each request")),
            _c("client", words("In the client's own settings")),
        ),
    ),
    Question(
        "window_asked",
        words("Which window was set, in tokens?"),
        words("It is compared with the window that is really in force."),
        "tokens",
        "told.window_asked",
        asked_when=AnyOf(
            (
                _is("window_set", "server-start", "config-file", "model", "request", "client"),
                _is("symptom", "immediate-oom"),
            )
        ),
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="131072 or 128K",
    ),
    Question(
        "window_shown",
        words("Which window does the running server show, in tokens?"),
        words("If it is smaller than what was set, something on the way capped, divided or ignored it."),
        "tokens",
        "told.window_shown",
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="40960",
    ),
    Question(
        "window_trained",
        words("For which window was the model made, in tokens?"),
        words("Beyond it the engine caps the window, or needs position scaling."),
        "tokens",
        "told.window_trained",
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="32768",
    ),
    Question(
        "client_window",
        words("Which window does the client believe in, in tokens?"),
        words(
            "A client that plans with another window than the one loaded sends too much, cuts too early, or makes the server load too much."
        ),
        "tokens",
        "told.client_window",
        low=0,
        high=20_000_000,
        unit="tokens",
        example="200000",
    ),
    Question(
        "sent_tokens",
        words("How many tokens does the prompt have?"),
        words("Tokens sent are compared with tokens processed first of all."),
        "tokens",
        "told.sent_tokens",
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="12500",
    ),
    Question(
        "processed_tokens",
        words("How many prompt tokens did the server say it processed?"),
        words("Fewer than were sent is truncation, whatever the answer looks like."),
        "tokens",
        "told.processed_tokens",
        asked_when=AnyOf((_FORGETS, _FIXED, _FLAKY)),
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="1026",
    ),
    Question(
        "total_tokens",
        words("How many tokens do prompt and answer have together when it stops?"),
        words("A sum that is exactly a default window (2048, 4096) shows that the window asked for was not used."),
        "tokens",
        "told.total_tokens",
        asked_when=AnyOf((_FORGETS, _FIXED)),
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="4096",
    ),
    Question(
        "answer_reserve",
        words("How many tokens are reserved for the answer (max tokens, max new tokens)?"),
        words("In many programs the reserve is taken from the window before the prompt gets the rest."),
        "tokens",
        "told.answer_reserve",
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="4096",
    ),
    Question(
        "way_in",
        words("Which way does the request go in?"),
        words("Some ways in drop options, such as a window in an OpenAI-style request."),
        "choice",
        "told.way_in",
        (
            _c("openai", words("The OpenAI-style address (/v1/…)")),
            _c("anthropic", words("The Anthropic-style address (/v1/messages)")),
            _c("native", words("The server's own address (for example /api/chat or /completion)")),
            _c("page", words("The server's own page or command line")),
        ),
        asked_when=AnyOf((_FORGETS, _FIXED, _SLOW)),
    ),
    Question(
        "slots",
        words("How many slots or parallel requests is the server set up for?"),
        words("An explicit number divides the window or multiplies the memory; an automatic one shares it."),
        "number",
        "told.slots",
        detectable=True,
        low=0,
        high=100_000,
        unit="slots",
        example="4",
    ),
    Question(
        "slots_set",
        words("Was that number set by you, or chosen by the server?"),
        words("Chosen slots usually share one window; set slots divide it."),
        "choice",
        "told.slots_set",
        (_c("set", words("Set")), _c("chosen", words("Chosen by the server"))),
        detectable=True,
    ),
    Question(
        "alone_passes",
        words("Does the same request pass when it runs alone?"),
        words("Then the requests share something: a pool of cache, memory, or a limit on their number."),
        "yes-no",
        "told.alone_passes",
        asked_when=AnyOf((_FLAKY, _is("when", "together"))),
    ),
    Question(
        "said_truncated",
        words("Does anything say that the prompt was cut (a warning in the log, the page or the answer)?"),
        words("A cut prompt looks like a forgetful model."),
        "yes-no",
        "told.said_truncated",
        asked_when=_FORGETS,
        detectable=True,
    ),
)

_QUALITY: tuple[Question, ...] = (
    Question(
        "what_is_wrong",
        words("What is wrong with the answers? Choose everything that fits."),
        words("A lost beginning, word salad and weaker reasoning come from different causes."),
        "many",
        "told.what_is_wrong",
        (
            _c("beginning-lost", words("It does not know the beginning of the text, or the system prompt")),
            _c("all-but-end-lost", words("It knows only the last part")),
            _c("middle-lost", words("It misses things in the middle")),
            _c("made-up", words("It makes up what stands in the text")),
            _c("nonsense", words("Word salad, wrong letters, endless symbols")),
            _c("repeats", words("It repeats itself, or goes round in circles")),
            _c("reasoning", words("It finds facts, but reasons, counts or uses tools worse")),
            _c("lost-thread", words("It loses the thread of the conversation, or of its task")),
            _c("cut-off", words("The answer stops early, or is empty")),
            _c("score-fell", words("A benchmark score fell")),
        ),
        asked_when=_WRONG,
    ),
    Question(
        "short_is_right",
        words("Are short texts right?"),
        words("If short texts are wrong too, it is not the length that was written, but what was set or loaded."),
        "yes-no",
        "told.short_is_right",
        asked_when=AnyOf((_FORGETS, _FIXED)),
    ),
    Question(
        "worse_when",
        words("How does it get worse?"),
        words("A model that is weak at length fades; a window or a position limit is a step."),
        "choice",
        "told.worse_when",
        (
            _c("gradually", words("Little by little, the longer the text")),
            _c("step", words("Suddenly, past a certain length")),
            _c("turns", words("With the number of turns or hours, long before the window is full")),
            _c("allocated", words("As soon as a longer window is set, even with the same short prompt")),
            _c("setting", words("As soon as a certain setting is on, at any length")),
        ),
        asked_when=_FORGETS,
    ),
    Question(
        "cache_off",
        words("Is it right (or does it not fail) with the prompt cache off?"),
        words("Then what was kept of an earlier request is wrong, or takes the memory."),
        "yes-no",
        "told.cache_off",
        asked_when=_WRONG,
    ),
    Question(
        "same_beginning",
        words("Does it go wrong again and again for prompts with the same beginning, while others are right?"),
        words("Then a wrong piece of stored cache is used again."),
        "yes-no",
        "told.same_beginning",
        asked_when=_WRONG,
    ),
    Question(
        "position_scaling",
        words("Is position scaling (RoPE, YaRN, alpha) set, or missing?"),
        words("A wrong or missing scale ruins text beyond the trained length, or all of it."),
        "choice",
        "told.position_scaling",
        (
            _c("set", words("I set it")),
            _c("file", words("It comes from the model file, which is old or was converted by hand")),
            _c("auto", words("The program chooses it by the window")),
            _c("needed", words("The model's page says that it is needed for this length, and it is not set")),
            _c("none", words("Not set and not needed")),
        ),
        asked_when=AnyOf((_FORGETS, _FIXED)),
        detectable=True,
    ),
    Question(
        "shift_on",
        words("Is context shift (dropping the oldest text when the window is full) on?"),
        words("It keeps the answer going and forgets the beginning; with some caches it breaks."),
        "yes-no",
        "told.shift_on",
        asked_when=AnyOf((_FORGETS, _is("when", "window-full"))),
        detectable=True,
    ),
)

_SPEED: tuple[Question, ...] = (
    Question(
        "slow_part",
        words("Which part is slow?"),
        words("Reading is limited by computing and by what has to be read again; writing by memory speed."),
        "choice",
        "told.slow_part",
        (
            _c("reading", words("The time until the first word of the answer")),
            _c("writing", words("The speed of the words after that")),
            _c("both", words("Both")),
            _c("loading", words("Loading the model")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "slow_shape",
        words("How does the speed change?"),
        words("A slope is the ordinary price of length; a step is a memory that ran full, or a setting."),
        "choice",
        "told.slow_shape",
        (
            _c("slope", words("Slower and slower, smoothly, the longer the text")),
            _c("steep", words("Much worse than in proportion: twice the text is four times as slow or more")),
            _c("step", words("Suddenly slow past a certain length")),
            _c("always", words("Slow at every length, from the start")),
            _c("alternates", words("Some messages fast and some slow, in the same chat")),
            _c("over-time", words("Slower with hours of use")),
            _c("per-load", words("Fast after one load, slow after the next")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "speed_by_length",
        words("Which speeds were seen at which lengths? (tokens=speed, with commas)"),
        words("Two or three pairs show whether it is a step or a slope."),
        "text",
        "told.speed_by_length",
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
        example="4096=688, 8192=303, 28672=79",
    ),
    Question(
        "rereads",
        words("How much of a long chat does the server read again at each message?"),
        words("A prompt cache should leave only the new text to read."),
        "choice",
        "told.rereads",
        (
            _c("all", words("All of it, each time")),
            _c("some-thousand", words("A fixed part of some hundreds or thousands of tokens, each time")),
            _c("sometimes-all", words("Sometimes all of it, sometimes only the new text")),
            _c("only-new", words("Only the new text")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "same_prompt_again",
        words("Is the very same prompt fast when it is sent again?"),
        words(
            "It tells a cache that works for equal prompts from one that does not work, and from a prompt that changes."
        ),
        "choice",
        "told.same_prompt_again",
        (
            _c("second", words("Yes, the second time already")),
            _c("third", words("Only the third time")),
            _c("never", words("No, never")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "prefix_changes",
        words(
            "Does the client change something near the beginning of the prompt each time (date, counter, order of tools, a moving cut)?"
        ),
        words("One changed word at the front makes everything behind it new."),
        "yes-no",
        "told.prefix_changes",
        asked_when=_SLOW_OR_FLAKY,
    ),
    Question(
        "requests_between",
        words("Do other requests come between two messages of the chat (other users, agents, titles, summaries)?"),
        words("They may push the chat out of the cache."),
        "yes-no",
        "told.requests_between",
        asked_when=_SLOW_OR_FLAKY,
    ),
    Question(
        "busy",
        words("What is busy while it is slow?"),
        words(
            "An idle card with a busy processor means that work has left the card; both idle means waiting for a disk or a bus."
        ),
        "choice",
        "told.busy",
        (
            _c("gpu", words("The card is busy, the processor is not")),
            _c("gpu-low-power", words("The card says it is busy, but draws little power, or moves little memory")),
            _c("cpu", words("The processor is busy, the card is mostly idle")),
            _c("both", words("Both")),
            _c("neither", words("Neither")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "shared_memory",
        words("Does the card use shared memory (Windows: shared GPU memory; AMD on Linux: GTT) while it is slow?"),
        words("The driver moved what did not fit into slow system memory, without an error."),
        "yes-no",
        "told.shared_memory",
        asked_when=AnyOf((_SLOW_OR_FLAKY, _OOM)),
        detectable=True,
    ),
    Question(
        "disk",
        words("Is the disk busy, or does swap grow, meanwhile?"),
        words("Weights or memory that are fetched from the disk again and again are slower by a hundred times."),
        "choice",
        "told.disk",
        (
            _c("reads", words("The disk is read all the time")),
            _c("swap", words("Swap grows, or memory pressure is high")),
            _c("quiet", words("Neither")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "link",
        words("How are the cards connected?"),
        words("Over a slow link the traffic between cards, or between card and memory, is what limits."),
        "choice",
        "told.link",
        (
            _c("fast", words("Each in a fast slot, or over NVLink")),
            _c("slow", words("One or more over a slow link: x1 or x4, riser, Thunderbolt, USB4, network")),
        ),
        asked_when=AnyOf((_SLOW_OR_FLAKY, _is("several_gpus", "equal", "unequal", "several"))),
        detectable=True,
    ),
    Question(
        "one_card_faster",
        words("Is it faster on one card alone, or with fewer cards?"),
        words("Then the traffic between the cards costs more than the second card gains."),
        "yes-no",
        "told.one_card_faster",
        asked_when=AllOf((_SLOW_OR_FLAKY, _is("several_gpus", "equal", "unequal", "several"))),
    ),
)

_MACHINE: tuple[Question, ...] = (
    Question(
        "backend",
        words("Which server program runs the model?"),
        words("Each has its own defaults, limits and ways to cut a prompt."),
        "choice",
        "backend.name",
        (
            _c("llama.cpp", words("llama.cpp (llama-server), or a program around it")),
            _c("ik_llama.cpp", words("ik_llama.cpp")),
            _c("beellama.cpp", words("beellama.cpp or another fork of llama.cpp")),
            _c("llama-manager", words("llama-manager")),
            _c("llama-swap", words("llama-swap")),
            _c("ollama", words("Ollama")),
            _c("lm-studio", words("LM Studio")),
            _c("mlx_lm", words("mlx-lm")),
            _c("mlx-other", words("Another server on MLX")),
            _c("vllm", words("vLLM")),
            _c("sglang", words("SGLang")),
            _c("koboldcpp", words("KoboldCpp")),
            _c("tabbyapi", words("TabbyAPI (ExLlama)")),
            _c("text-generation-webui", words("text-generation-webui")),
            _c("llama-cpp-python", words("llama-cpp-python")),
            _c("openai-compatible", words("Another one with an OpenAI-style address")),
            _c("other", words("Another one")),
        ),
        detectable=True,
    ),
    Question(
        "os",
        words("Which operating system runs the server?"),
        words("Drivers treat memory and long jobs differently."),
        "choice",
        "told.os",
        (
            _c("linux", words("Linux")),
            _c("windows", words("Windows")),
            _c("wsl2", words("Linux inside Windows (WSL2)")),
            _c("macos", words("macOS")),
        ),
        detectable=True,
    ),
    Question(
        "gpu_maker",
        words("Whose graphics chips are used?"),
        words("Limits of one piece of memory, watchdogs and cache kernels differ from maker to maker."),
        "choice",
        "told.gpu_maker",
        (
            _c("nvidia", words("NVIDIA")),
            _c("amd", words("AMD")),
            _c("intel", words("Intel")),
            _c("apple", words("Apple")),
            _c("mixed", words("Of several makers")),
            _c("none", words("None: the processor only")),
        ),
        detectable=True,
    ),
    Question(
        "gpu_api",
        words("Through which interface does the server use them?"),
        words("Each interface has its own limits."),
        "choice",
        "told.gpu_api",
        (
            _c("cuda", words("CUDA")),
            _c("rocm", words("ROCm or HIP")),
            _c("vulkan", words("Vulkan")),
            _c("sycl", words("SYCL, oneAPI or Level Zero")),
            _c("metal", words("Metal or MLX")),
        ),
        detectable=True,
    ),
    Question(
        "several_gpus",
        words("How many graphics cards does the model use?"),
        words("Each card has its own limit; the sum is not one pool."),
        "choice",
        "told.several_gpus",
        (
            _c("one", words("One")),
            _c("equal", words("Several of one size")),
            _c("unequal", words("Several of different sizes")),
            _c("several", words("Several; I do not know their sizes")),
        ),
        detectable=True,
    ),
    Question(
        "gpu_gib",
        words("How much memory has the card, or all cards together, in GiB?"),
        words("It is compared with what the model and its window need."),
        "number",
        "told.gpu_gib",
        detectable=True,
        low=0,
        high=100_000,
        unit="GiB",
        example="24",
    ),
    Question(
        "ram_gib",
        words("How much system memory has the machine, in GiB?"),
        words("Stored prompts, mapped weights and page-locked buffers live there."),
        "number",
        "told.ram_gib",
        detectable=True,
        low=0,
        high=100_000,
        unit="GiB",
        example="64",
    ),
    Question(
        "weights_gib",
        words("How large are the model's weights, in GiB (the size of its file)?"),
        words("What the weights leave is all there is for cache and buffers."),
        "number",
        "told.weights_gib",
        detectable=True,
        low=0,
        high=100_000,
        unit="GiB",
        example="17",
    ),
    Question(
        "cache_gib",
        words("How large is the cache (KV), in GiB, where it was shown?"),
        words("A cache that is larger than the room beside the weights cannot fit; a small one is not the cause."),
        "number",
        "told.cache_gib",
        detectable=True,
        low=0,
        high=100_000,
        unit="GiB",
        example="12",
    ),
    Question(
        "loaded_gib",
        words("How much memory does the server say that the loaded model takes in all, in GiB?"),
        words("It shows what the window adds to the weights, and whether all of it can be on the card."),
        "number",
        "told.loaded_gib",
        detectable=True,
        low=0,
        high=100_000,
        unit="GiB",
        example="11",
    ),
    Question(
        "refused_gib",
        words("How large was the piece of memory that was refused, in GiB?"),
        words("A piece that is far larger than the cache is a working buffer, a copy or a mistake of the engine."),
        "number",
        "told.refused_gib",
        asked_when=_MEMORY,
        detectable=True,
        low=0,
        high=10_000_000,
        unit="GiB",
        example="4",
    ),
    Question(
        "room_left",
        words("How much memory was free on the card when it failed or became slow?"),
        words("A failure with plenty free is not an ordinary lack of memory."),
        "choice",
        "told.room_left",
        (
            _c("plenty", words("Plenty: more than what was asked for")),
            _c("little", words("Little or nothing")),
            _c("nearly-all", words("The card was almost empty")),
        ),
        asked_when=_MEMORY,
        detectable=True,
    ),
    Question(
        "which_card",
        words("With several cards: which one was full?"),
        words("One full card beside an empty one is a matter of the split, not of the size."),
        "choice",
        "told.which_card",
        (
            _c("one", words("One was full while another had room")),
            _c("all", words("All were full")),
            _c("none", words("None was full")),
        ),
        asked_when=AnyOf((_is("several_gpus", "equal", "unequal", "several"), _is("changed", "hardware", "split"))),
        detectable=True,
    ),
    Question(
        "split",
        words("Who decides how the model is spread over the cards?"),
        words("A split by weights alone leaves no room for the cache."),
        "choice",
        "told.split",
        (
            _c("automatic", words("The program")),
            _c("set", words("I set shares for each card")),
            _c("tensor", words("Every layer over all cards (tensor parallel, row or graph split)")),
            _c("single", words("One card only")),
        ),
        asked_when=AnyOf((_is("several_gpus", "equal", "unequal", "several"), _is("changed", "hardware", "split"))),
        detectable=True,
    ),
    Question(
        "other_split",
        words("Does it work with another split, another order of cards, or a reserve on each?"),
        words("Then the memory is there, and only its place was wrong."),
        "yes-no",
        "told.other_split",
        asked_when=AnyOf((_is("several_gpus", "equal", "unequal", "several"), _is("changed", "hardware", "split"))),
    ),
    Question(
        "one_card_works",
        words("Does it need less memory, or work, with one card only or with pipeline parallelism off?"),
        words("Several cards may make the engine keep several copies of its buffers."),
        "yes-no",
        "told.one_card_works",
        asked_when=_is("several_gpus", "equal", "unequal", "several"),
    ),
    Question(
        "memory_after",
        words("What does the memory do right after the failure?"),
        words("A peak that passes is a working buffer; memory that stays is a cache, a leak, or another process."),
        "choice",
        "told.memory_after",
        (
            _c("falls", words("It falls back at once")),
            _c("stays", words("It stays full")),
        ),
        asked_when=_FAILS,
        detectable=True,
    ),
    Question(
        "memory_grows",
        words("Which memory grows over hours or requests?"),
        words("Stored prompts and checkpoints grow in system memory, where the card's monitor does not see them."),
        "choice",
        "told.memory_grows",
        (
            _c("ram", words("The system's memory")),
            _c("gpu", words("The card's memory")),
            _c("both", words("Both, or the one memory that they share")),
            _c("none", words("None")),
        ),
        asked_when=_SLOW_OR_FLAKY,
        detectable=True,
    ),
    Question(
        "others_on_gpu",
        words("What else uses the card? Choose everything that fits."),
        words("What another program holds is not there for the model, and it may come and go."),
        "many",
        "told.others_on_gpu",
        (
            _c("nothing", words("Nothing")),
            _c("screen", words("The screen, a browser, a game")),
            _c("other-program", words("Another program that computes: images, speech, another server")),
            _c("same-server", words("A second process or model of the same server")),
            _c("earlier-run", words("An earlier run that has not ended, or has just been stopped")),
        ),
        asked_when=_MEMORY,
        detectable=True,
    ),
    Question(
        "on_gpu",
        words("Where are the model's weights?"),
        words("Layers in system memory are slower by an order, and their weights may have to be copied for each step."),
        "choice",
        "told.on_gpu",
        (
            _c("all", words("All on the card")),
            _c("some-layers", words("Some layers in system memory")),
            _c("experts", words("The experts (MoE) in system memory")),
            _c("none", words("All in system memory, no card used")),
        ),
        detectable=True,
    ),
    Question(
        "layers_fell",
        words("Did fewer layers go to the card than before, or than expected?"),
        words("A longer window can push layers off the card without an error."),
        "yes-no",
        "told.layers_fell",
        asked_when=AnyOf((_SLOW_OR_FLAKY, _OOM)),
        detectable=True,
    ),
    Question(
        "gpu_seen",
        words("Does the system still see the card afterwards?"),
        words(
            "A card that is gone from the bus is a fault of hardware or driver; one that is still there was lost by the program alone."
        ),
        "choice",
        "told.gpu_seen",
        (
            _c("gone", words("No, it is gone, or its tool reports an error")),
            _c("unused", words("Yes, but the server computes on the processor")),
            _c("fine", words("Yes, and it works")),
        ),
        asked_when=AnyOf((_FAILS_LATER, _SLOW)),
        detectable=True,
    ),
    Question(
        "kernel_log",
        words(
            "What does the system's log (dmesg, journal, event viewer) say at that time? Choose everything that fits."
        ),
        words("The kernel says what the program cannot: a killed process, a hung card, a bus error."),
        "many",
        "told.kernel_log",
        (
            _c("nothing", words("Nothing")),
            _c("gpu-timeout", words("A job of the card took too long, was reset, or the driver was restarted")),
            _c("bus", words("The card fell off the bus, or a bus error (Xid 79, AER)")),
            _c("card-error", words("Another error of the card: memory (ECC), page fault, firmware")),
            _c("killed", words("The kernel killed a process for lack of memory")),
            _c("panic", words("The kernel itself stopped (panic)")),
        ),
        asked_when=AnyOf((_FAILS_LATER, _SLOW)),
        detectable=True,
    ),
    Question(
        "power",
        words("Does it hang by the load of the card: power, heat, cable, riser, power supply?"),
        words("If it goes away with a lower power limit or in another slot, it is the hardware."),
        "choice",
        "told.power",
        (
            _c("yes", words("Yes: it goes away with less power, other cables, another slot or another supply")),
            _c("load", words("It comes under heavy load only; nothing was tried")),
            _c("no", words("No")),
        ),
        asked_when=_FLAKY,
    ),
)

_SETTINGS: tuple[Question, ...] = (
    Question(
        "cache_type",
        words("In which number format is the cache kept (KV cache type)?"),
        words("It sets what one token costs; not every format works on every card and with every setting."),
        "choice",
        "told.cache_type",
        (
            _c("f16", words("16 bits (f16 or bf16), or nothing was set")),
            _c("q8", words("8 bits (q8_0, fp8, int8)")),
            _c("q5-q6", words("5 or 6 bits")),
            _c("q4", words("4 bits or fewer")),
            _c("quantised", words("Quantised; I do not know how far")),
            _c("mixed", words("Different for keys and values")),
            _c("other", words("Another one, or a format of this program only")),
        ),
        detectable=True,
    ),
    Question(
        "cache_more_bits",
        words("What happens with a cache of more bits (16, or 8 instead of 4)?"),
        words("If the trouble goes away, the format is at fault and not the length."),
        "choice",
        "told.cache_more_bits",
        (
            _c("cures", words("It works, is right, or is fast")),
            _c("same", words("No difference")),
            _c("no-room", words("It does not fit")),
        ),
        asked_when=_is("cache_type", "q8", "q5-q6", "q4", "quantised", "mixed", "other"),
    ),
    Question(
        "flash_attention",
        words("Is flash attention on?"),
        words("A quantised cache needs it, and the working memory is much larger without it."),
        "choice",
        "told.flash_attention",
        (
            _c("on", words("On")),
            _c("off", words("Off")),
            _c("forced-off", words("Asked for, but the program turned it off for this model or card")),
            _c("auto", words("The program decides")),
        ),
        detectable=True,
    ),
    Question(
        "flash_attention_turned",
        words("What happens when flash attention is switched the other way?"),
        words("It is another kernel for the same work: what goes away with it was the kernel's."),
        "choice",
        "told.flash_attention_turned",
        (
            _c("cures", words("It works, is right, or is fast")),
            _c("same", words("No difference")),
            _c("worse", words("It is worse, or does not fit")),
        ),
    ),
    Question(
        "speculation",
        words("Is speculation in use (a draft model, MTP, EAGLE)?"),
        words("It takes memory of its own, and at length it may cost more than it gains."),
        "choice",
        "told.speculation",
        (
            _c("none", words("No")),
            _c("draft", words("A separate draft model")),
            _c("built-in", words("A head of the model itself (MTP, EAGLE)")),
            _c("lookup", words("From the text (n-gram, lookup)")),
        ),
        detectable=True,
    ),
    Question(
        "speculation_off",
        words("What happens with speculation off?"),
        words("It is the change that costs no quality at all."),
        "choice",
        "told.speculation_off",
        (
            _c("cures", words("It fits, works, or is faster")),
            _c("same", words("No difference")),
        ),
        asked_when=_is("speculation", "draft", "built-in", "lookup"),
    ),
    Question(
        "draft_window",
        words("Has the draft a window of its own, in tokens?"),
        words("A draft whose window is full drafts in vain; one that inherits the whole window takes its memory."),
        "tokens",
        "told.draft_window",
        asked_when=_is("speculation", "draft", "built-in"),
        detectable=True,
        low=0,
        high=20_000_000,
        unit="tokens",
        example="4096",
    ),
    Question(
        "projector",
        words("Is a part for pictures or sound (projector, mmproj) loaded?"),
        words("It takes memory beside the model, and a peak while it encodes."),
        "yes-no",
        "told.projector",
        detectable=True,
    ),
    Question(
        "projector_off",
        words("What happens without it, or without pictures?"),
        words("It can be left out, or moved to the processor, at no cost for text."),
        "choice",
        "told.projector_off",
        (
            _c("cures", words("It works")),
            _c("same", words("No difference")),
        ),
        asked_when=AnyOf((_is("projector", "yes"), _is("when", "with-picture"))),
    ),
    Question(
        "micro_batch",
        words("Which micro-batch (llama.cpp -ub, or tokens in one prefill chunk) is set?"),
        words("Working memory and the time of one job grow with it."),
        "number",
        "told.micro_batch",
        detectable=True,
        low=1,
        high=10_000_000,
        unit="tokens",
        example="512",
    ),
    Question(
        "model_kind",
        words("What kind of model is it? Choose everything that fits."),
        words("Cache and speed follow other laws in each kind."),
        "many",
        "told.model_kind",
        (
            _c("plain", words("An ordinary one (Llama, Qwen2 and such)")),
            _c("sliding", words("With sliding-window layers (Gemma, gpt-oss and such)")),
            _c("hybrid", words("Hybrid or recurrent (Mamba, GDN, Qwen3-Next and later, LFM2 and such)")),
            _c("mla", words("With compressed attention (DeepSeek, GLM-4.7-Flash, Kimi and such)")),
            _c("moe", words("A mixture of experts")),
            _c("vision", words("With pictures")),
        ),
        detectable=True,
    ),
    Question(
        "self_sized",
        words("Did the server itself choose how much to put on the card (automatic fit, estimate, memory share)?"),
        words("Its estimate may be wrong for this model or card."),
        "yes-no",
        "told.self_sized",
        detectable=True,
    ),
    Question(
        "estimate",
        words("How does its estimate compare with what is really used?"),
        words("A planner that is far off places too much or too little."),
        "choice",
        "told.estimate",
        (
            _c("too-low", words("It expects less than is used")),
            _c("too-high", words("It expects far more than is used, or refuses what would fit")),
            _c("zero", words("It sees no free memory, or a wrong amount of it")),
            _c("wrong", words("It looks wrong; I cannot say which way")),
            _c("right", words("It is right")),
        ),
        detectable=True,
    ),
    Question(
        "need_excess",
        words(
            "Does the cache take more than it should for this model (by its maker, another program, or its arithmetic)?"
        ),
        words(
            "An engine that keeps whole-length cache for every layer needs several times more than the architecture does."
        ),
        "yes-no",
        "told.need_excess",
        detectable=True,
    ),
    Question(
        "stored_prompts",
        words("How large may the store of earlier prompts (prompt cache in system memory) grow, in GiB? 0 is off."),
        words("It lives outside the card, and by default it may take 8 GiB for each server process."),
        "number",
        "told.stored_prompts_gib",
        detectable=True,
        low=-1,
        high=100_000,
        unit="GiB",
        example="8",
    ),
    Question(
        "setting_has_effect",
        words("Does changing the setting make any difference at all?"),
        words("A setting that never reaches the loader changes nothing."),
        "yes-no",
        "told.setting_has_effect",
        asked_when=_is("window_set", "server-start", "config-file", "model", "request", "client"),
    ),
)

QUESTIONS: tuple[Question, ...] = CORE + _ERRORS + _COMPARED + _WINDOW + _QUALITY + _SPEED + _MACHINE + _SETTINGS
"""Every question, in the order in which they are asked."""

_BY_ID = {q.id: q for q in QUESTIONS}


def question(question_id: str) -> Question:
    """Give the question of that id. KeyError if there is none."""
    return _BY_ID[question_id]


def core_questions(answers: Mapping[str, Value] | None = None) -> tuple[Question, ...]:
    """Give what is asked before the first probe, after these answers: at most seven."""
    return tuple(q for q in CORE if q.applies(answers or {}) is not False)


def follow_ups(open_facts: Sequence[str], answers: Mapping[str, Value]) -> tuple[Question, ...]:
    """Give the follow-ups that could close one of ``open_facts``, in that order, not yet answered, and that make sense so far."""
    rank = {fact: n for n, fact in reversed(list(enumerate(open_facts)))}

    def first(one: Question) -> int | None:
        return min((rank[fact] for fact in closes(one.id) if fact in rank), default=None)

    wanted = [
        (place, number, one)
        for number, one in enumerate(QUESTIONS)
        if not one.core
        and one.id not in answers
        and (place := first(one)) is not None
        and one.applies(answers) is not False
    ]
    return tuple(one for _place, _number, one in sorted(wanted, key=lambda entry: entry[:2]))


@cache
def closes(question_id: str) -> frozenset[str]:
    """Give the ids of all facts that an answer can settle: the question's own, and those that are derived from it, however far."""
    from rules.derive import all_derivations  # noqa: PLC0415 - the rules are loaded only when somebody asks

    reached = {question(question_id).fact}
    ordered = all_derivations().ordered
    for one in ordered:  # each after those whose facts it needs
        if any(fact.id in reached for fact in one.needs):
            reached |= {fact.id for fact in one.gives}
    return frozenset(reached)


def to_document() -> list[dict[str, Any]]:
    """Give the questionnaire as the published interface's ``questions`` document, words in English."""
    return [
        {
            "id": q.id,
            "words": q.words.english,
            "why": q.why.english,
            "choices": [{"id": c.id, "words": c.words.english} for c in q.choices],
            "type": q.type,
            "asked_when": None if q.asked_when is None else q.asked_when.document(),
            "fact": q.fact,
            "core": q.core,
            "detectable": q.detectable,
            "unit": q.unit,
            "low": q.low,
            "high": q.high,
            "example": q.example or None,
        }
        for q in QUESTIONS
    ]
