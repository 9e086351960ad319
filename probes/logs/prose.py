# ruff: noqa: E501 - a phrase is read best on one line
"""What people write when a long context fails, as answers to the questionnaire.

Each recogniser is a phrase of the mechanism, as different people would put it, in English or Korean; it gives at most one answer, whose source
is the report. Where phrases contradict one another, the question stays open. Numbers are read with their words: "fails above 83k tokens",
"works up to 64k", "RTX 3090 24GB", "18 tok/s at 126K", "after exactly 600 seconds".
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

from .sayings import FAIL, FLAKY, FORGET, LOAD, OOM, REMEDY, SAYINGS, SLOW, TURNS, Value

_POWERS = frozenset([1, 2, 4, 8, 16, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 512, 1024])
_SMALL_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10, "twelve": 12, "sixteen": 16, "twenty": 20, "thirty": 30,
    "thirty-two": 32, "forty": 40, "fifty": 50, "sixty": 60, "hundred": 100, "a": 1, "one": 1, "a hundred": 100,
}  # fmt: skip
_WORD_THOUSANDS = re.compile(
    rf"\b({'|'.join(sorted(_SMALL_WORDS, key=len, reverse=True))})[ -]thousand\b", re.IGNORECASE
)
_NO_WORD = re.compile(r"\S{80,}|[ \t]{20,}")
"""What no person writes: it would only cost time."""
_NUMBER = r"(?:\d{1,3}(?:[,_]\d{3})+|\d+(?:\.\d+)?)"
_TOKENS = r"[\s-]*(?:tokens?\b|toks?\b|토큰|context\b|ctx\b|컨텍스트)"


def _span(name: str) -> str:
    """Give the pattern of a length in a group of that name, its unit in ``<name>_k``."""
    return rf"(?:~\s*)?(?P<{name}>{_NUMBER})\s*(?P<{name}_k>k|K|m|M|thousand|천|만)?"


def read_length(number: str, unit: str | None) -> int | None:
    """Read a length: ``83k`` is 83,000, ``64k`` is 65,536 (people mean the power of two there), ``75 thousand`` is 75,000."""
    try:
        value = float(number.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    letter = (unit or "").lower()
    if letter == "k":
        value *= 1024 if value in _POWERS else 1000
    elif letter == "m":
        value *= 1024**2 if value in _POWERS else 1_000_000
    elif letter in {"thousand", "천"}:
        value *= 1000
    elif letter == "만":
        value *= 10_000
    return round(value) if 1 <= value <= 20_000_000 else None


_FAILS_AT = (
    re.compile(rf"(?:above|over|beyond|past|at|around|about|near|exceed\w*|of (?:some|about|around)|some|after|from|passed|(?:longer|more|greater|larger|bigger|higher) than|exceeding|부터|near token|at token|token)\s+(?:about |some |around |roughly |approximately |token )?{_span('n')}(?:{_TOKENS}|\b)(?!\s*(?:tok\w*)?\s*(?:a|per|/) ?s)(?!\s*(?:percent|%|GB|GiB|MB|MiB|requests|minutes|hours|seconds|users|turns|cards))", re.IGNORECASE),
    re.compile(rf"{_span('n')}{_TOKENS}?\s*(?:부근|근처|쯤|이상|에서)", re.IGNORECASE),
    re.compile(rf"depth of {_span('n')}", re.IGNORECASE),
)  # fmt: skip
_SETTING_BEFORE = re.compile(
    r"(?:max[-_](?:new[-_]|completion[-_]|output[-_])?tokens|n_predict|num_predict|blas ?batch ?size|u?batch(?:[-_ ]size)?|chunk\w*(?:[-_ ]size)?)\W{0,4}(?:\w+ ){0,4}$",
    re.IGNORECASE,
)
"""What stands before a number that is another setting's, not a length at which something fails."""
_WORKS_AT = re.compile(rf"(?:below|under|up to|less than) (?:about |around )?{_span('m')}{_TOKENS}? (?:\w+ ){{0,4}}(?:works?|is fine|fine|ok|passes|great|no problem)|(?:works?|worked|fine|good|ok|stable|fits?|smoothly|passes|passed|loads?|great|(?:can|could) (?:go|get)|(?:ran|runs?)(?! out))\b[^.;]{{0,30}}?\b(?:up to|until|till|to about|at|with|to)\s+(?:about |some |around )?{_span('n')}(?:{_TOKENS}|\b)(?! ?(?:GB|GiB|t/s|tok/s|%|layers|cards|gpus|slots))|{_span('w')}{_TOKENS}? (?:\w+ )?(?:is|are|was|were) (?:still )?(?:fine|ok|okay|no problem|good|accepted|processed)|{_span('x')}{_TOKENS}?(?:에서는|까지는) ?(?:잘|정상|문제 ?없)", re.IGNORECASE)  # fmt: skip
_WINDOW = re.compile(rf"(?:(?:window|context(?: size| length| window)?|num_ctx|n_ctx|ctx(?:-size)?|max_seq_len|max[-_]model[-_]len|contextsize)\b[\"'`]?\s*(?:slider )?(?:is |was |set to |set at |of |to |=|:|at |\(|up to )?\s*(?:about )?{_span('a')}(?!\s*(?:GB|GiB|percent|%|tokens? (?:long|prompt)))|(?:\ba |its |an? |the )?{_span('b')}{_TOKENS}? ?(?:context |ctx )?(?:window|context)\b|slider (?:to|at) {_span('c')}|loaded (?:it |the model )?(?:in [\w ]{{2,20}} )?with (?:a context of )?{_span('d')}\b(?! ?(?:GB|GiB|layers|gpu))|(?:^|\s)(?:-c|--ctx-size|--max-model-len|--context-length|--contextsize)[ =]{_span('e')}|config (?:said|says) (?:\w+ )?{_span('f')}|컨텍스트(?:를|을)? (?:\S+에서 )?{_span('g')}(?:로|으로))", re.IGNORECASE)  # fmt: skip
_NOT_ASKED = re.compile(
    r"(?:report\w*|shows?|showed|shown|displays?|believes?|thinks?|assumes?|known for|trained|native|made for|says|said|ends up|instead of|default\w*|only|clamped|maximum|from|with a \w+ limit|gets? (?:only )?|up to|(?:works?|fine|loads?|ok) (?:with|at|to))[^.;]{0,12}$",
    re.IGNORECASE,
)
_TRAINED = re.compile(rf"(?:trained (?:window|context|to|for|at|on)(?: of| is| length| only)?|n_ctx_train\s*(?:=|:|is|of)|native|known for a window of|announced for|made for|supports? (?:up to )?)\s*(?:about |context of )?{_span('n')}(?!\s*(?:GB|%|languages|GPUs?))", re.IGNORECASE)  # fmt: skip
_SHOWN = re.compile(rf"(?:reported?|shows?|showed|says|said|displays?) (?:a |an )?(?:\w+ )?(?:window|context|ctx|n_ctx)(?: length| size)?\s*(?:of |= ?|: ?|is )?{_span('n')}|(?:ends? up (?:with|at)|(?:still|always|only|actually|really) (?:starts?|loads?|runs?|gets?|shows?|has|uses?)(?: with| at)?|clamp\w* (?:to|at)|capp?ed (?:to|at)|stuck at|n_ctx_slot\s*(?:is|=|:)?)\s+(?:a |an |the |only |just )?{_span('m')}\b(?!\s*(?:GB|GiB|MB|MiB|%|t/s|tok/s|layers|s\b|seconds|watts|W\b))", re.IGNORECASE)  # fmt: skip
_CLIENT_WINDOW = re.compile(rf"(?:client|cline|roo(?: code)?|opencode|extension|continue|cursor|aider|claude code|front ?end|open ?webui|app|agent|editor|ide)\b[^.;]{{0,30}}?(?:shows?|thinks?|believes?|assumes?|displays?|expects?|is set to|is configured (?:for|with)|has)\s+(?:[^\s\d]+ ){{0,5}}?[\"'`]?{_span('n')}|(?:contextWindow|context_window|maxInputTokens|max_input_tokens|limit\.context|limit[\"'`]?\s*:\s*\{{\s*[\"'`]?context)[\"'`]?\s*[:=]\s*{_span('m')}", re.IGNORECASE)  # fmt: skip
_HALF = re.compile(
    r"half (?:of )?(?:the |its |my )?(?:num_ctx|n_ctx|window|context|ctx)\b|(?:num_ctx|n_ctx|window|context) ?/ ?2\b",
    re.IGNORECASE,
)
_PROCESSED = re.compile(rf"(?:process\w+|evaluat\w+|kept)\s*(?:count )?(?:of |is |was |=|:)?\s*(?:only )?{_span('n')}(?:{_TOKENS})?\b(?! ?(?:%|GB|GiB|s\b|ms|t/s|tok|\w+ ?/s))|(?:prompt_eval_count|prompt_tokens|prompt eval count|tokens_evaluated|input_tokens)[\"'`]?(?:는|가|은|이)?\s*(?:of |is |was |=|:|shows? |says |stays at |comes? out (?:at|as) )?\s*(?:\w+ ){{0,3}}{_span('m')}|(?:remember\w*|knows?|sees?|uses?) (?:\w+ ){{0,2}}(?:the )?last {_span('k')}[\s-]*tokens", re.IGNORECASE)  # fmt: skip
_SENT = re.compile(rf"(?:prompts?|requests?|inputs?|messages?|documents?|contracts?|files?|pdfs?|history|conversation|text|transcripts?|papers?|books?|문서|프롬프트)(?:는|은|가)?\s+(?:\()?(?:with|of|has|have|had|is|was|are|were|up to)?\s*\(?(?:only |about |some |around |roughly |approx\w*\.? |~|약 ){{0,2}}{_span('n')}[\s-]*(?:tokens|토큰)|(?:send|sent|sending|feed|fed|feeding|past(?:e|ed|ing)|submit\w*|with)\s+(?:\w+ ){{0,2}}{_span('m')}[\s-]*tokens|\b{_span('k')}[\s-]tokens? (?:prompt|document|file|request|input|text)|{_span('j')} in the (?:messages|prompt|input)", re.IGNORECASE)  # fmt: skip
_TOTAL = re.compile(rf"prompt (?:plus|and|\+) (?:completion|answer|output|reply)[^.]{{0,40}}?(?:exactly |to |of |= ?|came to ){{1,2}}{_span('n')}", re.IGNORECASE)  # fmt: skip
_SECONDS = re.compile(r"(?:(?:after|within|timeout (?:of|after|is)|timeout_?s?[:=]|takes?|exceeds?|for|it.s|is)\s+(?:exactly |about |some |around |over )?(?:(?P<n>\d+(?:\.\d+)?)|(?P<word>one|two|three|five|ten|thirty|sixty))[\s-]*(?P<u>s\b|sec\w*|min\w*|m\b|h\b|hours?))", re.IGNORECASE)  # fmt: skip
_SPEEDS = (
    re.compile(rf"(?P<v>\d+(?:\.\d+)?)\s*(?:tok(?:en)?s?|t)\s*(?:/|per |a )\s*s(?:ec(?:ond)?)?\w*\s*(?:\(\w+\)\s*)?(?:at|@|with|for)\s*(?:a depth of |depth |about )?{_span('n')}", re.IGNORECASE),
    re.compile(rf"{_span('n')}(?:{_TOKENS})?\s*(?:에서|:|=|->|→|\|)\s*(?:약 )?(?P<v>\d+(?:\.\d+)?)\s*(?:tok(?:en)?s?|t)\s*/\s*s", re.IGNORECASE),
    re.compile(rf"from (?P<v>\d+(?:\.\d+)?) tokens? (?:a|per) second at {_span('n')}", re.IGNORECASE),
    re.compile(rf"to (?P<v>\d+(?:\.\d+)?)(?: tok\w*(?:/s)?)? at {_span('n')}", re.IGNORECASE),
)  # fmt: skip
_SPEED_GOES_ON = re.compile(rf"(?:,| and|;|/)\s*(?:and )?(?P<v>\d+(?:\.\d+)?)\s*(?:t(?:ok\w*)?/s )?(?:at|@|for) (?:a depth of )?{_span('n')}", re.IGNORECASE)  # fmt: skip
_SLOTS = re.compile(
    r"(?:num_parallel|--parallel|-np|parallel(?: slots)?|n_parallel|slots|max[-_]num[-_]seqs)\s*(?:=|:| of | set to | from \d{1,3} to )?\s*(?P<n>\d{1,4})\b|(?:parallel|concurren\w+|slots?)\b[^.;]{0,40}?defaults? to (?P<n3>\d{1,3})\b|(?P<n2>\d{1,3}) (?:parallel )?slots\b|set up for (?P<word>two|three|four|six|eight) users",
    re.IGNORECASE,
)
_RESERVE = re.compile(rf"(?:max[-_ ](?:new[-_ ]|completion[-_ ]|output[-_ ])?tokens|answer reserve|num_predict|n_predict)[\"'`]?\s*(?:=|:| of | set to | is )?\s*{_span('n')}|{_span('m')} in the completion|{_span('k')}(?: tokens)? (?:are |is )?(?:reserved|for the (?:answer|response|output|completion|reply))", re.IGNORECASE)  # fmt: skip
_UBATCH = re.compile(
    r"(?:micro-?batch|n_?ubatch|-ub|ubatch[- ]size|max_num_batched_tokens|chunked[-_]prefill[-_]size|prefill[- ]step[- ]size)\s*(?:=|:| of | size )?\s*(?P<n>\d{2,6})\b",
    re.IGNORECASE,
)
_GPU_NAMES: tuple[tuple[str, str, dict[str, float]], ...] = (
    (
        "nvidia",
        r"(?:RTX|GTX|GeForce|[Tt]esla|Quadro|NVIDIA|Nvidia|nvidia|H100|H200|A100|A10\b|A40|A6000|L40S?|L4\b|V100|P40|P100|T4\b|GB10|DGX Spark|CMP \d+HX|B200|Jetson|Titan)",
        {},
    ),
    (
        "amd",
        r"(?:Radeon|RX \d{4}|MI\d{2,3}X?|gfx\d{3,4}|Strix Halo|Ryzen AI|Instinct|7900 ?XTX?|AMD(?!64|[ -](?:Ryzen|RYZEN|ryzen|EPYC|Epyc|Threadripper|Athlon|FX)))",
        {},
    ),
    ("intel", r"(?:Intel Arc|Arc [AB]?\d{3}\w?|Intel \(Mesa|Intel iGPU|Iris Xe|Arc Pro|Data Center GPU Max)", {}),
    ("apple", r"(?:\bM[1-5](?: (?:Max|Pro|Ultra))?\b|Apple Silicon|Mac Studio|MacBook|Mac mini|\ba \d+ GB Mac\b)", {}),
)
_CARD_GIB = re.compile(
    r"(?:RTX|GTX|GeForce|Radeon|RX|Tesla|Arc|A100|H100|H200|L40S?|MI\d+|P40|V100|card|VRAM|gpu|CMP)[^.;,\n]{0,30}?(?P<n>\d{1,3}(?:\.\d+)?)[\s-]*(?P<u>GiB|GB|G)\b|(?P<n2>\d{1,3}(?:\.\d+)?)[\s-]*(?P<u2>GiB|GB|G)\b(?:\s+\w+){0,2}?\s+(?:of )?(?:VRAM|video memory|(?:graphics )?card|GPU)\b(?! (?:is |are |was )?(?:free|left|unused|available|to spare|remain))",
    re.IGNORECASE,
)
_CARD_NAME = re.compile(
    r"(?:(?<=RTX )|(?<=RTX)|(?<=GTX )|(?<=RX )|(?<=Tesla )|(?<=Radeon )|(?<![\w.,/$-]))((?:[1-5]0[5-9]0|[5679][5-9]00|6[5-9]50)(?: ?(?:Ti|XTX|XT|SUPER|Super))*|P40|P100|V100|T4|L4|L40S?|A100|H100|H200|A6000|A5000|A4000|A10|A770|A750|B580|B60|MI\d{2,3}X?|W\d900)(?![\w,.]?\d)(?! ?(?:tok|ctx|t/s|MB|MiB|%))"
)
_JOINED = re.compile(
    r"\+|\band (?:an? |my |the |one )?(?!on )|&|\bplus\b|\bnext to\b|\balongside\b|\bwith (?:an?|my|the) |^\s*(?:\([^)]*\)|\d+ ?GB)?\s*[,/]\s*(?:\d ?x )?(?:RTX |GTX |RX )?$"
)
_CARD_SIZES = {
    "1080": 8, "1080 ti": 11, "1070": 8, "2060": 6, "2070": 8, "2080": 8, "2080 ti": 11, "3050": 8, "3060": 12, "3070": 8, "3080": 10, "3080 ti": 12,
    "3090": 24, "3090 ti": 24, "4060": 8, "4070": 12, "4070 super": 12, "4070 ti": 12, "4070 ti super": 16, "4080": 16, "4080 super": 16,
    "4090": 24, "5070": 12, "5070 ti": 16, "5080": 16, "5090": 32, "6700 xt": 12, "6800": 16, "6800 xt": 16, "6900 xt": 16, "7800 xt": 16, "7900 xt": 20,
    "7900 xtx": 24, "9070": 16, "9070 xt": 16, "p40": 24, "p100": 16, "t4": 16, "l4": 24, "l40": 48, "l40s": 48, "a10": 24, "a6000": 48, "a5000": 24,
    "a4000": 16, "a770": 16, "b580": 12, "h100": 80, "h200": 141,
}  # fmt: skip
"""GiB of the cards that come in one size."""
_COUNT_GPU = re.compile(
    r"(?<!windows )\b(?P<n>[2-9]|1[0-6]|two|three|four|six|eight)(?:[ \t]*[x×][ \t]*|[ \t]+)(?:NVIDIA |AMD |equal |Radeon |GeForce )?(?:RTX|GTX|RX|A100|H100|GPUs?\b(?! (?:layers?|crash\w*|hangs?|resets?|errors?|offload\w*|memory|buffers?|cores?|hours?|backends?|jobs?|kernels?))|cards?\b|CUDA devices|P40|V100|MI\d+|3060|3090|4090|5090|7900 ?XTX?)",
    re.IGNORECASE,
)
_TAKEN = re.compile(
    r"\b(?:us(?:es?|ing|ed)|takes?|needs?|leaves?|requires?|wants?|frees?|sav(?:es?|ed))(?: \w+){0,2} ?~?$",
    re.IGNORECASE,
)
_RAM = re.compile(
    r"(?:(?<![\d.])(?P<n>\d{1,4})\s*(?P<u>GiB|GB|G)\s*(?:of )?(?:(?:system |unified |host |DDR\d )?(?:RAM|memory)\b(?! in use)|DDR\d\b)|(?<![-_\w])(?:ram(?:_gb)?|system memory|unified memory)\s*(?:=|:|of|is)?\s*(?P<n2>\d{1,4})\s*(?P<u2>GiB|GB|G)?\b|(?P<n3>\d{1,4}) ?GB (?:Mac|machine|unified|box|container|pod|vm)|\bM[1-5](?: (?:Max|Pro|Ultra))?(?: with|[ ,(/]){1,3} ?(?P<n4>\d{1,3}) ?GB|\b(?:in )?RAM \((?P<n5>\d{2,4}) ?GB)",
    re.IGNORECASE,
)
_STORE = re.compile(r"cache[-_ ]ram(?:_mib)?[\"'`]?\s*(?:=|:|\s)\s*[\"'`]?(?P<n>-?\d{1,7})\b", re.IGNORECASE)
_WEIGHTS = re.compile(
    r"(?P<n>\d+(?:\.\d+)?)\s*(?P<u>GiB|GB)\s+(?:of )?(?:weights|in all|model(?: file)?\b|gguf|file\b|on disk)|\b(?:I?Q\d\w{0,6}|AWQ|GPTQ|FP8|\dbpw|\d\.\dbpw|GGUF),? \((?P<n3>\d+(?:\.\d+)?) ?(?P<u3>GiB|GB)\)|(?:model|weights|gguf|quant)(?: file)? (?:of|is|are|takes?|take|listed at) (?:about |a bit over |around |some |just |roughly )?(?P<n2>\d+(?:\.\d+)?)\s*(?P<u2>GiB|GB)(?! (?:more|less|free))|(?:model|weights)(?: file)? is under (?P<word>two|three|four|five|six|eight|ten|twelve|sixteen|twenty) gigabytes",
    re.IGNORECASE,
)
_CACHE_GIB = re.compile(
    r"KV(?: cache| buffer)?(?: \w+){0,4}?\s(?:is|was|of|about|takes?|needs?|=|:|only|another|\(something like)+ (?:only |another )?(?:about )?(?P<n>\d+(?:\.\d+)?)\s*(?P<u>GiB|GB)|(?P<n2>\d+(?:\.\d+)?)\s*(?P<u2>GiB|GB) (?:for|of) (?:the |its |a )?(?:kv|k/v|cache\b|context\b)",
    re.IGNORECASE,
)
_LOADED_GIB = re.compile(
    r"ollama ps (?:now )?(?:says|shows|reports|lists)(?: \w+)? (?P<n>\d+(?:\.\d+)?)\s*(?P<u>GiB|GB)|(?P<n2>\d+(?:\.\d+)?)\s*(?P<u2>GiB|GB) (?:in total|all together|altogether|in ollama ps|allocation)\b",
    re.IGNORECASE,
)
_REFUSED_GIB = re.compile(
    r"(?:tried to allocate|fail\w* to allocate(?: \w+){0,3}?|(?:single )?(?:request|buffer|allocation|piece|chunk) (?:for|of)|allocate (?:one |a )?(?:buffer|piece|chunk)? ?(?:of)?) (?:about |some |around )?(?P<n>\d+(?:\.\d+)?)\s*(?P<u>GiB|GB|MiB|MB)",
    re.IGNORECASE,
)
_CACHE_NAMES = (
    ("q8", r"\b(?:q8_0|q8\b|fp8\w*|int8|8[- ]bit)"), ("q4", r"\b(?:q4_[01]|q4\b|iq4_nl|4[- ]bit|turbo[234]\w*|kvarn[234])"), ("q5-q6", r"\b(?:q5_[01]|q6_0|kvarn[56])"),
    ("f16", r"\b(?:f16|fp16|bf16|f32)"),
)  # fmt: skip
_CACHE_NEAR = re.compile(r"(?:kv|cache)[-_ ]?(?:cache|type|quant\w*)?[^.;\n]{0,30}", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n\s*\n|\n(?=[-*#•]|\d+\.)|(?<=[가-힣])\.\s*|;\s")
_NEGATION = re.compile(
    r"\b(?:not|never|no|without|isn't|wasn't|don't|doesn't|didn't|neither|nor)\s+(?:\w+\s+){0,2}$", re.IGNORECASE
)
_FAILED = re.compile(FAIL, re.IGNORECASE)
_ENDS = re.compile(rf"{FAIL}|time-?out|timed out|on the dot|gives up|504|cancel", re.IGNORECASE)
_FAIL_WORD = re.compile(rf"{FAIL}|{FORGET}|noise|rubbish|killed|\\bOOMs?\\b", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"\b(?:would|could|should|might|can|may|will)\s+(?:it|this|that|i|we|there|someone|anyone|you)\b[^.?!\n]{0,200}\?"
    r"|\b(?:i wonder|wondering|not sure|no idea|don.t know)\s+(?:if|whether)\b[^.?!\n]{0,200}"
    r"|(?:^|(?<=[.!?]\s)|(?<=\n))(?:does|did|do|has|have|is|are|am|was|were)\s[^.?!\n]{0,200}\?"
    r"|\bdo i (?:really )?(?:need|have)\b[^.?!\n]{0,200}\?|\bis there (?:a|any) (?:way|option|plan)\b[^.?!\n]{0,200}"
    r"|\b(?:concluded|thought|assumed|believed|first suspected) (?:that )?[^.?!\n,;]{0,200}",
    re.IGNORECASE,
)
"""What somebody asks, supposes or once supposed is no observation."""
_AT_THE_TIME = frozenset(
    ["room_left", "error_kind", "window_set", "cache_type", "flash_attention", "failed_while", "slots_set", "position_scaling", "which_card", "memory_grows", "busy"]
)  # fmt: skip
"""What is asked about the moment of the failure: a sentence that tells what helped does not answer it."""
_LARGEST_PROSE = 24_000
"""A story is told in less; what is longer is quoted from elsewhere."""
_LONGEST_SENTENCE = 600


def sentences(text: str) -> list[str]:
    """Split prose into sentences, bullet points included."""
    found: list[str] = []
    for part in _SENTENCE.split(text[:_LARGEST_PROSE]):
        whole = " ".join(part.split())
        found.extend(whole[at : at + _LONGEST_SENTENCE] for at in range(0, len(whole), _LONGEST_SENTENCE))
    return list(dict.fromkeys(found))[:300]


def is_remedy(sentence: str) -> bool:
    """Say whether a sentence tells what helped: the settings in it are not those that it fails with."""
    return REMEDY.search(sentence) is not None and TURNS.search(sentence) is None


def without_questions(text: str) -> str:
    """Take out what somebody asks or supposes: it is no observation."""
    return _SUPPOSED.sub(" ", text)


def is_negated(sentence: str, start: int) -> bool:
    """Say whether a negation stands right before this place of a sentence."""
    return _NEGATION.search(sentence[:start]) is not None


def read_prose(text: str) -> dict[str, Value]:
    """Give the answers that prose gives: question id → value."""
    text = _SUPPOSED.sub(" ", _NO_WORD.sub(" ", text[:_LARGEST_PROSE]))
    text = _WORD_THOUSANDS.sub(lambda match: f"{_SMALL_WORDS[match[1].lower()]} thousand", text)
    parts = sentences(text)
    answers: dict[str, Value] = {}
    votes: dict[str, Counter[Value]] = {}
    many: dict[str, list[str]] = {}
    for part in parts:
        helped = is_remedy(part)
        said: dict[tuple[str, Value], int] = {}
        for saying in SAYINGS:
            if helped and saying.question in _AT_THE_TIME:
                continue
            match = saying.pattern.search(part)
            if match is None or (saying.unless is not None and saying.unless.search(part)):
                continue
            if saying.value not in {False, "none", "not-set", "nothing"} and _NEGATION.search(part[: match.start()]):
                continue
            if saying.many:
                chosen = many.setdefault(saying.question, [])
                if str(saying.value) not in chosen:
                    chosen.append(str(saying.value))
            else:
                one = (saying.question, saying.value)
                said[one] = max(saying.weight, said.get(one, 0))
        for (question, value), weight in said.items():
            votes.setdefault(question, Counter())[value] += weight
    for question, counted in votes.items():
        ranked = counted.most_common(2)
        if len(ranked) == 1 or ranked[0][1] > ranked[1][1]:
            answers[question] = ranked[0][0]
    for question, chosen in many.items():
        answers[question] = tuple(chosen)
    _read_numbers(parts, text[:_LARGEST_PROSE], answers)
    symptom = read_symptom(parts)
    if symptom is not None:
        answers["symptom"] = symptom
    if answers.get("error_kind") == "none" and symptom in {"immediate-oom", "fixed-length-error"}:
        answers.pop("error_kind")
    return answers


_CANNOT = r"cannot|can.t\b|could(?:n.t| not)|won.t\b|will not|unable|does(?:n.t| not)|did(?:n.t| not)|refus\w*|not enough|insufficient|too (?:big|large)"
"""Words of a failure, beside which a load is the moment of it."""
_UNHEARD = r"(?:completely |totally |simply |silently |entirely )?(?:ignor(?:es?|ed|ing)|disregard\w*|overlook\w*) (?:it\b|them|all|any|what|my|our|everything|(?:long|system|previous|earlier|first|older|user) )|no longer (?:tak\w*|see\w*|consider\w*|use[sd]?|us\w*) (?:\w+ ){0,3}(?:earlier|previous|older|context|history|messages|into account)|(?:not|n.t) (?:tak\w+|consider\w*) (?:\w+ ){0,4}into account"
"""What was sent is not heard."""
_HANGS = r"\b(?:hangs?|hung|freezes|froze|stuck|unresponsive|dead-?lock\w*)\b(?![^.]{0,30}(?:system|machine|computer|whole pc))|stops? (?:working|responding|returning|generating|answering|processing)|no longer (?:responds?|answers?|processes)|does(?:n.t| not) (?:respond|answer) any ?more|never (?:returns?|answers|completes|finishes)"
"""A server that no longer answers."""
_SYMPTOMS: tuple[tuple[str, int, re.Pattern[str]], ...] = tuple(
    (symptom, weight, re.compile(pattern, re.IGNORECASE))
    for symptom, weight, pattern in (
        ("immediate-oom", 3, rf"{LOAD}[^.]{{0,120}}{OOM}|{OOM}[^.]{{0,120}}{LOAD}"),
        ("immediate-oom", 2, rf"^(?=.*(?:{FAIL}|{OOM}|{_CANNOT})).*?{LOAD}"),
        ("immediate-oom", 1, OOM),
        ("immediate-oom", 2, r"first (?:matrix|computation|inference|token)[^.]{0,40}(?:fail|crash|died|error|out[- ]of)|(?:crash\w*|fail\w*|died) at (?:its|the) first"),
        ("fixed-length-error", 3, rf"(?:above|over|beyond|past|at|around|about|some|near|of|after|whenever)[^.]{{0,24}}\d[\d,.]*\s*(?:k|thousand)?{_TOKENS}(?! ?(?:a|per) second|/s)[^.]{{0,80}}{FAIL}|{FAIL}[^.]{{0,80}}(?:above|over|beyond|past|at|around|about|some|near|of|after)[^.]{{0,24}}\d[\d,.]*\s*(?:k\b(?! (?:context )?window)|thousand|{_TOKENS}(?! ?(?:a|per) second|/s))|\d+\s*[kK]?\s*(?:토큰)?\s*부근에서[^.]{{0,20}}{FAIL}"),
        ("fixed-length-error", 2, rf"context (?:overflow|exceed\w*)|exceed\w* (?:the )?(?:available )?context|maximum context length|refused with|window of \d+\w* (?:was|is) used|as soon as the (?:chat|conversation) filled|(?:long|every) (?:\w+ )?prompts? (?:\w+ ){{0,5}}(?:fail|crash|cut off|error|die)|at a depth of|under (?:\w+[- ])?long-context load[^.]*{FAIL}|at various steps|(?:reports?|reported|shows?|showed) a window of \d+ (?:though|but|instead|although)"),
        ("slow-long-context", 3, SLOW),
        ("slow-long-context", 1, r"seconds? to (?:first|read)|\b(?:t|tok|tokens)/s\b"),
        ("forgetting", 3, FORGET),
        ("forgetting", 2, rf"{_UNHEARD}"),
        ("forgetting", 1, r"effective (?:limit|context)|dropped"),
        ("flaky", 3, rf"^.{{0,60}}{FLAKY}"),
        ("flaky", 2, FLAKY),
        ("flaky", 3, r"sometimes[^.]{0,90}(?:sometimes|works|worked|passes|other times)|after one [^.]{0,40}after (?:the next|another)|with nothing changed|and the retry|(?:press|click|hit)\w* retry|\bretry(?:ing)? [^.]{0,30}(?:works|passes|completes|succeeds)|(?:fails|failed),? and then[^.]{0,30}(?:pass|work)"),
        ("flaky", 2, r"(?:when|once) several (?:\w+ )?(?:came|arriv\w*|long)|after (?:several|many|some|a few) (?:requests|hours|days|minutes|turns)|after a day|over \w+ gigabytes of system|until a reboot|killed by the kernel|whole machine|vanish\w*|single requests? were fine|time after time|works? on a (?:newly|freshly) started"),
        ("flaky", 2, _HANGS),
        ("flaky", 2, r"\b(?:requests?|prompts?) (?:ran|run|worked|work|passed|pass|were fine|was fine|are fine)[^.]{0,60}(?:crash|fail|died|error|abort)"),
    )
)  # fmt: skip


def read_symptom(parts: list[str]) -> str | None:
    """Say which of the five symptoms the prose tells of; None if it tells none, or two alike."""
    score: Counter[str] = Counter()
    for number, part in enumerate(parts):
        # The complaint stands first in most reports.
        emphasis = 2 if number < 2 else 1
        for symptom, weight, pattern in _SYMPTOMS:
            if pattern.search(part):
                score[symptom] += weight * emphasis
    ranked = score.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


_GROUPS = ("n", "m", "k", "j", "w", "x", "a", "b", "c", "d", "e", "f", "g")
"""The names that a length's group may have."""


def _length(match: re.Match[str] | None, *names: str) -> int | None:
    if match is None:
        return None
    groups = match.groupdict()
    for name in names or ("n",):
        if groups.get(name):
            return read_length(groups[name], groups.get(f"{name}_k"))
    word = groups.get("word")
    if word and word.lower() in _SMALL_WORDS:
        return _SMALL_WORDS[word.lower()] * 1000
    return None


def _read_numbers(parts: list[str], text: str, answers: dict[str, Value]) -> None:
    for part in parts:
        _read_lengths(part, answers)
    speeds: dict[int, float] = {}
    for pattern in _SPEEDS:
        for match in pattern.finditer(text):
            length = _length(match)
            if length is not None and length >= 64:
                speeds.setdefault(length, float(match["v"]))
                # "82 t/s at 1k, 70 at 16k, 58 at 32k": the unit is said once.
                end = match.end()
                for _step in range(12):
                    more = _SPEED_GOES_ON.match(text, end)
                    if more is None:
                        break
                    end = more.end()
                    length = _length(more)
                    if length is not None and length >= 64:
                        speeds.setdefault(length, float(more["v"]))
    _read_windows_tried(text, speeds, answers)
    _read_scores(text, answers)
    if len(speeds) > 0:
        answers["speed_by_length"] = ", ".join(f"{length}={speed:g}" for length, speed in sorted(speeds.items())[:40])
    _read_hardware(text, answers)
    near = " ".join(found[0] for found in _CACHE_NEAR.finditer(text))
    kinds = {name for name, pattern in _CACHE_NAMES if re.search(pattern, near, re.IGNORECASE)}
    if len(kinds) == 1:
        answers["cache_type"] = kinds.pop()


_WINDOW_SPEED = re.compile(rf"(?:num_ctx|n_ctx|ctx(?:-size)?|context(?: (?:length|size|window))?|-c)\s*(?:of |=|:)?\s*{_span('n')}\s*(?:->|→|=>|:|=|gives?|I get|runs? at|is)\s*(?:about )?(?P<v>\d+(?:\.\d+)?)\s*t(?:ok\w*)?\s*/\s*s", re.IGNORECASE)  # fmt: skip


_WINDOW_FAILED = re.compile(rf"\b{_span('n')}(?: tokens?)? (?:context|ctx|window)\s*(?:->|→|:|=|-|is|gives?)\s*(?:an? )?(?:CUDA )?(?:OOM|out[- ]of[- ]memory|crash\w*|fail\w*|error)\b", re.IGNORECASE)  # fmt: skip
_WINDOW_HELD = re.compile(rf"\b{_span('n')}(?: tokens?)? (?:context|ctx|window)\s*(?:->|→|:|=|-|is|uses?)\s*(?:about )?(?:\d+(?:\.\d+)? ?(?:GiB|GB|MiB|MB)|ok\b|works?|fine)", re.IGNORECASE)  # fmt: skip


def _read_windows_tried(text: str, speeds: dict[int, float], answers: dict[str, Value]) -> None:
    """Speeds at windows that were set, not at depths: a smaller window that is twice as fast is a cure."""
    tried = {}
    for match in _WINDOW_SPEED.finditer(text):
        length = _length(match)
        if length is not None and length >= 256:
            tried[length] = float(match["v"])
            speeds.pop(length, None)
    failed = [
        length for match in _WINDOW_FAILED.finditer(text) if (length := _length(match)) is not None and length >= 1024
    ]
    passed = [
        length for match in _WINDOW_HELD.finditer(text) if (length := _length(match)) is not None and length >= 512
    ]
    if failed and passed and min(failed) > min(passed):
        answers["window_asked"], answers["works_at"] = min(failed), max(n for n in passed if n < min(failed))
        answers["smaller_window"] = "cures"
    if len(tried) > 1:
        answers["window_asked"] = max(tried)
        if tried[min(tried)] > 1.8 * tried[max(tried)]:
            answers["smaller_window"] = "cures"


_SCORE = re.compile(rf"\b{_span('n')}\s*(?:{_TOKENS})?\s*(?::|=|->|→)\s*(?P<v>\d{{1,3}}(?:\.\d+)?)\s*(?:%|percent)?(?=\s*(?:,|;|\.|\n|$|/|\||and))", re.IGNORECASE)  # fmt: skip


def _read_scores(text: str, answers: dict[str, Value]) -> None:
    """Read "4k: 94, 16k: 87, 64k: 58": a score that falls with length, smoothly or off a step."""
    scores: dict[int, float] = {}
    for match in _SCORE.finditer(text):
        length = _length(match)
        if match["n_k"] and length is not None and length >= 512 and float(match["v"]) <= 100:
            scores.setdefault(length, float(match["v"]))
    points = sorted(scores.items())
    values = [value for _length_at, value in points]
    if len(values) < 3 or values[-1] > 0.9 * values[0] or any(b > a + 3 for a, b in itertools.pairwise(values)):
        return
    given = answers.get("what_is_wrong")
    answers["what_is_wrong"] = tuple(dict.fromkeys([*(given if isinstance(given, tuple) else ()), "score-fell"]))
    fall = values[0] - values[-1]
    step = any(m <= 2 * n and a - b > 0.8 * fall for (n, a), (m, b) in itertools.pairwise(points))
    answers.setdefault("worse_when", "step" if step else "gradually")


def _read_lengths(part: str, answers: dict[str, Value]) -> None:
    helped = is_remedy(part)
    for question, pattern, low in (
        ("window_trained", _TRAINED, 256), ("client_window", _CLIENT_WINDOW, 1024), ("window_shown", _SHOWN, 512), ("total_tokens", _TOTAL, 64),
        ("processed_tokens", _PROCESSED, 64), ("sent_tokens", _SENT, 64), ("answer_reserve", _RESERVE, 16), ("works_at", _WORKS_AT, 512),
    ):  # fmt: skip
        if question in answers or (helped and question != "works_at"):
            continue
        match = pattern.search(part)
        length = _length(match, *_GROUPS)
        if length is not None and length >= low:
            answers[question] = length
    if "window_asked" not in answers and not helped:
        for match in _WINDOW.finditer(part):
            length = _length(match, *_GROUPS)
            if (
                length is not None
                and length >= 256
                and length != answers.get("client_window")
                and not _NOT_ASKED.search(part[: match.start()])
            ):
                answers["window_asked"] = length
                break
    asked = answers.get("window_asked")
    if isinstance(asked, int) and "processed_tokens" not in answers and not helped and _HALF.search(part):
        answers["processed_tokens"] = asked // 2 + 2
    # Poor answers to a prompt of some length do not say that the trouble begins there.
    poor = None if _FAILED.search(part) else answers.get("sent_tokens")
    if "fails_at" not in answers and _FAIL_WORD.search(part):
        for pattern in _FAILS_AT:
            for match in pattern.finditer(part):
                length = _length(match)
                if _SETTING_BEFORE.search(part[: match.start("n")]):
                    continue
                unit = match.groupdict().get("n_k") or "token" in match[0].lower() or "토큰" in match[0]
                if (
                    length is None
                    or length < 256
                    or (not unit and length < 1000)
                    or length in {answers.get("window_asked"), answers.get("works_at"), poor}
                ):
                    continue
                answers.setdefault("fails_at", length)
    seconds = _SECONDS.search(part)
    if seconds is not None and "seconds_to_failure" not in answers and _ENDS.search(part):
        factor = {"m": 60, "h": 3600}.get(seconds["u"][0].lower(), 1)
        answers["seconds_to_failure"] = float(seconds["n"] or _SMALL_WORDS[seconds["word"].lower()]) * factor
    slots = _SLOTS.search(part)
    if slots is not None and "slots" not in answers:
        count = int(slots["n"] or slots["n2"] or slots["n3"] or 0) or _SMALL_WORDS.get((slots["word"] or "").lower(), 0)
        if 1 <= count <= 4096:
            answers["slots"] = float(count)
    batch = _UBATCH.search(part)
    if batch is not None and "micro_batch" not in answers:
        answers["micro_batch"] = float(batch["n"])


def _gib(number: str, unit: str | None) -> float:
    value = float(number)
    return round(value * 1e9 / 2**30, 2) if (unit or "").upper() == "GB" and value != int(value) else value


_COUNTED = re.compile(r"(?:prompt_eval_count|prompt eval count)[\"'`]?\s*[:=]\s*(?P<n>\d{2,8})\b", re.IGNORECASE)
_GIVEN = re.compile(rf"\bprompt\s*[:=]\s*{_span('n')}[\s-]*tokens", re.IGNORECASE)


def read_counts(code: str) -> dict[str, Value]:
    """Read the counts that a quoted reply or terminal shows: tokens sent and processed. The last of each stands."""
    found: dict[str, Value] = {}
    for question, pattern in (("processed_tokens", _COUNTED), ("sent_tokens", _GIVEN)):
        for match in pattern.finditer(code[:200_000]):
            length = _length(match)
            if length is not None and length >= 64:
                found[question] = length
    for question, value, pattern in _CLIENT_SAYS:
        if pattern.search(code[:200_000]) is not None:
            found.setdefault(question, value)
    window = _CLIENT_LIMIT.search(code[:200_000])
    length = _length(window)
    if length is not None and length >= 512:
        found["client_window"] = length
    return found


_CLIENT_SAYS: tuple[tuple[str, Value, re.Pattern[str]], ...] = (
    ("way_in", "openai", re.compile(r"\"(?:baseURL|base_url|apiBase|api_base|openAiBaseUrl)\"\s*:\s*\"[^\"\s]{1,200}/v1/?\"")),
    ("window_set", "client", re.compile(r"\"(?:options|parameters|extra_body)\"\s*:\s*\{[^{}]{0,200}\"(?:num_ctx|n_ctx|context_length)\"\s*:\s*\d")),
    ("client", "agent", re.compile(r"opencode\.ai/config|\"@ai-sdk/openai-compatible\"")),
)  # fmt: skip
"""What the settings of a client say by themselves."""
_CLIENT_LIMIT = re.compile(
    rf"\"(?:limit\"\s*:\s*\{{\s*\"context|contextWindow|maxInputTokens|contextLength)\"\s*:\s*{_span('n')}"
)


def _side_by_side(text: str) -> bool:
    """Say whether two unlike cards are told of as one machine's: "3090 (24GB) + 3060", not "a 3090 does better"."""
    cards = list(_CARD_NAME.finditer(text))
    return any(
        " ".join(one[1].split()).lower() != " ".join(other[1].split()).lower()
        and other.start() - one.end() <= 48
        and _JOINED.search(text[one.end() : other.start()])
        for one, other in itertools.pairwise(cards)
    )


def _read_hardware(text: str, answers: dict[str, Value]) -> None:
    makers = [maker for maker, pattern, _sizes in _GPU_NAMES if re.search(pattern, text)]
    if makers:
        answers["gpu_maker"] = makers[0] if len(makers) == 1 else "mixed" if "apple" not in makers else makers[0]
    names = {" ".join(name.split()).lower() for name in _CARD_NAME.findall(text)}
    count = _COUNT_GPU.search(text)
    several = re.search(
        r"(?:multi-?gpu|multi-?card|dual[- ](?:gpu|card)|(?:two|both|many|three|several|four) (?:\w+ ){0,2}(?:cards|gpus|cuda devices)|over (?:two|three|many) |\bsecond (?:\w+ ){0,2}(?:gpu|card|[1-5]0[5-9]0)\b|\b(?:CUDA|ROCm|Vulkan) ?1\b|\bGPU ?1\b|\bboth (?:cards|gpus|of them)\b)",
        text,
        re.IGNORECASE,
    )
    if _side_by_side(text) or re.search(
        r"(?:small|smaller) and a (?:large|larger|big) card|different sizes", text, re.IGNORECASE
    ):
        answers["several_gpus"] = "unequal"
    elif re.search(r"(?:two|three|four|\d) equal cards", text, re.IGNORECASE) or (
        count is not None and len(names) == 1
    ):
        answers["several_gpus"] = "equal"
    elif count is not None or several is not None:
        answers["several_gpus"] = "several"
    cards = [
        _gib(m["n"] or m["n2"], m["u"] or m["u2"])
        for m in _CARD_GIB.finditer(text)
        if not _TAKEN.search(text[max(0, m.start() - 24) : m.start()])
    ]
    cards = [size for size in dict.fromkeys(cards) if 2 <= size <= 4096]
    if cards:
        number = count["n"].lower() if count is not None else "1"
        amount = int(number) if number.isdigit() else _SMALL_WORDS.get(number, 1)
        answers["gpu_gib"] = float(cards[0] * amount if len(names) <= 1 else sum(cards[: max(len(names), 1)]))
        if "several_gpus" not in answers and count is None:
            answers["several_gpus"] = "one"
    elif names and names <= _CARD_SIZES.keys():
        number = count["n"].lower() if count is not None and len(names) == 1 else "1"
        amount = int(number) if number.isdigit() else _SMALL_WORDS.get(number, 1)
        if len(names) == 1 or answers.get("several_gpus") == "unequal":
            answers["gpu_gib"] = float(amount * sum(_CARD_SIZES[name] for name in names))
        if len(names) == 1 and "several_gpus" not in answers and not re.search(r"\d0[5-9]0s\b|P40s\b", text):
            answers["several_gpus"] = "one"
    ram = _RAM.search(text)
    if ram is not None:
        size = float(ram["n"] or ram["n2"] or ram["n3"] or ram["n4"] or ram["n5"])
        before = text[max(0, ram.start() - 12) : ram.start()].lower()
        if 1 <= size <= 8192 and "video" not in before and "gpu" not in before:
            answers["ram_gib"] = size
    store = _STORE.search(text)
    if store is not None:
        mib = int(store["n"])
        answers["stored_prompts"] = float(mib if mib <= 0 else round(mib / 1024, 3))
    for question, pattern in (
        ("weights_gib", _WEIGHTS), ("cache_gib", _CACHE_GIB), ("loaded_gib", _LOADED_GIB), ("refused_gib", _REFUSED_GIB),
    ):  # fmt: skip
        match = pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        if groups.get("word"):
            answers[question] = float(_SMALL_WORDS[groups["word"].lower()])
            continue
        unit = (groups.get("u") or groups.get("u2") or groups.get("u3") or "").upper()
        size = _gib(groups["n"] or groups.get("n2") or groups.get("n3") or "0", unit)
        size = round(size / 1024, 4) if unit in {"MIB", "MB"} else size
        if size > 0:
            answers[question] = size
