"""The vocabulary: every fact with its words, type, unit and plausible range.

A boolean that only a log or a story gives is true or unknown: what an excerpt lacks was not looked at. It is false only where something really
looked. Words are statements with a value: "Window in force". ``question`` names the question of diagnose/questions.py that asks for it.
"""

from __future__ import annotations

from probes.evidence.request import ERROR_KINDS
from probes.evidence.words import Words, words
from rules.causes import CAUSES, SYMPTOMS
from rules.engine.fact import Fact, Vocabulary

TIB = 2**40
LONG = 2**31
"""No window and no prompt is longer than this."""


def _tokens(fact_id: str, said: Words, *, question: str | None = None, low: int = 0) -> Fact[int]:
    return Fact(fact_id, int, said, unit="tokens", low=low, high=LONG, question=question)


def _bytes(fact_id: str, said: Words, *, question: str | None = None, near: float | None = None) -> Fact[int]:
    return Fact(fact_id, int, said, unit="bytes", low=0, high=64 * TIB, question=question, near=near)


def _share(fact_id: str, said: Words, *, high: float = 1.0) -> Fact[float]:
    return Fact(fact_id, float, said, unit="share", low=0.0, high=high)


def _ratio(fact_id: str, said: Words) -> Fact[float]:
    return Fact(fact_id, float, said, unit="ratio", low=0.0, high=1e9)


def _yes(fact_id: str, said: Words, *, question: str | None = None) -> Fact[bool]:
    return Fact(fact_id, bool, said, question=question)


def _speed(fact_id: str, said: Words) -> Fact[float]:
    return Fact(fact_id, float, said, unit="tokens/s", low=0.0, high=1e7)


# What the user came with

NAMED_MECHANISMS = Fact(
    "report.mechanisms", tuple, words("Mechanisms that the report names itself"), choices=tuple(CAUSES)
)
LIKE_CAUSES = Fact(
    "report.like", tuple, words("Causes whose telling the report's words are like"), choices=tuple(CAUSES)
)
LIKEST_CAUSE = Fact(
    "report.likest", str, words("The cause whose telling the report's words are most like"), choices=tuple(CAUSES)
)
SYMPTOM = Fact("symptom", str, words("What went wrong"), choices=SYMPTOMS, question="symptom")
BACKEND = Fact(
    "backend.name",
    str,
    words("Server program"),
    choices=(
        "llama.cpp",
        "ik_llama.cpp",
        "beellama.cpp",
        "llama-manager",
        "llama-swap",
        "ollama",
        "lm-studio",
        "mlx_lm",
        "mlx-other",
        "vllm",
        "sglang",
        "koboldcpp",
        "tabbyapi",
        "text-generation-webui",
        "llama-cpp-python",
        "openai-compatible",
        "other",
    ),
    question="backend",
)
OS = Fact("host.os", str, words("Operating system"), choices=("linux", "windows", "wsl", "macos", "other"))
GPU_VENDOR = Fact(
    "device.vendors",
    tuple,
    words("Makers of the accelerators"),
    choices=("nvidia", "amd", "intel", "apple", "other", "none"),
)

# Windows

WINDOW_WANTED = _tokens("window.wanted", words("Window that the user wants"))
WINDOW_ASKED = _tokens("window.asked", words("Window that the server was told"))
WINDOW_TRAINED = _tokens("window.trained", words("Window that the model was trained for"))
WINDOW_PER_SLOT = _tokens("window.per_slot", words("Window of one slot"))
WINDOW_SLOTS = Fact("window.slots", int, words("Slots (requests at once)"), unit="slots", low=0, high=100_000)
WINDOW_UNIFIED = _yes("window.unified", words("All slots share one pool of cache cells"))
WINDOW_POOL = _tokens("window.pool", words("Cells in the pool that all slots share"))
WINDOW_POOL_HOLDS_ALL = _yes(
    "window.pool_holds_all", words("The shared pool holds the whole window of every slot at once")
)
WINDOW_IN_FORCE = _tokens("window.in_force", words("Window in force for one request"))
WINDOW_DEFAULT = _tokens("window.default", words("Window that this server takes when none is set"))
WINDOW_SET = _yes("window.set", words("The window was set by the user"))
WINDOW_SHARE_OF_ASKED = _ratio("window.in_force_of_asked", words("Window in force, as a share of the window asked for"))
WINDOW_ASKED_OF_TRAINED = _ratio("window.asked_of_trained", words("Window asked for, as a share of the trained window"))
WINDOW_IN_FORCE_IS_TRAINED = _yes("window.in_force_is_trained", words("The window in force is the trained window"))
WINDOW_IS_DIVIDED = _yes("window.is_divided", words("One slot's window is the whole divided by the number of slots"))
WINDOW_CAP_REASON = Fact(
    "window.cap_reason",
    str,
    words("Why the log says that the window was capped"),
    choices=("trained", "fit", "per-slot", "pool", "other"),
)
WINDOW_IS_KNOWN_DEFAULT = _yes(
    "window.is_known_default", words("The window in force is one that servers take when none is set")
)
CONFIG_IGNORED = _yes("config.ignored", words("A setting was given and did not come into force"))
CLIENT_WINDOW = _tokens("client.window", words("Window that the client reckons with"))
CLIENT_OVER_SERVER = _ratio(
    "client.window_of_in_force", words("Window that the client reckons with, as a share of the one in force")
)
CLIENT_REFUSED = _yes("client.refused_too_long", words("Requests of the client itself were refused as too long"))
OUTPUT_TOKENS = _tokens("request.output_tokens", words("Longest answer that is asked for"))
OUTPUT_OF_WINDOW = _ratio("request.output_of_window", words("Longest answer, as a share of the window in force"))

WINDOW_UNSET_LONG = _yes("window.unset_and_long", words("No window was set, and the one in force is long"))
WINDOW_DIFFERS = _yes("window.differs", words("The window in force is another one than was asked for"))
WINDOW_DIFFERS_UNEXPLAINED = _yes(
    "window.differs_unexplained",
    words("The window in force is neither the one asked for, nor the trained one, nor a share by slots"),
)
TOTAL_TOKENS = _tokens("request.total_tokens", words("Prompt and answer together when it stops"))
TOTAL_IS_DEFAULT = _yes("request.total_is_default", words("Prompt and answer together end at a common default window"))
TOTAL_OF_WINDOW = _ratio(
    "request.total_of_window", words("Prompt and answer together when it stops, as a share of the window in force")
)
SENT_OF_WINDOW = _ratio("request.sent_of_window", words("Tokens sent, as a share of the window in force"))
ROOM_FOR_INPUT_SMALL = _yes(
    "request.room_for_input_small",
    words("The reserve for the answer leaves less than two thirds of the window for the input"),
)

# Where it fails

FAILURE_TOKENS = _tokens("failure.tokens", words("Shortest prompt that failed"))
PASSED_TOKENS = _tokens("failure.longest_passed", words("Longest prompt that passed"))
FAILURE_STABLE = _yes("failure.same_length", words("It fails at the same length each time"))
FAILURE_OF_WINDOW = _ratio("failure.of_window", words("Shortest prompt that failed, as a share of the window in force"))
FAILURE_OF_ASKED = _ratio("failure.of_asked", words("Shortest prompt that failed, as a share of the window asked for"))
FAILURE_OF_TRAINED = _ratio(
    "failure.of_trained", words("Shortest prompt that failed, as a share of the trained window")
)
FAILURE_OF_SHARE = _ratio(
    "failure.of_slot_share", words("Shortest prompt that failed, as a share of the window divided by the slots")
)
ERROR_KINDS_SEEN = Fact(
    "failure.error_kinds", tuple, words("Kinds of error that requests ended with"), choices=ERROR_KINDS
)
REFUSED_OVER_WINDOW = _yes(
    "failure.refused_over_window", words("The server refused a prompt because it is longer than its window")
)
REFUSAL_LIMIT = _tokens("failure.refusal_limit", words("Window that the refusal named"))
REFUSED_BELOW_ASKED = _yes(
    "failure.refused_below_asked", words("A prompt shorter than the window asked for was refused")
)
FAILURE_SECONDS = Fact("failure.seconds", float, words("Seconds until it failed"), unit="s", low=0.0, high=1e7)
REPEATED_LIMIT_SECONDS = Fact(
    "failure.limit_seconds",
    float,
    words("Round number of seconds after which the same request failed again and again"),
    unit="s",
    low=0.0,
    high=1e7,
)
FAILURE_ROUND_SECONDS = _yes("failure.round_seconds", words("It failed after a round number of seconds"))
LAUNCH_FAILED = _yes("launch.failed", words("The server did not start"))
EXIT_SIGNAL = Fact("process.signal", str, words("Signal that ended the server"))
PROCESS_DIED = _yes("process.died", words("The server's process ended"))
OOM_KILLED = _yes("process.oom_killed", words("The operating system killed a process for lack of memory"))

ABOUT = (
    "gpu-memory", "one-piece", "host-memory", "memory-guard", "create-context", "too-long", "no-room", "shift", "needs-setting", "device-lost", "kernel",
    "timeout", "too-many", "internal", "machine-restarts", "none",
)  # fmt: skip
FAILURE_ABOUT = Fact("failure.about", str, words("What the failure is about"), choices=ABOUT)
STAGES = ("weights", "cache", "buffers", "reading", "writing", "picture", "restoring", "idle")
FAILURE_STAGE = Fact("failure.stage", str, words("What the server was doing when it failed"), choices=STAGES)
IS_MEMORY_FAILURE = _yes("failure.is_memory", words("The failure is about memory"))
FAILURE_AT_START = _yes("failure.at_start", words("It fails while the server starts or loads, before any request"))
SMALLER_WINDOW_WORKS = _yes("failure.smaller_window_works", words("It works with a smaller window"))
SMALLER_BATCH_WORKS = _yes("failure.smaller_batch_works", words("It works, or fails later, with a smaller micro-batch"))

# What was allocated, and what could not be

COMPONENTS = ("weights", "kv", "state", "compute", "output", "draft", "projector", "activation", "pinned", "other")
ALLOC_FAILED = _yes("alloc.failed", words("An allocation failed"))
ALLOC_COMPONENT = Fact("alloc.component", str, words("What the allocation that failed was for"), choices=COMPONENTS)
ALLOC_PLACE = Fact(
    "alloc.place", str, words("Where the allocation that failed was to go"), choices=("gpu", "cpu", "pinned")
)
ALLOC_API = Fact("alloc.api", str, words("Interface that refused the allocation"))
ALLOC_BYTES = _bytes("alloc.bytes", words("Size of the allocation that failed"))
ALLOC_FREE_BYTES = _bytes("alloc.free_bytes", words("Free on that device when it failed"))
ALLOC_FREE_RATIO = _ratio("alloc.of_free", words("Size of the allocation that failed, as a share of what was free"))
ALLOC_LIMIT_BYTES = _bytes("alloc.limit_bytes", words("Largest single allocation that the interface allows"))
ALLOC_OVER_LIMIT = _yes("alloc.over_limit", words("The allocation is over what the interface allows in one piece"))
ALLOC_OF_DEVICE = _ratio("alloc.of_device", words("Size of the allocation that failed, as a share of the device"))
# a log counts the copies that an engine makes of some tensors, a file does not
WEIGHTS_BYTES = _bytes("memory.weights_bytes", words("Weights on devices"), near=0.1)
KV_BYTES = _bytes("memory.kv_bytes", words("Cache for all slots"))
KV_EXPECTED_BYTES = _bytes("memory.kv_expected_bytes", words("Cache that this window and type need by the model file"))
COMPUTE_BYTES = _bytes("memory.compute_bytes", words("Largest compute buffer"))
OUTPUT_BYTES = _bytes("memory.output_bytes", words("Output buffers"))
DRAFT_BYTES = _bytes("memory.draft_bytes", words("Draft model and its cache"))
PROJECTOR_BYTES = _bytes("memory.projector_bytes", words("Vision projector"))
DEVICE_COUNT = Fact("device.count", int, words("Accelerators in use"), unit="devices", low=0, high=1024)
DEVICE_TOTAL_BYTES = _bytes("device.total_bytes", words("Memory of all devices together"))
DEVICE_FREE_BYTES = _bytes("device.free_bytes", words("Free on all devices before loading"))
MEMORY_LIMIT_BYTES = _bytes(
    "memory.limit_bytes", words("Memory that the server may use at most, devices or process limit")
)
WEIGHTS_SHARE = _ratio("memory.weights_share", words("Weights, as a share of the memory that the server may use"))
KV_SHARE = _ratio("memory.kv_share", words("Cache, as a share of the memory that the server may use"))
COMPUTE_SHARE = _ratio(
    "memory.compute_share", words("Compute buffer, as a share of the memory that the server may use")
)
KV_OF_WEIGHTS = _ratio("memory.kv_of_weights", words("Cache, as a share of the weights"))
KV_OVER_EXPECTED = _ratio(
    "memory.kv_of_expected", words("Cache as allocated, as a share of what the architecture needs")
)
COMPUTE_OF_KV = _ratio("memory.compute_of_kv", words("Compute buffer, as a share of the cache"))
PIPELINE_COPIES = Fact(
    "memory.pipeline_copies", int, words("Copies kept for pipeline parallelism"), unit="copies", low=0, high=1024
)
FREE_REPORTED_ZERO = _yes("device.free_reported_zero", words("A device reported no free memory at all"))

ALLOC_ROOM = _yes("alloc.room_was_there", words("More memory was free on the device than the allocation asked for"))
KV_STREAMS = Fact("memory.kv_streams", int, words("Separate caches, one a slot"), unit="caches", low=0, high=100_000)
KV_WHOLE_PER_SLOT = _yes("memory.kv_whole_per_slot", words("Every slot has a cache of the whole window of its own"))
SWA_CACHE_FULL = _yes("memory.swa_cache_full", words("Sliding-window layers keep a cache of full length"))
MEMORY_FALLS_BACK = _yes("memory.falls_back", words("Memory falls back at once after the failure"))
WORKING_SET_PASSED = _yes(
    "memory.working_set_passed", words("The share of unified memory that the GPU may hold was passed")
)
LOADED_OF_DEVICE = _ratio("memory.loaded_of_device", words("All that is loaded, as a share of the devices' memory"))

# What the model file predicts

LONGEST_WINDOW = _tokens("memory.longest_window", words("Longest window of one slot that fits by the model file"))
SAFE_CTX = _tokens(
    "memory.safe_ctx",
    words(
        "Longest window to ask for that fits by the model file, with room for its error, or by the server's own words"
    ),
)
SERVER_NAMES_WINDOW = _yes(
    "memory.server_names_window",
    words("The server refused the window for its cache, and names a shorter one that fits"),
)
SAFE_CTX_KEYS_8BIT = _tokens("memory.safe_ctx_keys_8bit", words("The same with eight-bit keys"))
SAFE_UBATCH = Fact(
    "memory.safe_ubatch",
    int,
    words("Largest smaller micro-batch with which this window fits by the model file"),
    unit="tokens",
    low=1,
    high=1_000_000,
)
SAFE_GPU_LAYERS = Fact(
    "memory.safe_gpu_layers",
    int,
    words("Most layers on devices with which this window fits by the model file"),
    unit="layers",
    low=0,
    high=100_000,
)
SAFE_SPLIT = Fact("memory.safe_split", tuple, words("Layers a device with which this window fits by the model file"))
OVERFLOW_COMPONENT = Fact(
    "memory.overflow_component",
    str,
    words("What passes the memory that there is, by the model file"),
    choices=(*COMPONENTS, "other-process", "driver-reserve"),
)
OVERFLOW_DEVICE = Fact("memory.overflow_device", str, words("Device that lacks most by the model file"))
OVERFLOW_BYTES = _bytes("memory.overflow_bytes", words("Lacking on that device by the model file"))
OTHER_SPLIT_FITS = _yes("memory.other_split_fits", words("Another split of the layers fits by the model file"))
FULL_FIRST = Fact("memory.full_first", str, words("Device that ends the window first by the model file"))
LOGGED_OF_PREDICTED = _ratio(
    "memory.logged_of_predicted",
    words("Memory by the log, as a share of what the model file predicts, on the device where they differ most"),
)
PLAN_OF_PREDICTED = _ratio(
    "memory.plan_of_predicted", words("Memory by the engine's own plan, as a share of what the model file predicts")
)
MEMORY_SHARE_SET = _share("config.memory_share", words("Share of the device that the engine may fill"))

# Settings in force

UBATCH = Fact("config.ubatch", int, words("Micro-batch (or prefill chunk)"), unit="tokens", low=1, high=1_000_000)
BATCH = Fact("config.batch", int, words("Batch"), unit="tokens", low=1, high=1_000_000)
PARALLEL_SET = Fact("config.parallel", int, words("Slots that were asked for"), unit="slots", low=-1, high=100_000)
FLASH_ATTENTION = Fact(
    "config.flash_attention", str, words("Flash attention"), choices=("on", "off", "auto", "forced-off")
)
KV_TYPE_K = Fact("kv.type_k", str, words("Type of the K cache"))
KV_TYPE_V = Fact("kv.type_v", str, words("Type of the V cache"))
KV_BITS = Fact("kv.bits", float, words("Bits of the smaller of both cache types"), unit="bits", low=1.0, high=64.0)
KV_TYPES_DIFFER = _yes("kv.types_differ", words("K and V have different types"))
V_QUANTISED = _yes("kv.v_quantised", words("The V cache has a quantised type"))
KV_SMALLER_TYPE_SET = _yes("kv.quantised", words("The cache has a smaller type than 16 bits"))
GPU_LAYERS = Fact("config.gpu_layers", int, words("Layers on the GPU"), unit="layers", low=-2, high=100_000)
LAYERS_ON_CPU = Fact(
    "placement.layers_on_cpu", int, words("Layers that are not on the GPU"), unit="layers", low=0, high=100_000
)
CONTEXT_SHIFT_ON = _yes("config.context_shift", words("Context shift is on"))
SPECULATION = _yes("config.speculation", words("Speculation (draft model, MTP, n-gram) is on"))
PROJECTOR = _yes("config.projector", words("A vision projector is loaded"))
SWA_FULL = _yes("config.swa_full", words("The full-length cache is kept for sliding-window layers"))
SLIDING_WINDOW = _tokens("model.sliding_window", words("Sliding window of the model's local layers"))
RECURRENT = _yes("model.recurrent", words("The model has recurrent or hybrid layers"))
# a log's "file size" is that of the tensors alone
MODEL_BYTES = _bytes("model.bytes", words("Size of the model file"), near=0.1)

# Positions

ROPE_BASE_RATIO = _ratio("rope.base_ratio", words("Position base in force, as a share of the one in the model file"))
ROPE_SCALE_RATIO = _ratio("rope.scale_ratio", words("Position scale in force, as a share of the one in the model file"))
ROPE_BASE_SET = Fact("rope.base_set", float, words("Position base that was set"), low=0.0, high=1e12)
ROPE_SCALE_SET = Fact("rope.scale_set", float, words("Position scale (or stretch) that was set"), low=0.0, high=1e6)
ROPE_SCALE_FLAG = Fact(
    "rope.scale_flag", str, words("Setting that scales positions"), choices=("rope_freq_scale", "rope_scale")
)
ROPE_SET = _yes("rope.set_by_user", words("Position base or scale was set by hand"))
ROPE_TYPE_FILE = Fact("rope.type_in_file", str, words("Position scaling that the model file asks for"))

ROPE_WRONG = _yes(
    "rope.wrong_within_training",
    words("Positions are scaled otherwise than the model file says, although the window is within its training"),
)
ROPE_MISSING = _yes(
    "rope.missing_beyond_training", words("The window is longer than the training, and no position scaling is in force")
)
ROPE_CHOSEN_BY_WINDOW = _yes(
    "rope.chosen_by_window", words("The model has two sets of position factors, chosen by the allocated window")
)

# Recall and quality

RECALL_ABLE = _yes("recall.able", words("The model can do the recall test at a short length"))
RECALL_BASE = _share("recall.base", words("Recall at the shortest length"))
RECALL_BASE_TOKENS = _tokens("recall.base_tokens", words("The shortest length at which recall was measured"))
RECALL_AT_LONGEST = _share("recall.at_longest", words("Recall at the longest length that was answered"))
RECALL_OF_BASE = _ratio(
    "recall.of_base", words("Recall at the longest length, as a share of the model's own at the shortest")
)
RECALL_DROP_SURE = _yes("recall.drop_is_sure", words("Recall falls with length by more than chance"))
RECALL_DROP_TOKENS = _tokens("recall.drop_tokens", words("Shortest length at which recall falls below the criterion"))
RECALL_START_LOST = _yes(
    "recall.start_lost", words("What stood at the beginning of long prompts is lost, what stood at the end is not")
)
RECALL_HARMED_SHORT = _yes("recall.harmed_short", words("Recall is already harmed far below the trained window"))
NOT_CUT = _yes("recall.not_cut", words("All tokens that were sent were processed"))

# Truncation

TRUNCATION = Fact(
    "truncation.verdict",
    str,
    words("What the server does with a prompt that is too long"),
    choices=("none", "refused", "truncated"),
)
TRUNCATED_SEEN = _yes("truncation.seen", words("A prompt was cut without an error"))
TRUNCATED_BELOW = _yes(
    "truncation.below_window", words("A prompt that fits into the window that is told was cut without an error")
)
TRUNCATION_RULE = Fact("truncation.rule", str, words("Known rule that the cut follows"))
SENT_TOKENS = _tokens("request.sent_tokens", words("Tokens sent"))
PROCESSED_TOKENS = _tokens("request.processed_tokens", words("Tokens of the prompt that the server counted"))
PROCESSED_OF_SENT = _ratio("request.processed_of_sent", words("Tokens processed, as a share of tokens sent"))
PROCESSED_IS_HALF = _yes("request.processed_is_half", words("Tokens processed are half of the window and a few"))
PROCESSED_IS_DEFAULT = _yes(
    "request.processed_is_default",
    words("Tokens processed, or prompt and answer together, end at a common default window"),
)

# Speed over length

PREFILL_SHORT = _speed("speed.prefill_short", words("Prefill speed at the shortest length"))
PREFILL_LONG = _speed("speed.prefill_long", words("Prefill speed at the longest length"))
GENERATION_SHORT = _speed("speed.generation_short", words("Generation speed at the shortest length"))
GENERATION_LONG = _speed("speed.generation_long", words("Generation speed at the longest length"))
PREFILL_RATIO = _ratio("speed.prefill_ratio", words("Prefill speed at the longest length, as a share of the shortest"))
GENERATION_RATIO = _ratio(
    "speed.generation_ratio", words("Generation speed at the longest length, as a share of the shortest")
)
LENGTH_RATIO = _ratio("speed.length_ratio", words("Longest measured length, as a multiple of the shortest"))
SPEED_STEP = _yes("speed.step", words("Speed falls off a step rather than a slope"))
SPEED_STEP_TOKENS = _tokens("speed.step_tokens", words("Length at which speed falls off the step"))
SPEED_STEP_FACTOR = _ratio("speed.step_factor", words("Speed after the step, as a share of what the trend promised"))

CONTROL_SAYS = Fact(
    "speed.control",
    str,
    words("Slowing with length, compared with a model that surely fits, over the same lengths"),
    choices=("alike", "steeper"),
)
CONTROL_LOST_MORE = _ratio(
    "speed.control_lost_more",
    words("Speed lost from the shortest to the longest length, as a multiple of what the control lost"),
)

# Prompt cache

CACHED_ON_REPEAT = _share("cache.repeat_share", words("Share of a repeated prompt that came from the cache"))
CACHED_ON_EXTENSION = _share(
    "cache.extension_share", words("Share of a prompt's beginning that came from the cache when text was added")
)
CACHED_ON_RETURN = _share(
    "cache.return_share", words("Share of a prompt that came from the cache when it was sent again after a longer one")
)
BEGINNING_CHANGED = _yes(
    "cache.beginning_changed",
    words("Of prompts that were sent with one beginning, the server found only the first tokens alike"),
)
PROMPT_CACHE_ON = _yes("config.prompt_cache", words("The server keeps a cache of prompts, by its settings"))
CACHE_OFF_WORKS = _yes("cache.off_works", words("A request can be sent that uses no cache"))
FULL_REPROCESS_SEEN = _yes(
    "cache.full_reprocess_seen", words("The log says that the whole prompt had to be processed again")
)
FULL_REPROCESS_REASON = Fact(
    "cache.full_reprocess_reason",
    str,
    words("Why it was processed again"),
    choices=("swa", "hybrid", "prefix", "unknown"),
)
CACHE_EVICTED_SEEN = _yes("cache.evicted_seen", words("The log says that a cached prefix was thrown away"))
CORRUPT_SEEN = _yes("quality.corrupt_seen", words("Broken output (not a number, invalid tokens, garbage) was seen"))

# Damage that single facts do not show

CHAINS_RIGHT = _share("quality.chains", words("Chains of facts that were followed to their end"))
CHAINS_BREAK = _yes("quality.chains_break", words("Single facts are found, chains of facts are not followed"))
NEXT_TOKEN_SAME = _share(
    "quality.next_token_same",
    words("Share of places at which the likeliest next token is that of a cache with more bits"),
)
NEXT_TOKEN_DIVERGENCE = Fact(
    "quality.next_token_divergence",
    float,
    words("Distance of the next token's distribution from that of a cache with more bits, median"),
    unit="bits",
    low=0.0,
    high=1.0,
)
NEXT_TOKEN_HARMED = _yes(
    "quality.next_token_harmed", words("The next token is often another one than with a cache of more bits")
)

RECALL_BY_MEANING_SHORT = _share(
    "recall.by_meaning_short",
    words("Share of a short text's facts that are found where the question shares no word with them"),
)
RECALL_BY_MEANING = _share(
    "recall.by_meaning", words("Share of such facts that are found at the longest length where they were asked")
)

# A session of many turns

SESSION_VERIFIED = _tokens("session.verified_tokens", words("Length up to which a session of many turns stayed whole"))
SESSION_REPEATS = _yes("session.repeats", words("In a session of many turns the model began to repeat itself"))
SESSION_STATE_LOST = _yes("session.state_lost", words("In a session of many turns the state of the task was lost"))
SESSION_ONE_PIECE_RIGHT = _yes(
    "session.one_piece_right", words("The session's own words, given in one piece to a fresh session, were remembered")
)
SESSION_REREAD = _share("session.reread_share", words("Share of a session's turns in which most of it was read again"))

# Slots together

TOGETHER_FAILS = _yes("concurrency.together_fails", words("Requests that pass alone fail together"))
POOL_FULL_SEEN = _yes("concurrency.pool_full_seen", words("The server found no free cells in its cache"))

# A freshly started server

FIRST_AFTER_LOAD_FAILS = _yes(
    "fresh.first_alone_fails", words("Of the same requests to a freshly started server, only the first one fails")
)
FRESH_FAILS = _yes("fresh.fails", words("The same request fails on a freshly started server too"))

# The log's own words: true or unknown

CONTEXT_SHIFT_SEEN = _yes("log.context_shift", words("The server threw away old text to go on (context shift)"))
FLASH_FORCED_OFF = _yes("log.flash_attention_forced_off", words("Flash attention was switched off by the engine"))
UNSUPPORTED_SEEN = _yes("log.unsupported", words("The engine says that something that was asked for is not supported"))
V_CACHE_NEEDS_FLASH = _yes(
    "log.v_cache_needs_flash", words("The engine says that a quantised V cache needs flash attention")
)
KERNEL_MISSING_SEEN = _yes("log.kernel_missing", words("The engine has no kernel for this operation or type"))
FIT_FAILED_SEEN = _yes("log.fit_failed", words("The engine's own planner could not make it fit"))
GRAPHS_SEEN = _yes("log.graph_capture", words("Memory ran out while the engine captured graphs or made other reserves"))
WATCHDOG_SEEN = _yes("log.watchdog", words("A watchdog ended a GPU job"))
KERNEL_ERROR_SEEN = _yes("log.kernel_error", words("A GPU kernel failed"))
DEVICE_LOST_SEEN = _yes("log.device_lost", words("The device was lost"))
HARDWARE_SEEN = _yes("log.hardware", words("The driver reported a hardware error"))
CRASH_SEEN = _yes("log.crash", words("The server crashed or hit an assertion"))
SPILL_SEEN = _yes("log.spill", words("The log says that memory went to the host"))

# The machine

OTHER_VRAM_BYTES = _bytes("device.other_process_bytes", words("Device memory that other programs hold"))
SHARED_GROWTH_BYTES = _bytes("device.shared_growth_bytes", words("Growth of system memory in use by a device"))
SWAP_USED_BYTES = _bytes("host.swap_used_bytes", words("Swap in use"))
SWAP_GROWTH_BYTES = _bytes("host.swap_growth_bytes", words("Growth of swap while it ran"))
MAJOR_FAULTS = Fact(
    "host.major_faults",
    int,
    words("Pages that the server had to read back from disk"),
    unit="pages",
    low=0,
    high=10**15,
)
READ_OF_WEIGHTS = _ratio(
    "host.read_of_weights",
    words("What the server read from storage while it was measured, as a multiple of its weights"),
)
RAM_BYTES = _bytes("host.ram_bytes", words("System memory"))
RAM_AVAILABLE_BYTES = _bytes("host.ram_available_bytes", words("System memory available"))
SERVER_GROWTH_BYTES = _bytes("host.server_growth_bytes", words("Growth of the server's own memory over the run"))
ADDRESS_LIMIT_BYTES = _bytes("host.address_limit_bytes", words("Limit on the server's address space"))

# What was told: one fact a question, with the question's own choices as values. Derivations turn what can also be measured into the facts above.

TOLD_WHEN = Fact(
    "told.when",
    tuple,
    words("Answered: When does it happen? Choose everything that fits."),
    choices=(
        "at-load",
        "first-request",
        "long-prompt",
        "long-answer",
        "window-full",
        "second-turn",
        "over-time",
        "together",
        "with-picture",
        "after-restart",
        "after-sleep",
        "after-idle",
        "under-load",
        "repeated-prompt",
        "now-and-then",
        "always",
    ),
    question="when",
)
TOLD_CHANGED = Fact(
    "told.changed",
    tuple,
    words("Answered: What changed before it began? Choose everything that fits."),
    choices=(
        "nothing",
        "never-worked",
        "server",
        "client",
        "driver",
        "model",
        "window",
        "cache-type",
        "speculation",
        "slots",
        "batch",
        "hardware",
        "split",
        "other-setting",
    ),
    question="changed",
)
TOLD_WINDOW_WANTED = _tokens(
    "told.window_wanted", words("Answered: How long should the window be, in tokens?"), question="window_wanted"
)
TOLD_SPEED_WANTED = Fact(
    "told.speed_wanted",
    float,
    words("Answered: How many tokens per second must the answer come at, at least?"),
    unit="tokens/s",
    low=0,
    high=100000,
    question="speed_wanted",
)
TOLD_REQUESTS_AT_ONCE = Fact(
    "told.requests_at_once",
    float,
    words("Answered: How many requests run at the same time, at most?"),
    unit="requests",
    low=1,
    high=100000,
    question="requests_at_once",
)
TOLD_CLIENT = Fact(
    "told.client",
    str,
    words("Answered: Which kind of program sends the requests?"),
    choices=(
        "own-page",
        "chat-app",
        "agent",
        "retrieval",
        "script",
        "benchmark",
        "proxy",
    ),
    question="client",
)
TOLD_ERROR_TEXT = Fact(
    "told.error_text",
    str,
    words("Answered: What does the error say, word for word? Paste the lines around it too."),
    question="error_text",
)
TOLD_ERROR_KIND = Fact(
    "told.error_kind",
    str,
    words("Answered: What is the error about, as far as it says?"),
    choices=(
        "gpu-memory",
        "one-piece",
        "host-memory",
        "memory-guard",
        "create-context",
        "too-long",
        "no-room",
        "shift",
        "needs-setting",
        "device-lost",
        "kernel",
        "timeout",
        "too-many",
        "internal",
        "machine-restarts",
        "none",
    ),
    question="error_kind",
)
TOLD_FAILED_WHILE = Fact(
    "told.failed_while",
    str,
    words("Answered: What was the server doing when it failed?"),
    choices=(
        "weights",
        "cache",
        "buffers",
        "reading",
        "writing",
        "picture",
        "restoring",
        "idle",
    ),
    question="failed_while",
)
TOLD_FAILS_AT = _tokens(
    "told.fails_at", words("Answered: At how many tokens does it fail, or begin to go wrong?"), question="fails_at"
)
TOLD_WORKS_AT = _tokens(
    "told.works_at", words("Answered: Up to how many tokens does it work well?"), question="works_at"
)
TOLD_SAME_LENGTH = Fact(
    "told.same_length",
    str,
    words("Answered: Is the length at which it fails the same each time?"),
    choices=(
        "exact",
        "about",
        "varies",
        "any",
    ),
    question="same_length",
)
TOLD_SMALLER_BATCH = Fact(
    "told.smaller_batch",
    str,
    words("Answered: What happens with a smaller micro-batch (for example -ub halved, or a smaller prefill chunk)?"),
    choices=(
        "cures",
        "later",
        "same",
        "worse",
    ),
    question="smaller_batch",
)
TOLD_SMALLER_WINDOW = Fact(
    "told.smaller_window",
    str,
    words("Answered: What happens with a smaller window?"),
    choices=(
        "cures",
        "same",
    ),
    question="smaller_window",
)
TOLD_SECONDS_TO_FAILURE = Fact(
    "told.seconds_to_failure",
    float,
    words("Answered: How many seconds pass from sending until it fails?"),
    unit="s",
    low=0,
    high=1000000,
    question="seconds_to_failure",
)
TOLD_SAME_SECONDS = Fact(
    "told.same_seconds",
    bool,
    words("Answered: Is it about the same number of seconds each time, whatever the length?"),
    question="same_seconds",
)
TOLD_RETRY_PASSES = Fact(
    "told.retry_passes",
    bool,
    words("Answered: Does the very same request pass when it is sent again?"),
    question="retry_passes",
)
TOLD_FRESH_START = Fact(
    "told.fresh_start",
    str,
    words("Answered: Does a fresh start of the server cure it?"),
    choices=(
        "cures",
        "for-a-while",
        "reboot-only",
        "no",
    ),
    question="fresh_start",
)
TOLD_NEW_CHAT = Fact(
    "told.new_chat", bool, words("Answered: Is a new, empty chat right (or fast) again?"), question="new_chat"
)
TOLD_RANDOM_RELOAD = Fact(
    "told.random_reload",
    bool,
    words("Answered: Does it change from one load of the model to the next, with nothing changed?"),
    question="random_reload",
)
TOLD_OLDER_VERSION = Fact(
    "told.older_version",
    bool,
    words("Answered: Does the version before the update still work, with the same settings?"),
    question="older_version",
)
TOLD_OTHER_ENGINE = Fact(
    "told.other_engine",
    str,
    words("Answered: How does another program do with the same model, window and machine?"),
    choices=(
        "works",
        "same",
    ),
    question="other_engine",
)
TOLD_OTHER_MODELS = Fact(
    "told.other_models",
    str,
    words("Answered: How do other models do on the same server?"),
    choices=(
        "fine",
        "smaller-fine",
        "same",
    ),
    question="other_models",
)
TOLD_OTHER_MACHINES = Fact(
    "told.other_machines",
    str,
    words("Answered: Was it seen on other machines too?"),
    choices=(
        "many",
        "one-kind",
        "one",
    ),
    question="other_machines",
)
TOLD_OTHER_WAY_IN = Fact(
    "told.other_way_in",
    bool,
    words("Answered: Does the same text work on another way in, such as the server's own page instead of the API?"),
    question="other_way_in",
)
TOLD_OTHER_CLIENT = Fact(
    "told.other_client",
    bool,
    words("Answered: Does another program work well with the same server and model?"),
    question="other_client",
)
TOLD_WINDOW_SET = Fact(
    "told.window_set",
    str,
    words("Answered: Where was the window set?"),
    choices=(
        "not-set",
        "server-start",
        "config-file",
        "model",
        "request",
        "client",
    ),
    question="window_set",
)
TOLD_WINDOW_ASKED = _tokens(
    "told.window_asked", words("Answered: Which window was set, in tokens?"), question="window_asked"
)
TOLD_WINDOW_SHOWN = _tokens(
    "told.window_shown",
    words("Answered: Which window does the running server show, in tokens?"),
    question="window_shown",
)
TOLD_WINDOW_TRAINED = _tokens(
    "told.window_trained", words("Answered: For which window was the model made, in tokens?"), question="window_trained"
)
TOLD_CLIENT_WINDOW = _tokens(
    "told.client_window",
    words("Answered: Which window does the client believe in, in tokens?"),
    question="client_window",
)
TOLD_SENT_TOKENS = _tokens(
    "told.sent_tokens", words("Answered: How many tokens does the prompt have?"), question="sent_tokens"
)
TOLD_PROCESSED_TOKENS = _tokens(
    "told.processed_tokens",
    words("Answered: How many prompt tokens did the server say it processed?"),
    question="processed_tokens",
)
TOLD_TOTAL_TOKENS = _tokens(
    "told.total_tokens",
    words("Answered: How many tokens do prompt and answer have together when it stops?"),
    question="total_tokens",
)
TOLD_ANSWER_RESERVE = _tokens(
    "told.answer_reserve",
    words("Answered: How many tokens are reserved for the answer (max tokens, max new tokens)?"),
    question="answer_reserve",
)
TOLD_WAY_IN = Fact(
    "told.way_in",
    str,
    words("Answered: Which way does the request go in?"),
    choices=(
        "openai",
        "anthropic",
        "native",
        "page",
    ),
    question="way_in",
)
TOLD_SLOTS = Fact(
    "told.slots",
    float,
    words("Answered: How many slots or parallel requests is the server set up for?"),
    unit="slots",
    low=0,
    high=100000,
    question="slots",
)
TOLD_SLOTS_SET = Fact(
    "told.slots_set",
    str,
    words("Answered: Was that number set by you, or chosen by the server?"),
    choices=(
        "set",
        "chosen",
    ),
    question="slots_set",
)
TOLD_ALONE_PASSES = Fact(
    "told.alone_passes",
    bool,
    words("Answered: Does the same request pass when it runs alone?"),
    question="alone_passes",
)
TOLD_SAID_TRUNCATED = Fact(
    "told.said_truncated",
    bool,
    words("Answered: Does anything say that the prompt was cut (a warning in the log, the page or the answer)?"),
    question="said_truncated",
)
TOLD_WHAT_IS_WRONG = Fact(
    "told.what_is_wrong",
    tuple,
    words("Answered: What is wrong with the answers? Choose everything that fits."),
    choices=(
        "beginning-lost",
        "all-but-end-lost",
        "middle-lost",
        "made-up",
        "nonsense",
        "repeats",
        "reasoning",
        "lost-thread",
        "cut-off",
        "score-fell",
    ),
    question="what_is_wrong",
)
TOLD_SHORT_IS_RIGHT = Fact(
    "told.short_is_right", bool, words("Answered: Are short texts right?"), question="short_is_right"
)
TOLD_WORSE_WHEN = Fact(
    "told.worse_when",
    str,
    words("Answered: How does it get worse?"),
    choices=(
        "gradually",
        "step",
        "turns",
        "allocated",
        "setting",
    ),
    question="worse_when",
)
TOLD_CACHE_OFF = Fact(
    "told.cache_off",
    bool,
    words("Answered: Is it right (or does it not fail) with the prompt cache off?"),
    question="cache_off",
)
TOLD_SAME_BEGINNING = Fact(
    "told.same_beginning",
    bool,
    words("Answered: Does it go wrong again and again for prompts with the same beginning, while others are right?"),
    question="same_beginning",
)
TOLD_POSITION_SCALING = Fact(
    "told.position_scaling",
    str,
    words("Answered: Is position scaling (RoPE, YaRN, alpha) set, or missing?"),
    choices=(
        "set",
        "file",
        "auto",
        "needed",
        "none",
    ),
    question="position_scaling",
)
TOLD_SHIFT_ON = Fact(
    "told.shift_on",
    bool,
    words("Answered: Is context shift (dropping the oldest text when the window is full) on?"),
    question="shift_on",
)
TOLD_SLOW_PART = Fact(
    "told.slow_part",
    str,
    words("Answered: Which part is slow?"),
    choices=(
        "reading",
        "writing",
        "both",
        "loading",
    ),
    question="slow_part",
)
TOLD_SLOW_SHAPE = Fact(
    "told.slow_shape",
    str,
    words("Answered: How does the speed change?"),
    choices=(
        "slope",
        "steep",
        "step",
        "always",
        "alternates",
        "over-time",
        "per-load",
    ),
    question="slow_shape",
)
TOLD_SPEED_BY_LENGTH = Fact(
    "told.speed_by_length",
    str,
    words("Answered: Which speeds were seen at which lengths? (tokens=speed, with commas)"),
    question="speed_by_length",
)
TOLD_REREADS = Fact(
    "told.rereads",
    str,
    words("Answered: How much of a long chat does the server read again at each message?"),
    choices=(
        "all",
        "some-thousand",
        "sometimes-all",
        "only-new",
    ),
    question="rereads",
)
TOLD_SAME_PROMPT_AGAIN = Fact(
    "told.same_prompt_again",
    str,
    words("Answered: Is the very same prompt fast when it is sent again?"),
    choices=(
        "second",
        "third",
        "never",
    ),
    question="same_prompt_again",
)
TOLD_PREFIX_CHANGES = Fact(
    "told.prefix_changes",
    bool,
    words(
        "Answered: Does the client change something near the beginning of the prompt each time (date, counter, order of tools, a moving cut)?"
    ),
    question="prefix_changes",
)
TOLD_REQUESTS_BETWEEN = Fact(
    "told.requests_between",
    bool,
    words(
        "Answered: Do other requests come between two messages of the chat (other users, agents, titles, summaries)?"
    ),
    question="requests_between",
)
TOLD_BUSY = Fact(
    "told.busy",
    str,
    words("Answered: What is busy while it is slow?"),
    choices=(
        "gpu",
        "gpu-low-power",
        "cpu",
        "both",
        "neither",
    ),
    question="busy",
)
TOLD_SHARED_MEMORY = Fact(
    "told.shared_memory",
    bool,
    words(
        "Answered: Does the card use shared memory (Windows: shared GPU memory; AMD on Linux: GTT) while it is slow?"
    ),
    question="shared_memory",
)
TOLD_DISK = Fact(
    "told.disk",
    str,
    words("Answered: Is the disk busy, or does swap grow, meanwhile?"),
    choices=(
        "reads",
        "swap",
        "quiet",
    ),
    question="disk",
)
TOLD_LINK = Fact(
    "told.link",
    str,
    words("Answered: How are the cards connected?"),
    choices=(
        "fast",
        "slow",
    ),
    question="link",
)
TOLD_ONE_CARD_FASTER = Fact(
    "told.one_card_faster",
    bool,
    words("Answered: Is it faster on one card alone, or with fewer cards?"),
    question="one_card_faster",
)
TOLD_OS = Fact(
    "told.os",
    str,
    words("Answered: Which operating system runs the server?"),
    choices=(
        "linux",
        "windows",
        "wsl2",
        "macos",
    ),
    question="os",
)
TOLD_GPU_MAKER = Fact(
    "told.gpu_maker",
    str,
    words("Answered: Whose graphics chips are used?"),
    choices=(
        "nvidia",
        "amd",
        "intel",
        "apple",
        "mixed",
        "none",
    ),
    question="gpu_maker",
)
TOLD_GPU_API = Fact(
    "told.gpu_api",
    str,
    words("Answered: Through which interface does the server use them?"),
    choices=(
        "cuda",
        "rocm",
        "vulkan",
        "sycl",
        "metal",
    ),
    question="gpu_api",
)
TOLD_SEVERAL_GPUS = Fact(
    "told.several_gpus",
    str,
    words("Answered: How many graphics cards does the model use?"),
    choices=(
        "one",
        "equal",
        "unequal",
        "several",
    ),
    question="several_gpus",
)
TOLD_GPU_GIB = Fact(
    "told.gpu_gib",
    float,
    words("Answered: How much memory has the card, or all cards together, in GiB?"),
    unit="GiB",
    low=0,
    high=100000,
    question="gpu_gib",
)
TOLD_RAM_GIB = Fact(
    "told.ram_gib",
    float,
    words("Answered: How much system memory has the machine, in GiB?"),
    unit="GiB",
    low=0,
    high=100000,
    question="ram_gib",
)
TOLD_WEIGHTS_GIB = Fact(
    "told.weights_gib",
    float,
    words("Answered: How large are the model's weights, in GiB (the size of its file)?"),
    unit="GiB",
    low=0,
    high=100000,
    question="weights_gib",
)
TOLD_CACHE_GIB = Fact(
    "told.cache_gib",
    float,
    words("Answered: How large is the cache (KV), in GiB, where it was shown?"),
    unit="GiB",
    low=0,
    high=100000,
    question="cache_gib",
)
TOLD_LOADED_GIB = Fact(
    "told.loaded_gib",
    float,
    words("Answered: How much memory does the server say that the loaded model takes in all, in GiB?"),
    unit="GiB",
    low=0,
    high=100000,
    question="loaded_gib",
)
TOLD_REFUSED_GIB = Fact(
    "told.refused_gib",
    float,
    words("Answered: How large was the piece of memory that was refused, in GiB?"),
    unit="GiB",
    low=0,
    high=10000000,
    question="refused_gib",
)
TOLD_ROOM_LEFT = Fact(
    "told.room_left",
    str,
    words("Answered: How much memory was free on the card when it failed or became slow?"),
    choices=(
        "plenty",
        "little",
        "nearly-all",
    ),
    question="room_left",
)
TOLD_WHICH_CARD = Fact(
    "told.which_card",
    str,
    words("Answered: With several cards: which one was full?"),
    choices=(
        "one",
        "all",
        "none",
    ),
    question="which_card",
)
TOLD_SPLIT = Fact(
    "told.split",
    str,
    words("Answered: Who decides how the model is spread over the cards?"),
    choices=(
        "automatic",
        "set",
        "tensor",
        "single",
    ),
    question="split",
)
TOLD_OTHER_SPLIT = Fact(
    "told.other_split",
    bool,
    words("Answered: Does it work with another split, another order of cards, or a reserve on each?"),
    question="other_split",
)
TOLD_ONE_CARD_WORKS = Fact(
    "told.one_card_works",
    bool,
    words("Answered: Does it need less memory, or work, with one card only or with pipeline parallelism off?"),
    question="one_card_works",
)
TOLD_MEMORY_AFTER = Fact(
    "told.memory_after",
    str,
    words("Answered: What does the memory do right after the failure?"),
    choices=(
        "falls",
        "stays",
    ),
    question="memory_after",
)
TOLD_MEMORY_GROWS = Fact(
    "told.memory_grows",
    str,
    words("Answered: Which memory grows over hours or requests?"),
    choices=(
        "ram",
        "gpu",
        "both",
        "none",
    ),
    question="memory_grows",
)
TOLD_OTHERS_ON_GPU = Fact(
    "told.others_on_gpu",
    tuple,
    words("Answered: What else uses the card? Choose everything that fits."),
    choices=(
        "nothing",
        "screen",
        "other-program",
        "same-server",
        "earlier-run",
    ),
    question="others_on_gpu",
)
TOLD_ON_GPU = Fact(
    "told.on_gpu",
    str,
    words("Answered: Where are the model's weights?"),
    choices=(
        "all",
        "some-layers",
        "experts",
        "none",
    ),
    question="on_gpu",
)
TOLD_LAYERS_FELL = Fact(
    "told.layers_fell",
    bool,
    words("Answered: Did fewer layers go to the card than before, or than expected?"),
    question="layers_fell",
)
TOLD_GPU_SEEN = Fact(
    "told.gpu_seen",
    str,
    words("Answered: Does the system still see the card afterwards?"),
    choices=(
        "gone",
        "unused",
        "fine",
    ),
    question="gpu_seen",
)
TOLD_KERNEL_LOG = Fact(
    "told.kernel_log",
    tuple,
    words(
        "Answered: What does the system's log (dmesg, journal, event viewer) say at that time? Choose everything that fits."
    ),
    choices=(
        "nothing",
        "gpu-timeout",
        "bus",
        "card-error",
        "killed",
        "panic",
    ),
    question="kernel_log",
)
TOLD_POWER = Fact(
    "told.power",
    str,
    words("Answered: Does it hang by the load of the card: power, heat, cable, riser, power supply?"),
    choices=(
        "yes",
        "load",
        "no",
    ),
    question="power",
)
TOLD_CACHE_TYPE = Fact(
    "told.cache_type",
    str,
    words("Answered: In which number format is the cache kept (KV cache type)?"),
    choices=(
        "f16",
        "q8",
        "q5-q6",
        "q4",
        "quantised",
        "mixed",
        "other",
    ),
    question="cache_type",
)
TOLD_CACHE_MORE_BITS = Fact(
    "told.cache_more_bits",
    str,
    words("Answered: What happens with a cache of more bits (16, or 8 instead of 4)?"),
    choices=(
        "cures",
        "same",
        "no-room",
    ),
    question="cache_more_bits",
)
TOLD_FLASH_ATTENTION = Fact(
    "told.flash_attention",
    str,
    words("Answered: Is flash attention on?"),
    choices=(
        "on",
        "off",
        "forced-off",
        "auto",
    ),
    question="flash_attention",
)
TOLD_FLASH_ATTENTION_TURNED = Fact(
    "told.flash_attention_turned",
    str,
    words("Answered: What happens when flash attention is switched the other way?"),
    choices=(
        "cures",
        "same",
        "worse",
    ),
    question="flash_attention_turned",
)
TOLD_SPECULATION = Fact(
    "told.speculation",
    str,
    words("Answered: Is speculation in use (a draft model, MTP, EAGLE)?"),
    choices=(
        "none",
        "draft",
        "built-in",
        "lookup",
    ),
    question="speculation",
)
TOLD_SPECULATION_OFF = Fact(
    "told.speculation_off",
    str,
    words("Answered: What happens with speculation off?"),
    choices=(
        "cures",
        "same",
    ),
    question="speculation_off",
)
TOLD_DRAFT_WINDOW = _tokens(
    "told.draft_window", words("Answered: Has the draft a window of its own, in tokens?"), question="draft_window"
)
TOLD_PROJECTOR = Fact(
    "told.projector",
    bool,
    words("Answered: Is a part for pictures or sound (projector, mmproj) loaded?"),
    question="projector",
)
TOLD_PROJECTOR_OFF = Fact(
    "told.projector_off",
    str,
    words("Answered: What happens without it, or without pictures?"),
    choices=(
        "cures",
        "same",
    ),
    question="projector_off",
)
TOLD_MICRO_BATCH = Fact(
    "told.micro_batch",
    float,
    words("Answered: Which micro-batch (llama.cpp -ub, or tokens in one prefill chunk) is set?"),
    unit="tokens",
    low=1,
    high=10000000,
    question="micro_batch",
)
TOLD_MODEL_KIND = Fact(
    "told.model_kind",
    tuple,
    words("Answered: What kind of model is it? Choose everything that fits."),
    choices=(
        "plain",
        "sliding",
        "hybrid",
        "mla",
        "moe",
        "vision",
    ),
    question="model_kind",
)
TOLD_SELF_SIZED = Fact(
    "told.self_sized",
    bool,
    words(
        "Answered: Did the server itself choose how much to put on the card (automatic fit, estimate, memory share)?"
    ),
    question="self_sized",
)
TOLD_ESTIMATE = Fact(
    "told.estimate",
    str,
    words("Answered: How does its estimate compare with what is really used?"),
    choices=(
        "too-low",
        "too-high",
        "zero",
        "wrong",
        "right",
    ),
    question="estimate",
)
TOLD_NEED_EXCESS = Fact(
    "told.need_excess",
    bool,
    words(
        "Answered: Does the cache take more than it should for this model (by its maker, another program, or its arithmetic)?"
    ),
    question="need_excess",
)
TOLD_STORED_PROMPTS_GIB = Fact(
    "told.stored_prompts_gib",
    float,
    words(
        "Answered: How large may the store of earlier prompts (prompt cache in system memory) grow, in GiB? 0 is off."
    ),
    unit="GiB",
    low=-1,
    high=100000,
    question="stored_prompts",
)
TOLD_SETTING_HAS_EFFECT = Fact(
    "told.setting_has_effect",
    bool,
    words("Answered: Does changing the setting make any difference at all?"),
    question="setting_has_effect",
)

# Where several kinds of evidence say one thing (answers, logs, counters): derived in rules/derive/gathered.py

FAILURE_KINDS = Fact(
    "failure.kinds",
    tuple,
    words("What the failure is about, by what was said and what the logs hold"),
    choices=(
        "gpu-memory",
        "one-piece",
        "host-memory",
        "memory-guard",
        "create-context",
        "too-long",
        "no-room",
        "shift",
        "needs-setting",
        "device-lost",
        "kernel",
        "timeout",
        "too-many",
        "internal",
        "machine-restarts",
        "none",
    ),
)
GPU_API = Fact(
    "device.api",
    str,
    words("Interface through which accelerators are used"),
    choices=("cuda", "rocm", "vulkan", "sycl", "metal", "other"),
)
SEVERAL_DEVICES = _yes("device.several", words("More than one accelerator is in use"))
UNEQUAL_DEVICES = _yes("device.unequal", words("The accelerators in use have different sizes"))
DEVICE_FILL = _ratio(
    "device.fill", words("How full the fullest device was at the longest length, as a share of its memory")
)
POWER_RATIO = _ratio("device.power_ratio", words("Power that the devices drew at the longest length over the shortest"))
DEVICE_USE = Fact(
    "device.use_long",
    float,
    words("How busy the devices were at the longest length, on average"),
    unit="percent",
    low=0.0,
    high=100.0,
)
LINK_SLOW = _yes("device.link_slow", words("A device is connected over a slow link"))
LINK_USE = _ratio(
    "device.link_use", words("What went over the busiest device's link, as a share of what the link can carry")
)
LINK_REPLAYS = Fact(
    "device.link_replays",
    int,
    words("Packets that a device's link had to send again"),
    unit="packets",
    low=0,
    high=1 << 40,
)
ONE_DEVICE_FULL = _yes("device.one_full_other_free", words("One device was full while another had room"))
NEED_OF_DEVICES = _ratio(
    "memory.need_of_devices", words("What the loaded model takes in all, as a share of the memory of all devices")
)
WEIGHTS_OF_RAM = _ratio("memory.weights_of_ram", words("Weights, as a share of the system's memory"))
SPEED_SHAPE = Fact(
    "speed.shape",
    str,
    words("How the speed goes with length and time"),
    choices=("slope", "steep", "step", "always", "alternates", "over-time", "per-load"),
)
OVER_LAUNCH_LIMIT = _yes(
    "kernel.over_launch_limit",
    words("A count that kernels launch with is over 65535 (micro-batch, or as the error says)"),
)
NEAR_POWER_OF_TWO = _yes(
    "failure.near_power_of_two", words("The length at which it fails is at 32768, 65536 or a higher power of two")
)
DRAFT_WINDOW_FULL = _yes("speculation.draft_window_full", words("The text is longer than the draft's own window"))
DRAFT_ACCEPTED = _share("speculation.accepted", words("Share of drafted tokens that were accepted"))
DRAFT_ACCEPTED_LONG = _share(
    "speculation.accepted_long", words("Share of drafted tokens that were accepted in a longer answer: the median")
)
SPECULATION_GAIN = _ratio(
    "speculation.gain",
    words("Generation speed with speculation, as a multiple of the speed without it: at best"),
)
STORED_PROMPTS_LARGE = _yes(
    "cache.store_is_large",
    words("Earlier prompts may be kept in system memory without a limit, or with 4 GiB and more"),
)
CANCELLED_SECONDS = Fact(
    "log.cancelled_seconds",
    float,
    words("Seconds after which a client gave up, by the log"),
    unit="s",
    low=0.0,
    high=1e7,
)
GPU_NOT_INITIALISED = _yes(
    "log.gpu_not_initialised", words("The server could not start the card, and went on without it")
)
REUSED_SHARE = _share(
    "cache.reused_share", words("Least share of a prompt that the log says was reused, of several turns")
)

SPEED_COMPLAINT = _yes("speed.complaint", words("The speed is too low for the user: said so, or under what was wanted"))

PART_ON_CPU = _yes(
    "placement.part_on_cpu", words("The server or its log says that part of the model is not on the card")
)
MEMORY_NOT_FREED = _yes(
    "log.memory_not_freed", words("The log says that an earlier run's memory was not given back in time")
)

# About the evidence itself

CONFLICTS = Fact("evidence.conflicts", tuple, words("Facts on which sources disagree"))

PREDICTION_FAILED = Fact(
    "rerun.prediction_failed", tuple, words("Causes whose prediction did not come when their one change was made")
)


VOCABULARY = Vocabulary(value for value in list(globals().values()) if isinstance(value, Fact))
"""Every fact of this file by its id. Keep it last: what stands below it is not in it."""
