"""The one document that a case becomes: what ``--format json`` prints, what every report is drawn from.

The keys follow the published contract; what stands beside it is optional and says so. Lengths are tokens, sizes bytes, times seconds, speeds
tokens per second. A value that cannot be told is None, and ``unknown`` (path → why) says why. Texts are English; ``messages`` holds the
sentence and values that a text was made of, so that a report can say it in another language.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from probes.evidence.records import SCHEMA_VERSION, Evidence, Record, Source, Text, Unavailable, Why
from probes.evidence.request import Outcome
from probes.evidence.words import Words

from .escape import plain_json

Symptom = Literal["immediate-oom", "fixed-length-error", "slow-long-context", "forgetting", "flaky"]


def _dashed(value: object) -> object:
    return value.replace(" ", "-").replace("_", "-") if isinstance(value, str) else value


Band = Annotated[
    Literal["disputed", "likely", "ruled-out", "possible", "open", "unlikely"],
    BeforeValidator(_dashed, json_schema_input_type=str),
]
TruthName = Literal["true", "false", "unknown"]
Prediction = Literal["held", "failed", "cannot-tell", "none"]
TestKind = Literal["change", "probe", "answer", "habit"]
Quality = Literal["none", "some", "much"]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]


class Part(Record):
    """Base of the parts: closed and immutable; a key that is a Python keyword is written under its own name."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)


class Tool(Part):
    """Who wrote the document."""

    name: str = "ctxdoctor"
    version: str


class RunStamp(Part):
    """One run of the case."""

    id: int = Field(ge=0)
    at: datetime | None = None


class CaseHead(Part):
    """Which case this is."""

    id: str
    symptom: Symptom | None = None
    created: datetime | None = None
    runs: tuple[RunStamp, ...] = ()


class Model(Part):
    """The model under test."""

    name: Text | None = None
    path: Text | None = None
    size_bytes: Count | None = None
    quantization: Text | None = None
    architecture: Text | None = None
    trained_window: Count | None = None
    header_hash: Text | None = None
    parameters: Count | None = Field(default=None, description="optional")


class Server(Part):
    """The server under test."""

    name: Text | None = None
    version: Text | None = None
    build: Text | None = None
    url: Text | None = Field(default=None, description="optional")
    how_run: Text | None = Field(
        default=None, description="optional: started by hand, by this tool, as a service, in a container"
    )
    command: tuple[Text, ...] | None = Field(
        default=None, description="optional: the server's command line, one word each"
    )
    environment: dict[str, Text] = Field(
        default_factory=dict, description="optional: environment variables that matter"
    )


class WindowValues(Part):
    """The windows as set and as found."""

    asked: Count | None = None
    trained: Count | None = None
    per_slot: Count | None = None
    slots: Count | None = None
    in_force: Count | None = None


class KvCache(Part):
    """How the attention state is kept."""

    type_k: Text | None = None
    type_v: Text | None = None
    placement: Text | None = None
    bytes_per_token: Amount | None = None
    unified: bool | None = None
    size_bytes: Count | None = Field(default=None, description="optional: as allocated")


class DeviceValues(Part):
    """One accelerator."""

    id: str
    name: Text | None = None
    vendor: Text | None = None
    total_bytes: Count | None = None
    free_bytes: Count | None = None
    driver: Text | None = None
    link: Text | None = None


class Hardware(Part):
    """The machine."""

    devices: tuple[DeviceValues, ...] = ()
    ram_bytes: Count | None = None
    os: Text | None = None
    cpu: Text | None = Field(default=None, description="optional")
    ram_available_bytes: Count | None = Field(default=None, description="optional")
    swap_bytes: Count | None = Field(default=None, description="optional")


class Placement(Part):
    """What lies where."""

    gpu_layers: int | Text | None = None
    tensor_split: Text | tuple[float, ...] | None = None
    split_mode: Text | None = None
    overrides: Text | tuple[Text, ...] | None = None
    layers: Count | None = Field(default=None, description="optional: how many the model has")


class Runtime(Part):
    """What else was set."""

    batch: Count | None = None
    ubatch: Count | None = None
    flash_attention: bool | Text | None = None
    parallel: Count | None = None
    speculation: Text | bool | None = None
    projector: Text | bool | None = None
    rope: Text | dict[str, Any] | None = None
    threads: int | None = None
    sampling: Text | dict[str, Any] | None = None
    output_tokens: Count | None = None


class Subject(Part):
    """What was under test."""

    model: Model = Model()
    backend: Server = Server()
    window: WindowValues = WindowValues()
    kv_cache: KvCache = KvCache()
    hardware: Hardware = Hardware()
    placement: Placement = Placement()
    runtime: Runtime = Runtime()


class CriteriaValues(Part):
    """The pass criteria, fixed before the first rung."""

    repeats: Count | None = None
    min_canaries: Amount | None = None
    min_of_own_base: Amount | None = None
    min_constraints: Amount | None = None
    min_prefill_tps: Amount | None = None
    min_generation_tps: Amount | None = None
    max_first_token_s: Amount | None = None
    margin_bytes: Count | None = None
    fixed_at: datetime | None = None
    hash: str | None = None


class DepthScore(Part):
    """Recall at one place of the text: ``depth`` 0 to 1; ``hit`` true or false, or the share that was recalled."""

    depth: float = Field(ge=0, le=1)
    hit: bool | float


class Canaries(Part):
    """Recall of one attempt. ``by_depth`` is its recall curve; facts whose question shares no word with them are counted apart, and only at some lengths."""

    hit: Count
    asked: Count
    by_depth: tuple[DepthScore, ...] = ()
    non_literal_hit: Count | None = Field(default=None, description="optional: of those whose question shares no word")
    non_literal_asked: Count | None = Field(default=None, description="optional: how many of those were asked")


class Constraints(Part):
    """Coding constraints of one attempt."""

    met: Count
    asked: Count


class DevicePeakValue(Part):
    """The most memory that one device held during an attempt."""

    id: str
    peak_bytes: Count


class Rung(Part):
    """One attempt at one length."""

    run: Count = 1
    input_tokens: Count
    output_tokens: Count | None = None
    cached_tokens: Count | None = None
    attempt: Count = 1
    result: Outcome
    error: Text | None = None
    prefill_tps: Amount | None = None
    generation_tps: Amount | None = None
    first_token_s: Amount | None = None
    canaries: Canaries | None = None
    constraints: Constraints | None = None
    devices: tuple[DevicePeakValue, ...] = ()
    host_peak_bytes: Count | None = None
    planned_tokens: Count | None = Field(default=None, description="optional: the length that was planned")
    error_kind: str | None = Field(default=None, description="optional")
    total_s: Amount | None = Field(default=None, description="optional")


class Reached(Part):
    """The longest length that held in one respect, and whether the target held in it. None: not told."""

    tokens: Count | None = None
    ok: bool | None = None


class WindowResult(Part):
    """The window that was proved."""

    asked: Count | None = None
    trained: Count | None = None
    in_force: Count | None = None
    verified_input_tokens: Count | None = None
    output_tokens: Count | None = None
    fits: Reached = Reached()
    fast_enough: Reached = Reached()
    recalls: Reached = Reached()
    statement: Text | None = None


class FactFound(Part):
    """A fact as a clue saw it. Lists may stand for tuples in ``found``."""

    id: str
    found: Any = None
    source: Source | Text | None = None
    why_unknown: Why | Text | None = None
    words: Text | None = Field(default=None, description="optional: the fact's name for people")
    found_words: tuple[Text, ...] = Field(
        default=(), description="optional: what was found, for people, where it is one of a few choices"
    )
    unit: Text | None = Field(default=None, description="optional")


class ClueFound(Part):
    """One clue: a sentence, whether it holds, and what it weighs (decibans; negative speaks against)."""

    words: Text
    truth: TruthName
    weight: float | None = None
    facts: tuple[FactFound, ...] = ()


class CauseFound(Part):
    """One cause as judged. ``low``, ``now``, ``high`` are the interval of its score."""

    id: str
    family: str
    band: Band
    low: float
    now: float
    high: float
    explains: tuple[str, ...] = ()
    clues: tuple[ClueFound, ...] = ()
    words: Text | None = Field(default=None, description="optional: the cause in one line for people")
    overturned_by: tuple[Text, ...] = Field(default=(), description="optional: what would overturn it")


class SetAside(Part):
    """A cause that was looked at and is unlikely or ruled out."""

    id: str
    band: Band
    words: Text | None = None
    because: Text | None = Field(default=None, description="the clue that spoke strongest against it")
    because_holds: bool | None = Field(default=None, description="whether that clue holds; None: not told")


class VerdictValues(Part):
    """What the rules say of one run."""

    run: Count = 1
    named: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    abstained_because: Text | None = None
    causes: tuple[CauseFound, ...] = ()
    set_aside: tuple[SetAside, ...] = Field(default=(), description="optional: what was ruled out, shortest form")
    would_decide: tuple[Text, ...] = Field(default=(), description="optional: what would decide between the leaders")


class Expectation(Part):
    """What a re-run should show if that cause is right."""

    cause: str
    words: Text


class TestCost(Part):
    """What a test costs."""

    __test__ = False  # not a test of pytest

    minutes: Amount | None = None
    tokens: Count | None = None
    quality: Quality | None = None


class ChoiceOffered(Part):
    """Optional: one answer that a question takes."""

    id: Text
    words: Text


class PutBack(Part):
    """A setting that is put back before the next test, because its change gained nothing."""

    variable: Text
    from_: Any = Field(default=None, alias="from")
    to: Any = None


class NextTest(Part):
    """The next single change, probe, question or habit."""

    kind: TestKind
    variable: Text | None = None
    from_: Any = Field(default=None, alias="from")
    to: Any = None
    command: Text | None = None
    undo: Text | None = None
    keep: tuple[Text, ...] = ()
    expects: tuple[Expectation, ...] = ()
    cost: TestCost = TestCost()
    reason: Text | None = None
    question: Text | None = Field(default=None, description="optional: what is asked, where the test is an answer")
    choices: tuple[ChoiceOffered, ...] = Field(default=(), description="optional: what may be answered")
    decides: tuple[Text, ...] = Field(default=(), description="optional: the causes that it can still decide about")
    tells: tuple[Text, ...] = Field(default=(), description="optional: the facts that it would find out")
    first: tuple[PutBack, ...] = Field(
        default=(),
        description="optional: what is put back first, as a step of its own; from, to and command hold once that is done",
    )


class ChangedVariable(Part):
    """One variable that differs from the run before."""

    name: Text
    before: Any = None
    after: Any = None
    source: Source | Text | None = None


Standing = Literal["better", "worse", "same", "unknown"]


class ComparedValue(Part):
    """Optional: one thing that was measured in two runs. ``noise``: so much it may differ without a reason, in the same unit."""

    name: Text
    unit: Text | None = None
    before: int | float | bool | Text | None = None
    after: int | float | bool | Text | None = None
    noise: float | None = None
    standing: Standing = "unknown"
    note: Text | None = None


class ChangeMade(Part):
    """What was changed before a run, and what came of it."""

    run: Count
    variables: tuple[ChangedVariable, ...] = ()
    single: bool | None = None
    prediction: Prediction = "none"
    conclusion: Text | None = None
    kept: bool | None = None
    against: Count | None = Field(default=None, description="optional: the run that it is compared with")
    cause: Text | None = Field(default=None, description="optional: the cause whose prediction was scored")
    predicted: Text | None = Field(default=None, description="optional: what was expected of the re-run")
    attempts: Count | None = Field(
        default=None, description="optional: how often what was predicted was seen, in this configuration"
    )
    moved: tuple[ChangedVariable, ...] = Field(
        default=(), description="optional: what followed from the change, such as defaults of a new build"
    )
    may_have_changed: tuple[Text, ...] = Field(
        default=(), description="optional: variables that could not be read in both runs"
    )
    comparison: tuple[ComparedValue, ...] = Field(default=(), description="optional: before and after, with the noise")
    separate: tuple[Text, ...] = Field(
        default=(), description="optional: commands that would tell apart what was changed together"
    )
    notes: tuple[Text, ...] = Field(default=(), description="optional: what else is to be said, whole sentences")
    said: tuple[Message, ...] = Field(
        default=(), description="optional: how to say conclusion, notes and names in other languages"
    )


class Sent(Part):
    """What was sent to the server, all runs together."""

    requests: Count = 0
    prompt_tokens: Count = 0
    generated_tokens: Count = 0


class LogLine(Part):
    """Optional: one line of a log, exactly as printed. ``worth`` (0 to 10) orders what is left out first; ``cause``: for which one it speaks."""

    text: Text
    log: Text | None = None
    line: Count | None = None
    run: Count = 1
    event: str | None = None
    worth: float = 5.0
    is_error: bool = False
    cause: str | None = None


class Conflict(Part):
    """Optional: sources that disagree on a fact, and which was believed."""

    fact: str
    words: Text | None = None
    unit: Text | None = None
    believed: Any = None
    believed_source: Source | Text | None = None
    other: Any = None
    other_source: Source | Text | None = None


class ComponentMemory(Part):
    """Optional: one device's memory by component at one window."""

    id: str
    name: Text | None = None
    total_bytes: Count | None = None
    weights_bytes: Count | None = None
    kv_bytes: Count | None = None
    state_bytes: Count | None = None
    compute_bytes: Count | None = None
    other_bytes: Count | None = None


class MemoryCompared(Part):
    """Optional: one device's memory as it was predicted, beside the log. ``agrees``: within 3 % or 100 MiB; null where the log is not whole."""

    device: Text
    predicted: ComponentMemory | None = None
    logged: ComponentMemory | None = None
    agrees: bool | None = None


class MemoryLacking(Part):
    """Optional: what did not fit, on which device, by how much."""

    device: Text
    component: Text
    lacking_bytes: Count | None = None
    piece_bytes: Count | None = None
    basis: Literal["log", "model"]
    other_split: tuple[Count, ...] = ()


class MemoryLever(Part):
    """Optional: the longest window with one change on top of those before it."""

    lever: Text
    tokens: Count
    gain: int
    weights_bytes: Count
    context_bytes: Count
    costs_quality: bool = False
    tensor_split: tuple[Count, ...] = ()


class MemoryCacheType(Part):
    """Optional: the longest window with one cache type, all else as it is."""

    kv: Text
    tokens: Count | None = None
    refused: bool = False


class MemoryByComponent(Part):
    """Optional: where memory went, by device and component; and as the model file predicts it."""

    basis: Literal["log", "server", "planner", "model"] | None = None
    ctx: Count | None = None
    devices: tuple[ComponentMemory, ...] = ()
    predicted: tuple[ComponentMemory, ...] = ()
    predicted_ctx: Count | None = None
    error_bytes: Count | None = None
    longest_window: Count | None = None
    limited_by: Text | None = None
    compared: tuple[MemoryCompared, ...] = ()
    overflowed: tuple[MemoryLacking, ...] = ()
    levers: tuple[MemoryLever, ...] = Field(default=(), description="only where memory is in question")
    cache_types: tuple[MemoryCacheType, ...] = ()


class LadderValues(Part):
    """Optional: how the lengths were measured."""

    rungs: tuple[Count, ...] = ()
    target: Count | None = None
    style: Literal["question", "completion"] | None = None
    able: bool | None = Field(
        default=None, description="false: the model cannot do the recall test at the shortest length"
    )
    base_hit: Count | None = None
    base_asked: Count | None = None
    tokenizer: Text | None = None
    seed: int | None = None
    stopped: Text | None = Field(default=None, description="optional: why no further length was tried, such as budget")


class ClientValues(Part):
    """Optional: what one client's settings file makes it believe of the server and model under test. ``applies``: it has an entry about them."""

    client: Text
    path: Text | None = None
    applies: bool = False
    model: Text | None = None
    base_url: Text | None = None
    context: Count | None = Field(default=None, description="the window that it reckons with")
    output: Count | None = Field(default=None, description="tokens that it asks for, or keeps free for, an answer")
    num_ctx: Count | None = Field(default=None, description="a window that it asks the server for")
    compact_at: Count | None = Field(default=None, description="tokens at which it shortens the history")
    timeout_s: Amount | None = None
    compaction: bool | None = Field(default=None, description="whether it shortens long histories by itself")


class Reproduction(Part):
    """Optional: the smallest request that fails."""

    endpoint: Text | None = None
    body: Text | None = Field(default=None, description="the request without its long text")
    fill: Text | None = Field(default=None, description="how the long text is made")
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class Message(Part):
    """Optional: the sentence and the values that an English text of this document was made of."""

    english: Text
    text: Text
    values: dict[str, Any] = Field(default_factory=dict)


class CaseDocument(Part):
    """A case, whole."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    case: CaseHead
    subject: Subject = Subject()
    criteria: CriteriaValues = CriteriaValues()
    rungs: tuple[Rung, ...] = ()
    window: WindowResult = WindowResult()
    verdict: VerdictValues = VerdictValues()
    verdicts: tuple[VerdictValues, ...] = ()
    next_test: NextTest | None = None
    changes: tuple[ChangeMade, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    sent: Sent = Sent()
    unknown: dict[str, Unavailable] = Field(default_factory=dict)
    log_lines: tuple[LogLine, ...] = Field(
        default=(), description="optional: log lines worth quoting, exactly as printed"
    )
    conflicts: tuple[Conflict, ...] = Field(default=(), description="optional")
    memory: MemoryByComponent | None = Field(default=None, description="optional")
    ladder: LadderValues | None = Field(default=None, description="optional")
    clients: tuple[ClientValues, ...] = Field(
        default=(), description="optional: what clients believe, by settings files that were named or allowed"
    )
    reproduce: Reproduction | None = Field(default=None, description="optional")
    notes: tuple[Text, ...] = Field(
        default=(), description="optional: what a reader must know about this case, whole sentences"
    )
    messages: tuple[Message, ...] = Field(
        default=(), description="optional: how to say this document's texts in other languages"
    )

    def to_json(self, *, indent: int | None = 2) -> str:
        """Give the document as JSON, every key of the contract present."""
        return plain_json(self.model_dump_json(by_alias=True, indent=indent))


def message(said: Words) -> Message:
    """Keep what a text was made of, for other languages."""
    return Message(english=said.english, text=said.text, values={k: _plain(v) for k, v in said.values.items()})


def _plain(value: object) -> object:
    if isinstance(value, Words):
        return value.english
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
