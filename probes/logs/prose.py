# ruff: noqa: E501 - a phrase is read best on one line
"""What people write when a long context fails, as answers to the questionnaire.

Each recogniser is a phrase of the mechanism, as different people would put it, in English or Korean; it gives at most one answer, whose source
is the report. Where phrases contradict one another, the question stays open. Numbers are read with their words: "fails above 83k tokens",
"works up to 64k", "RTX 3090 24GB", "18 tok/s at 126K", "after exactly 600 seconds".
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

Value = str | int | float | bool | tuple[str, ...]

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
_TOKENS = r"[\s-]*(?:tokens?|toks?|토큰|context|ctx|컨텍스트)"


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


@dataclass(frozen=True, slots=True)
class Saying:
    """A phrase that answers a question. ``many`` answers are joined; ``unless`` takes it back within the same sentence."""

    question: str
    value: Value
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    many: bool = False
    weight: int = 1
    """How much it counts against another answer to the same question."""


def _s(question: str, value: Value, pattern: str, unless: str | None = None, weight: int = 1) -> Saying:
    return Saying(
        question,
        value,
        re.compile(pattern, re.IGNORECASE),
        re.compile(unless, re.IGNORECASE) if unless else None,
        weight=weight,
    )


def _m(question: str, value: str, pattern: str, unless: str | None = None) -> Saying:
    return Saying(
        question,
        value,
        re.compile(pattern, re.IGNORECASE),
        re.compile(unless, re.IGNORECASE) if unless else None,
        many=True,
    )


_OOM = r"(?:out[- ]of[- ](?:\w+[- ]){0,2}memory|\bOOMs?\b|OOM-?ed|ran out of (?:\w+ ){0,2}(?:memory|vram)|runs? out of (?:\w+ ){0,2}(?:memory|vram)|not enough (?:\w+ )?(?:memory|vram)|insufficient (?:memory|vram)|cudamalloc failed|failed to allocate|allocation (?:error|failed|failure)|does(?:n.t| not) fit|did not fit|memory (?:error|failure)|메모리(?:가)? ?(?:부족|모자)|OOM)"
_LOAD = r"(?:(?:at|on|during|while|in the midst of|upon|when) (?:the )?(?:\w+ )?(?:load\w*|start-?up|start\w*|boot\w*|launch\w*|init\w*|warm-?up|first computation)|(?:loading|starting|launching) [^.;]{0,90}?(?:fails?|failed|crash\w*|died|dies|aborts?)|(?:load|start-?up|launch) (?:always )?(?:fails?|failed|crash\w*|aborts?)|(?:crash\w*|fail\w*|die[sd]?) (?:at once|immediately|instantly|right away)|reserving the graph|(?:fails?|failed|crashe[sd]|refuses?|unable|died|cannot|can.t|could not|couldn.t|won.t|would not|wouldn.t|will not|does not|doesn.t) (?:to )?(?:be )?(?:created? |load|start|launch|boot)|로딩 ?(?:중|할 때|시)|로드(?:가)? ?(?:안|실패|되지)|시작(?:하자마자| ?시))"
_FAIL = r"(?:fail\w*|crash\w*|errors?\b|abort\w*|dies|died|dead|\bkilled|(?:lost|loses)(?! (?:the |its )?(?:thread|track|context|coheren))|refus\w*|reject\w*|exceed\w*|\boom\b|out[- ]of[- ](?:\w+[- ])?memory|panics?|panicked|restart(?:s|ed) (?:during|itself)|garbage|gibberish|nonsense|breaks?|broke|stops?|stopped|hangs?|hung|cut off|오류|에러|실패|멈(?:춤|추|췄|춥)|터(?:짐|지|졌)|죽)"
_SLOW = r"(?:slow\w*|crawl\w*|sluggish|takes? (?:forever|ages|minutes|too long)|took (?:over|more than) (?:half )?a minute|unusabl[ey]|(?:half|third|quarter|fraction) (?:of )?(?:the|its|that) speed|speed (?:fell|falls|drop\w*|collaps\w*|is (?:half|halved))|(?:drop|fall|fell)(?:s|ped)? (?:from|to) [\d.]+ ?(?:tok\w*|t)/s|comput\w+ (?:the )?(?:whole|entire|full)[^.]{0,30}again|read in full|(?:partly |back )(?:to|on) the cpu|re-?(?:read|process|comput|evaluat|prefill)\w*|느(?:려|리|립|림|렸))"
_FORGET = r"(?:forg[eo]t\w*|garbage|gibberish|nonsense|word salad|incoheren\w*|hallucinat\w*|invent(?:ed|s) |made[- ]up|makes? (?:\w+ )?up|lo(?:st|ses?) (?:the )?(?:thread|track|coheren\w*|context)|ignor(?:es?|ed|ing) (?:the|my|most|earlier|everything|instructions)|poor (?:answers?|repl\w+|results)|remember(?:s|ed)? only|only remember\w*|does(?:n.t| not) (?:remember|know about|see|recall)|repeats? itself|wrong answers?|quality (?:drops?|degrad\w*|falls?|fell|loss)|truncat\w*|cut (?:off )?silently|silently (?:cut|dropp?ed|truncat\w*)|turned (?:in)?to (?:garbage|digits|noise)|(?:fell|went|dropp?ed|falls) (?:from|to) [^.]{0,24}(?:percent|%)|percent (?:right|correct)|accuracy (?:fell|dropp?ed|drops|falls)|잊|까먹|횡설수설|엉뚱한)"
_FLAKY = r"(?:\bsometimes\b|now and then|intermittent\w*|random(?:ly)?\b|once in a while|every so often|occasional\w*|unstabl\w*|flaky|sporadic\w*|not reproducib\w*|non-?determinis\w*|unpredictab\w*|가끔|간헐|때때로|어떤 때)"

SAYINGS: tuple[Saying, ...] = (
    # --- when
    _m("when", "at-load", _LOAD),
    _m("when", "first-request", r"(?:first|initial) (?:request|prompt|message|computation|matrix product|inference|chat) (?:\w+ ){0,3}(?:fail|crash|die|abort|error)|crash\w* at (?:its|the) first|first matrix"),
    _m("when", "long-prompt", r"\b(?:long(?:er)?|large|big|huge) (?:\w+ ){0,2}(?:prompts?|contexts?|inputs?|requests?|texts?|messages)\b|prompts? (?:above|over|beyond|longer than|past|of some)|긴 (?:프롬프트|컨텍스트|입력|글)"),
    _m("when", "long-answer", r"mid(?:dle of (?:a|the) (?:\w+ )?|-)(?:answer|generation|reply|response|stream)|(?:long|longer) (?:answers?|generations?|outputs?|repl\w+)"),
    _m("when", "window-full", r"(?:fill(?:s|ed)|near the end of|reach(?:es|ed)?|hits?|end of) (?:its|the|up the|of the)? ?(?:whole )?(?:\w+ )?(?:window|context(?: window| limit| size)?)\b|(?:window|context|ctx) (?:is|was|gets|got|becomes?) full"),
    _m("when", "second-turn", r"second (?:turn|message|reply|chat|prompt|request)|first (?:reply|answer|message|turn)\b.{0,60}\b(?:right|fine|ok|good|correct|works?)\b.{0,60}\b(?:next|then|after|second|later|following)|(?:next|following|later|subsequent) (?:ones|turns|repl\w+|messages)"),
    _m("when", "over-time", r"after (?:a |some |several |many |a few )?(?:hours?|days?|\d+ ?h(?:ours)?|while|many requests|several requests|a day|long use|hundreds? of|thousands? of)|over (?:time|hours|days)|(?:long|longer) (?:\w+ )?sessions?|hours of use|grows? (?:over time|without|steadily|until)|시간이 지나"),
    _m("when", "together", r"(?:several|multiple|many|two|parallel|concurrent\w*|simultaneous\w*) (?:\w+ )?(?:requests?|prompts?|users?|clients?|long ones|agents?|sessions?) ?(?:arriv\w*|came|come|run|ran|at once|at the same|in parallel|together|share\w*|side by side|simultaneous\w*)|(?:concurrent|simultaneous|parallel) requests|(?:came|arrive\w*|come|sent|run|ran) (?:in )?(?:together|at the same time|side by side|in parallel|concurrently|at once)|(?:use|using|used|run|running|send\w*) (?:it |them )?(?:at the same time|at once|in parallel|concurrently)|동시에"),
    _m("when", "with-picture", r"(?:with|a|of|the|send\w*|encod\w*|first|several) (?:\w+ )?(?:pictures?|images?|photos?|screenshots?)\b(?! (?:service|generat\w*|model|server))"),
    _m("when", "after-restart", r"(?:after|on|upon|right after|when) (?:a |the |every |each )?(?:server )?(?:restart\w*|reload\w*|relaunch\w*)|restarting (?:the )?(?:server|it|model)\b"),
    _m("when", "after-sleep", r"(?:after|from|since|had) (?:\w+ ){0,4}(?:slept|sleep|suspend\w*|hibernat\w*|wak(?:e|ing)|resum\w+)|절전"),
    _m("when", "after-idle", r"(?:left alone|idle|pause|inactiv\w*|break) (?:for|of|after) (?:a |an |about |some |over )?(?:\w+ )?(?:minutes?|seconds?|hours?|while)|after (?:a |an )?(?:\w+ )?(?:pause|idle)"),
    _m("when", "under-load", r"(?:under|sustained|steady|heavy|full) (?:\w+ )?load|after some \w+ minutes|time after time"),
    _m("when", "repeated-prompt", r"same (?:beginning|prefix|start|prompt (?:again|twice))|(?:repeat\w*|identical|second sending of the same) (?:prompts?|prefix\w*|request)"),
    _m("when", "now-and-then", _FLAKY),
    _m("when", "always", r"(?<!had )\b(?:always|every time|each time|every single|any prompt|at any length|reproducib\w+)\b.{0,40}(?:fail|crash|error|slow|ran out|memory|load)|whatever the (?:length|prompt)", r"above|over \d|beyond|long"),
    # --- what changed
    _m("changed", "server", r"(?:after|since|with) (?:an? |the |my |their |i |we )?(?:\w+ )?(?:updated?|upgrad\w*|updating|new(?:er)? (?:version|release|build))\b|(?:regress\w*|used to work (?:in|with|on)|worked (?:in|on|with|until) (?:v?\d|version|the (?:previous|last|old))|업데이트|업그레이드)", r"(?:driver|client|agent|app|windows|macos|kernel) (?:was |had been |has been )?(?:updat|upgrad)|nothing on the server"),
    _m("changed", "client", r"(?:client|agent|front ?end|extension|plugin|app|editor|program|ide) (?:was|had been|has been|got) (?:updated|upgraded|replaced)|updat\w+ (?:the )?(?:client|agent|front ?end|extension|plugin)"),
    _m("changed", "driver", r"(?:driver|kernel|firmware|windows|macos|bios|mesa|rocm|cuda) (?:was |had been |has been )?(?:updat|upgrad)\w*|(?:updat|upgrad)\w* (?:of )?(?:my |the )?(?:gpu |graphics |nvidia |amd )?(?:driver|kernel|macos|windows|firmware|bios|mesa)|드라이버.{0,10}(?:업데이트|설치)"),
    _m("changed", "window", r"(?:until|when|after|once) (?:the |i |we )?(?:\w+ )?(?:window|context|ctx|num_ctx)(?: size| length)? (?:was |is |had been )?(?:set|raised|increased|changed)|rais(?:ed|ing) the (?:context|window)|increas(?:ed|ing) (?:the )?(?:context|window|num_ctx|ctx)|set(?:ting)? (?:the )?(?:context|window|num_ctx) to|컨텍스트를 (?:늘|올)"),
    _m("changed", "cache-type", r"(?:choosing|chang(?:ed|ing)|switch(?:ed|ing)|quanti[sz]ing|turn(?:ed|ing) on|enabl(?:ed|ing)|set(?:ting)?) (?:\w+ ){0,4}(?:kv|cache|keys and values|k/v)\b"),
    _m("changed", "speculation", r"(?:turn(?:ed|ing) on|enabl(?:ed|ing)|add(?:ed|ing)|activat(?:ed|ing)) (?:\w+ ){0,4}(?:draft\w*|mtp|speculat\w*|eagle|drafter)"),
    _m("changed", "slots", r"(?:rais(?:ed|ing)|increas(?:ed|ing)|set(?:ting)?|more) (?:\w+ ){0,3}(?:parallel\w*|slots|num_parallel)"),
    _m("changed", "batch", r"(?:rais(?:ed|ing)|increas(?:ed|ing)|larger|bigger) (?:\w+ ){0,3}(?:micro-?batch\w*|ubatch|batch(?: size)?)"),
    _m("changed", "hardware", r"(?:add(?:ed|ing)|install(?:ed|ing)|moved|replac(?:ed|ing)|swapp?ed) (?:\w+ ){0,3}(?:gpu|card|graphics)"),
    _m("changed", "nothing", r"nothing (?:\w+ ){0,2}(?:chang\w+|had been changed|was changed)|with (?:no|nothing) chang\w*|same (?:\w+ )?settings|unchanged settings|no change to any"),
    # --- error kind
    _s("error_kind", "machine-restarts", r"(?:whole |entire )?(?:machine|computer|pc|mac|system) (?:restart\w*|reboot\w*|freez\w*|froze|panic\w*|shuts? (?:down|off))|kernel panic|blue ?screen|BSOD", weight=3),
    _s("error_kind", "device-lost", r"device (?:is |was |gets )?(?:lost|hung|removed|not ready)|lost the (?:device|gpu|card)|(?:gpu|card) (?:vanish\w*|disappear\w*|fell off|hangs?|hung|reset|is gone)|ErrorDeviceLost|ring \w+ timeout|driver (?:time-?out|reset|error)|TDR\b|watchdog", weight=3),
    _s("error_kind", "one-piece", r"(?:greater|larger|bigger) than the (?:maximum|largest) (?:allowed )?(?:buffer|allocation)|single allocation|max(?:imum)? buffer size|maxBufferLength", weight=3),
    _s("error_kind", "memory-guard", r"(?:own |memory )guard|memory limit exceeded|guardrails?|memory ceiling", weight=3),
    _s("error_kind", "create-context", r"(?:context|cache) (?:to )?(?:fail\w*|could not|cannot|can.t) (?:to )?be created|(?:fail\w*|unable) to create (?:\w+ )?context|panic about the context", weight=3),
    _s("error_kind", "no-room", r"no (?:free )?slots?\b|could not find a (?:kv )?slot|NoKvSlot|cache (?:is )?full", weight=3),
    _s("error_kind", "shift", r"(?:message|error|crash\w*|about) (?:\w+ ){0,3}context[- ]shift", weight=3),
    _s("error_kind", "too-long", r"context[- ](?:\w+ )?(?:overflow|(?:has been |is |was )?exceed\w*)|exceed\w* (?:the )?(?:\w+ ){0,3}(?:context|window)|maximum context length|prompt (?:is )?too long|refused with a context", weight=2),
    _s("error_kind", "kernel", r"illegal memory access|invalid[- ](?:argument|configuration)(?:[- ]error)?|launch fail\w*|(?:CUDA|HIP|Metal|Vulkan) error(?!.{0,12}out of memory)|kernel (?:crash|error)s?|grid dimension|invalid sampling prob\w*", weight=2),
    _s("error_kind", "host-memory", r"killed by (?:the )?(?:kernel|oom|os|system)|oom[- ]killer|SIGKILL|out of (?:system|host) (?:memory|ram)|ran out of ram\b|mapping error", weight=3),
    _s("error_kind", "gpu-memory", _OOM, r"system (?:memory|ram)|\bram\b.{0,12}(?:out|full)|like a memory|not a word about memory|no longer fit|did not fit|does not fit|large enough", weight=1),
    _s("error_kind", "timeout", r"after (?:exactly |precisely |always )?(?:30|60|90|120|180|300|600|900|1200|1800|3600) ?(?:s\b|seconds)|after (?:exactly |precisely )(?:one|two|five|ten|\d+) minutes|time[sd]?[- ]out\b|(?<!idle_)(?<!idle[- ])\btimeouts?\b|timed out|connection (?:was |is )?(?:closed|reset|dropped)|disconnect\w*", r"ring|watchdog|driver", weight=2),
    _s("error_kind", "too-many", r"too many requests|\b429\b|server (?:is )?busy", weight=3),
    _s("error_kind", "internal", r"range error|assertion|segfault|segmentation fault|core dump\w*|internal error|crashed? without (?:any )?(?:message|information)", weight=1),
    _s("error_kind", "none", r"(?:no|without (?:an?y? )?) ?errors?\b(?! of)|no error (?:message|line)|nothing (?:in the (?:reply|logs?|answer) )?said|showed no error|without (?:a|an) (?:word|warning)", weight=1),
    # --- failed while
    _s("failed_while", "weights", r"in the midst of loading|while loading (?:the )?(?:weights|model|layers|tensors)|loading the weights"),
    _s("failed_while", "buffers", r"(?:reserv\w+ (?:the )?(?:graph|compute|buffers?)|compute buffers?|warm-?up|(?:cuda )?graphs? (?:captur\w*|record\w*)|first computation|first matrix)"),
    _s("failed_while", "cache", r"(?:creat\w+|allocat\w+|making) (?:the )?(?:kv|cache|context)\b|context to fail to be created|kv cache allocation"),
    _s("failed_while", "reading", r"(?:in|during|while) (?:the |a )?(?:long )?(?:prefill|prompt processing|prompt eval\w*|reading)|prompt (?:of [^.]{0,40})?was read to its end|processing the prompt|프리필"),
    _s("failed_while", "writing", r"(?:mid-?stream|in mid-stream|during (?:generation|decod\w+)|while (?:generating|writing|answering)|running generation|on continue)"),
    _s("failed_while", "picture", r"(?:encod\w+|process\w+) (?:\w+ )?(?:picture|image)|request with (?:a |an )?(?:picture|image)"),
    _s("failed_while", "restoring", r"restor\w+ (?:the |a )?(?:\w+ )?(?:cache|slot|prompt|checkpoint)"),
    # --- lengths
    _s("same_length", "exact", r"(?:exactly|precisely) (?:the same|at)|always (?:at|near) (?:exactly )?token|each time (?:near|at) token|same (?:token|length) (?:count )?each"),
    _s("same_length", "about", r"always (?:fail\w*|crash\w*|end\w*|stop\w*) (?:at|above|near|around|in)|each time near|\b(?:about|around|near(?:ly)?|some) (?:the same|\d+(?:\.\d+)? ?(?:k\b|thousand))[^.]{0,60}(?:always|every time|each time)|every prompt above|(?:늘|항상|매번).{0,12}(?:비슷|부근|근처)|(?:부근|근처)에서 (?:늘|항상|매번)"),
    _s("same_length", "any", r"(?:whatever|regardless of|independent of|does not depend on) (?:the )?(?:length|prompt)|at any length"),
    _s("smaller_batch", "cures", r"(?:lower|smaller|halv\w+|reduc\w+|decreas\w+) (?:\w+ ){0,3}(?:micro-?batch|ubatch|-ub|batch(?: size)?|chunk\w*)[^.]{0,50}(?:fix\w*|works?|worked|cure\w*|help\w*|solv\w*|avoid\w*)"),
    _s("smaller_batch", "worse", r"larger micro-?batches? (?:\w+ ){0,2}(?:work|help|fix)"),
    _s("smaller_window", "cures", r"until the (?:window|context) was (?:set|raised)|(?:lower|smaller|shorter|reduc\w+|decreas\w+) (?:\w+ ){0,3}(?:context|window|ctx|num_ctx)[^.]{0,50}(?:fix\w*|works?|worked|cure\w*|help\w*|solv\w*|fast|fine)|(?:works?|fine|fast) with (?:a )?(?:smaller|shorter|lower) (?:context|window)"),
    _s("same_seconds", True, r"(?:always|every time|each time)[^.]{0,60}after (?:exactly |precisely )?\d+ ?(?:s\b|sec\w*|min\w*)|after exactly \d+ ?(?:s\b|sec\w*|min\w*)"),
    _s("retry_passes", True, r"retry[^.]{0,40}(?:pass\w*|work\w*|succe\w*|complet\w*)|(?:same|identical|very same) request (?:then )?(?:pass\w*|work\w*|succe\w*)|fails?,? and then[^.]{0,40}(?:pass|work)|second (?:try|attempt) (?:works?|passes|succeeds)"),
    _s("fresh_start", "reboot-only", r"until (?:a |the )?(?:reboot|restart of the (?:computer|machine))|only (?:a )?reboot"),
    _s("fresh_start", "no", r"(?:restart\w*|reboot\w*|fresh start)[^.]{0,30}(?:does(?:n.t| not)|did(?:n.t| not)|no(?:t)?) (?:help|change|fix|cure|make)"),
    _s("fresh_start", "cures", r"works? (?:again )?(?:on|after|with) (?:a )?(?:newly started|fresh(?:ly)?(?: started)?|restart\w*)|restart(?:ing)?(?: (?:the )?server)? (?:fixes|cures|helps|solves)|newly started server|재시작하면"),
    _s("new_chat", True, r"new chat (?:is|works|was) (?:fast|fine|ok|right|good)|(?:a )?fresh (?:chat|conversation) (?:is|works)|quick (?:answers|again) (?:at once|in a new)"),
    _s("new_chat", False, r"fresh and short one failed|new (?:chat|conversation) (?:\w+ ){0,2}(?:fail\w*|too)"),
    _s("random_reload", True, r"after one load and [^.]{0,40}after (?:the next|another)|after one load[^.]{0,60}next|sometimes killed it[^.]{0,60}sometimes worked|(?:from )?one load to the next|same model and settings"),
    _s("older_version", True, r"(?:previous|older|old|last|earlier|prior) (?:version|release|build)s? (?:\w+ ){0,2}(?:works?|worked|was fine|is fine|fine|fast)|(?:that )?had (?:always )?(?:fitted|filled|worked)|worked (?:fine )?(?:before|in the|until)|used to (?:work|fit)|no longer (?:fit|work)\w*|after (?:an|the) (?:update|upgrade)"),
    _s("other_engine", "works", r"(?:was |is )?(?:right|fine|correct|fast(?:er)?|works?) in (?:an?other|a different) (?:engine|program|server|backend|app)|of what another (?:program|engine) got|fast on the same machine in|(?:works?|runs?|fine) (?:\w+ )?(?:in|with|on) (?:llama\.cpp|ollama|vllm|lm studio|exllama\w*|koboldcpp|transformers)\b"),
    _s("other_models", "smaller-fine", r"(?:a )?small(?:er)? (?:model|one) (?:was|is|works|runs)? ?(?:fine|ok|fast|well)|smaller models (?:are|work|run)"),
    _s("other_models", "fine", r"other models? (?:\w+ ){0,4}(?:fine|work|ok|re-?read only|did not|do(?:es)? not|are)|another model (?:\w+ ){0,5}did not|on which all others did|(?:slower|worse) than the \w+ (?:model )?of the same|one model (?:\w+ ){0,4}(?:would not|reported)|this model (?:only|family)|like all the others|only (?:this|one) model"),
    _s("other_machines", "many", r"several vendors|(?:other|different|several) (?:machines|hardware|vendors|users|people)|on other machines too"),
    _s("other_way_in", True, r"(?:answered|works?|worked|fine|good) (?:well )?(?:in|on|from) the (?:web ?(?:page|ui)|page|ui|gui|cli|command line|playground)[^.]{0,60}(?:api|endpoint)|yet over the [^.]{0,30}api"),
    _s("other_client", True, r"slow in one (?:program|client|app)[^.]{0,60}fast|fast[^.]{0,40}in two others|(?:works?|fast|fine) (?:in|with|from) (?:an?other|a different) (?:client|program|front ?end|app)"),
    # --- window
    _s("window_set", "not-set", r"(?:never|did(?:n.t| not)|haven.t|have not) (?:set|chang\w+|touch\w+|specif\w+) (?:\w+ ){0,3}(?:num_ctx|context|window|ctx)|(?:num_ctx|context|window|ctx|-c)(?: size| length)? (?:was |is )?(?:not (?:set|given|sent|specified)|unset|omitted|left (?:at|on) default)|default (?:context|window|num_ctx|ctx)|set (?:by )?defaults?\b|without (?:setting|specifying) (?:a |the )?(?:context|window|num_ctx)|not (?:set|given|sent) \(default"),
    _s("way_in", "openai", r"openai[- ](?:style|compatible)|/v1/(?:chat/)?completions|\b/v1\b"),
    _s("way_in", "anthropic", r"/v1/messages|anthropic[- ](?:style|compatible) (?:endpoint|api)"),
    _s("way_in", "native", r"/api/(?:chat|generate)\b|(?<!/v1)/completion\b"),
    _s("slots_set", "set", r"(?:set up for|configured for|num_parallel|--parallel|-np)\s*(?:=|:)?\s*(?:\d+|two|three|four)"),
    _s("alone_passes", True, r"(?:one|single) request alone (?:\w+ )?(?:works|passes|is fine)|single (?:long )?requests? (?:\w+ ){0,2}(?:pass\w*|fine|work\w*|ok)|each (?:\w+ )?(?:works|passes|fits) alone|alone (?:it )?(?:passes|works)|one at a time (?:is|works)"),
    _s("said_truncated", False, r"nothing (?:in the (?:reply|answer|response) )?said that anything had been|no (?:warning|error|sign|notice)[^.]{0,40}(?:truncat|dropp|cut)|silent(?:ly)? (?:truncat|dropp?|cut)"),
    # --- what is wrong
    _m("what_is_wrong", "beginning-lost", r"(?:forg[eo]ts?|los(?:es|t)|ignor\w+|does(?:n.t| not) (?:see|know|remember)) (?:the )?(?:beginning|start|system prompt|earlier (?:messages|text)|first part|instructions)|앞부분|initial instructions"),
    _m("what_is_wrong", "all-but-end-lost", r"(?:remember\w*|knows?|sees?|recalls?) only (?:\w+ ){0,3}(?:last|end|tail)|only (?:remember\w*|knows?|sees?|recalls?) (?:\w+ ){0,3}(?:last|end|tail)|forg[eo]t everything but|only the (?:last|end)"),
    _m("what_is_wrong", "made-up", r"invent(?:ed|s)\b|hallucinat\w*|made[- ]up|makes? (?:things |it |stuff |\w+ )?up\b"),
    _m("what_is_wrong", "nonsense", r"garbage|gibberish|nonsense|word salad|digits and noise|endless (?:symbols|\w+)|random (?:characters|symbols|tokens)|@@@|!!!!+|횡설수설"),
    _m("what_is_wrong", "repeats", r"repeats? itself|repetit\w+|loops?\b|goes round in circles"),
    _m("what_is_wrong", "reasoning", r"reason\w*|arithmetic|maths?\b|gsm8k|tool calls? (?:\w+ )?fail\w*|many steps"),
    _m("what_is_wrong", "lost-thread", r"lo(?:st|ses?) the thread|lo(?:st|ses?) (?:track|coheren\w*)"),
    _m("what_is_wrong", "cut-off", r"without a usable answer|empty (?:answer|reply|response|text)|cut off|(?:answers?|repl\w+) (?:stop|end)s? (?:early|abruptly)"),
    _m("what_is_wrong", "score-fell", r"benchmark (?:\w+ ){0,4}fell|score (?:fell|dropp?ed)|from \d+(?:\.\d+)? to (?:about )?\d+(?:\.\d+)? ?(?:percent|%)"),
    _s("short_is_right", True, r"짧은 (?:프롬프트|글|대화)[^.]{0,12}(?:문제 ?없|정상|잘)|short(?:er)? (?:ones|prompts?|texts?|requests?|inputs?|chats?) (?:\w+ ){0,2}(?:fine|work\w*|ok|right|good|pass\w*|fast)|fine (?:with|for|at) short"),
    _s("worse_when", "allocated", r"merely because|had been started with a (?:window|context) above|as soon as a (?:longer|larger) (?:window|context) (?:is|was) set|allocating more|prompts were the same"),
    _s("worse_when", "step", r"as soon as (?:input|the|it)[^.]{0,50}(?:pass(?:es|ed)?|exceed\w*|beyond|over)|good to about|suddenly (?:past|beyond|above|after)|lost [^.]{0,30}beyond|(?:past|beyond|after) (?:about |some )?[\d,]+ ?k? tokens"),
    _s("worse_when", "gradually", r"(?:little by little|gradual\w*|the longer the (?:text|prompt|context|chat)[^.]{0,30}(?:worse|more)|degrades? with length)"),
    _s("worse_when", "turns", r"after (?:many|several|some|a number of) (?:turns|messages)|with the number of turns"),
    _s("cache_off", True, r"(?:prompt ?cache|caching|cache)(?: is| was| turned| switched)? off[^.]{0,40}(?:right|fine|works?|correct|fast)|(?:without|disabling) (?:the )?(?:prompt )?cach\w+[^.]{0,30}(?:fix\w*|works?|right|fine)|--no-cache-prompt (?:fixes|works|helps)"),
    _s("same_beginning", True, r"(?:for |with )(?:that |the )?same (?:beginning|prefix|start)|prompts? (?:that )?(?:begin|start)\w* (?:the same|alike)"),
    _s("position_scaling", "set", r"(?:set|using|with|enabled) (?:\w+ )?(?:yarn|rope[- ](?:scal\w+|freq\w*)|alpha_value|linear scaling)|alpha[_ ]value"),
    _s("position_scaling", "file", r"converted in its first days|old (?:gguf|conversion)|early (?:gguf|conversion)|re-?converted"),
    _s("position_scaling", "needed", r"announced for \d+k|needs (?:yarn|rope scaling)|requires (?:yarn|rope scaling)"),
    _s("shift_on", True, r"context[- ]shift(?:ing)? (?:is |was )?(?:on|enabled|active)|--context-shift"),
    # --- speed
    _s("slow_part", "reading", r"(?:re-?)(?:read|process|comput|prefill|evaluat)\w* (?:the |all|in full|again|some|everything)|time to first|prompt (?:speed|eval\w*|processing) (?:is |was )?(?:slow|fell|drop\w*)|to read in|second sending|prefill (?:is |was )?(?:slow|speed)|read in full|computed the whole|first (?:token|word)"),
    _s("slow_part", "writing", r"(?:generation|token generation|decod\w+|text) (?:speed )?(?:was |is |became |got )?(?:slow|crawled|crawls|dropp?ed|fell|ran at)|the text crawled|generation was fast|\btg\b (?:is|was|fell|drop)"),
    _s("slow_shape", "steep", r"square of the length|quadratic\w*|four times"),
    _s("slow_shape", "alternates", r"some messages [^.]{0,60}others|(?:sometimes|every other) (?:message|turn|request)"),
    _s("slow_shape", "per-load", r"after one load[^.]{0,60}next|depends on the load"),
    _s("slow_shape", "step", r"(?:until|from there|as soon as)[^.]{0,60}(?:full|ran at|half)|suddenly slow|falls? off a (?:step|cliff)|speed collaps\w*"),
    _s("slow_shape", "over-time", r"became slower|slower (?:with|over) (?:time|hours)|slower until"),
    _s("slow_shape", "slope", r"slow(?:er)? and slow(?:er)?|the longer[^.]{0,30}slower|speed (?:fell|falls|drops) (?:with|as) (?:the )?(?:length|context|depth)|shared memory filled as the window"),
    _s("slow_shape", "always", r"slow at (?:every|any) length|even (?:with |for )?(?:a )?short prompts? (?:is|are) slow|always slow"),
    _s("rereads", "all", r"(?:whole|entire|full) (?:conversation|chat|prompt|history|context) (?:again|every|each)|(?:each|every) (?:turn|request|message) (?:\w+ ){0,3}(?:full prefill|pays in full|computed the whole|re-?process\w* (?:everything|all|the whole))|re-?process\w* (?:the )?(?:whole|entire|full)|had to be read in full again|re-?read \d+ (?:k|thousand)? ?tokens|each turn re-?read"),
    _s("rereads", "some-thousand", r"re-?read (?:some )?(?:\w+ )?(?:thousand|hundred)s? (?:of )?tokens|each turn[^.]{0,40}(?:some|about) [\w ]{0,12}thousand", r"\b\d{3} ?(?:k|thousand)", weight=2),
    _s("rereads", "sometimes-all", r"some messages (?:took|take)[^.]{0,60}others", weight=2),
    _s("same_prompt_again", "third", r"only the third (?:time )?(?:was|is) (?:quick|fast)|fast only the third"),
    _s("same_prompt_again", "second", r"(?:second|next) time (?:it )?(?:is|was) (?:fast|quick|instant)"),
    _s("prefix_changes", True, r"(?:header|date|time|timestamp|counter|hash|checksum|system prompt|tool (?:list|order))[^.]{0,40}(?:changes?|changing|different) (?:\w+ )?(?:every|each)"),
    _s("requests_between", True, r"(?:title|summar\w+|other users?|other agents?|several agents)[^.]{0,30}(?:requests?|in between|shared? it|between)"),
    _s("busy", "cpu", r"cpu (?:is |at |was )?(?:at )?(?:100|busy|maxed|pegged)|gpu (?:is |was )?(?:idle|mostly idle|at 0|barely used)"),
    _s("busy", "gpu-low-power", r"(?:low|little|less) power|power draw (?:drops|fell|is low)"),
    _s("shared_memory", True, r"shared (?:gpu |video )?memory (?:\w+ ){0,2}(?:fill\w*|grow\w*|grew|in use|is used|use|rises|rose)|spill\w* (?:in)?to (?:shared|system)|\bGTT\b (?:\w+ )?(?:grow|fill|ris|use)"),
    _s("disk", "reads", r"disk (?:was|is) read|disk reads?|reads? (?:from )?(?:the )?(?:disk|ssd|nvme) (?:all|constantly|without)"),
    _s("disk", "swap", r"swap (?:rose|grows?|grew|fill\w*|use\w*)|swapp?ing\b|memory pressure|스왑"),
    _s("link", "slow", r"\bx1\b (?:riser|slot|link)|riser|thunderbolt|oculink|pcie (?:\d(?:\.0)? )?x[14]\b|usb4"),
    _s("link", "fast", r"nvlink|both (?:in|at) x16"),
    # --- machine
    _s("os", "wsl2", r"\bWSL ?2?\b", weight=3),
    _s("os", "windows", r"\bWindows(?: 1[01])?\b|\bWin1[01]\b|윈도우", r"context window|sliding windows", weight=2),
    _s("os", "macos", r"\bmac ?OS\b|\bMac(?:Book|s| Studio| mini)?\b|\bM[1-5] (?:Max|Pro|Ultra)\b", weight=2),
    _s("os", "linux", r"\b(?:Linux|Ubuntu|Debian|Fedora|Arch|NixOS|Proxmox|CachyOS|RHEL|Rocky|Bazzite|리눅스|우분투)\b", weight=1),
    _s("gpu_api", "rocm", r"\bROCm\b|\bHIP\b|\bhipBLAS\b"),
    _s("gpu_api", "vulkan", r"\bVulkan\b"),
    _s("gpu_api", "sycl", r"\bSYCL\b|\boneAPI\b|Level Zero|\bIPEX\b"),
    _s("gpu_api", "metal", r"\bMetal\b|\bMLX\b"),
    _s("gpu_api", "cuda", r"\bCUDA\b"),
    _s("room_left", "plenty", r"(?:plenty|lots?|ample|enough|room to spare|most of the) (?:\w+ ){0,3}(?:memory|vram|ram)?[^.]{0,24}(?:left|free|unused|to spare)|memory was ample|ample memory|with \d+ ?gb free|memory unused|room left on some|with memory to spare"),
    _s("room_left", "nearly-all", r"(?:vram|card|gpu) (?:is |was )?(?:almost|nearly) (?:empty|unused)"),
    _s("room_left", "little", r"nearly fills? the card|(?:vram|card|gpu(?: memory)?) (?:is |was )?(?:almost |nearly |completely )?full|no (?:vram|memory) left"),
    _s("which_card", "one", r"(?:one|first) card (?:is |was )?(?:full|overflow\w*|filled)|on the first card|room (?:left )?on (?:some|the other|others)|other cards? (?:has|have|had) room"),
    _s("split", "automatic", r"automatic(?:ally)? (?:split\w*|layer split)|auto[- ]?split\w*"),
    _s("split", "set", r"tensor[-_]split|gpu[-_]split"),
    _s("split", "tensor", r"tensor[- ]parallel\w*|split[- ]mode (?:row|graph|tensor)|-sm (?:row|graph|tensor)"),
    _s("memory_after", "falls", r"(?:memory )?(?:fell|falls|drops?|dropped) (?:back )?(?:to half )?(?:at once|immediately|right) ?after|fell back"),
    _s("memory_grows", "ram", r"(?:process|rss|system memory|ram|host memory) (?:\w+ ){0,3}(?:grew|grows?|rose|rises|climb\w*|increas\w*)|held over \w+ gigabytes of system memory|killed by the kernel|\bgrew to over|memory leak|leaks? memory"),
    _m("others_on_gpu", "other-program", r"shared with (?:an? )?(?:image|other|another)|(?:stable diffusion|comfyui|image service|another program)[^.]{0,30}(?:gpu|card|vram|also)"),
    _m("others_on_gpu", "same-server", r"two processes|second process|parent and child|several (?:server )?processes"),
    _m("others_on_gpu", "earlier-run", r"(?:previous|earlier|old) (?:run\w*|instance|process) (?:\w+ ){0,3}(?:hold|still|memory)|restarting the server"),
    _s("on_gpu", "none", r"used only the cpu|(?:only|all|purely) (?:on )?(?:the )?cpu\b|on cpu\b|cpu[- ]only|no gpu\b|gpus?: none"),
    _s("on_gpu", "experts", r"expert (?:tensors|layers|weights)? ?(?:\w+ )?on (?:the )?cpu|--n?-?cpu-moe|-ncmoe|-ot [^\s]*exps"),
    _s("on_gpu", "some-layers", r"partly (?:to|on) the cpu|some layers (?:on|to|in) (?:the )?(?:cpu|ram|system)|\b(?:\d+) of (?:\d+) layers|\d+%/\d+% CPU/GPU|partial(?:ly)? offload\w*"),
    _s("on_gpu", "all", r"(?:wholly|fully|entirely|completely|all) (?:layers )?(?:on|in) (?:the )?(?:gpu|vram|card)|100% GPU|all layers (?:on|offloaded)"),
    _s("layers_fell", True, r"no longer (?:\w+ )?(?:fit\w*|all)[^.]{0,40}(?:cpu|layers)|went (?:partly )?to the cpu|fewer layers|layers (?:\w+ )?(?:moved|fell|went|pushed) to (?:the )?cpu|falls? back to (?:the )?cpu"),
    _s("gpu_seen", "gone", r"(?:card|gpu) (?:has )?(?:vanish\w*|disappear\w*|fell off|fallen off|is gone)|nvidia-smi (?:\w+ ){0,3}(?:error|no devices)|no devices were found"),
    _s("gpu_seen", "unused", r"used only the cpu|server (?:\w+ ){0,2}(?:falls|fell) back to (?:the )?cpu"),
    _m("kernel_log", "gpu-timeout", r"ring \w+ timeout|gpu reset|\bTDR\b|nvlddmkm|GPU Timeout|Impacting Interactivity|GPU hang"),
    _m("kernel_log", "bus", r"Xid 79|fallen off the bus|\bAER\b|vanished from the bus|fell off the bus"),
    _m("kernel_log", "killed", r"oom[- ]killer|killed by the kernel|Out of memory: Killed"),
    _m("kernel_log", "panic", r"kernel panic|machine (?:restarted|rebooted)|panic\(cpu"),
    _s("power", "load", r"under steady (?:\w+ )?load|under heavy load only|power supply|\bPSU\b|circuit"),
    _s("cache_type", "mixed", r"different types for keys and values|K q\d_\d,? V q\d_\d|mixed (?:kv|k/v|cache)"),
    _s("cache_type", "quantised", r"quanti[sz]ed (?:kv )?cache|(?:kv )?cache (?:was |is )?(?:already )?quanti[sz]ed|kv quant\w*"),
    _s("flash_attention", "forced-off", r"forc(?:ed|ing) off|flash attention (?:\w+ ){0,3}not (?:compatible|supported)"),
    _s("speculation", "built-in", r"\bMTP\b|built-in draft|draft head|\bEAGLE\b|nextn"),
    _s("speculation", "draft", r"(?:small |separate |with a )?draft(?:er)? (?:model)?|drafter|--model-draft|-md\b", r"built-in|draft head|MTP"),
    _s("speculation_off", "cures", r"(?:without|disabling|turning off) (?:the )?(?:draft\w*|mtp|speculat\w*)[^.]{0,40}(?:fit\w*|work\w*|fast\w*|fix\w*)"),
    _s("projector", True, r"\bmmproj\b|vision projector|multimodal projector|--mmproj"),
    _s("projector_off", "cures", r"text requests ran well|text(?:-only)? (?:requests?|prompts?) (?:\w+ )?(?:work|fine|well)"),
    _m("model_kind", "hybrid", r"\b(?:GDN|Mamba\w*|hybrid|recurrent|gated delta|SSM|RWKV)\b|Qwen3[-.]?Next|Qwen3\.[5-9]"),
    _m("model_kind", "sliding", r"sliding[- ]window|\bSWA\b|\bGemma[- ]?[234]\w*|gpt-oss"),
    _m("model_kind", "mla", r"\bMLA\b|DeepSeek[- ]?(?:V[23]|R1|Coder-V2)|\bKimi\b|GLM-4\.7-Flash"),
    _m("model_kind", "moe", r"\bMoE\b|mixture[- ]of[- ]experts|experts?\b|\bA\d{1,2}B\b"),
    _m("model_kind", "vision", r"\b(?:vision|multimodal|VL)\b model|-VL\b|mmproj"),
    _s("self_sized", True, r"had sized itself|automatic(?:ally)? (?:fit|sized|chosen)|auto[- ]?fit\w*|planner|--fit\b"),
    _s("estimate", "wrong", r"(?:planner|estimate\w*|sizes? (?:that )?[^.]{0,24}reported)[^.]{0,24}(?:seemed |looks? |is |are |was |were )?wrong"),
    _s("estimate", "zero", r"(?:reports?|shows?|sees?|free) (?:\w+ ){0,3}(?:0|zero) (?:\w+ )?(?:free|MiB|memory)|zero free"),
    _s("need_excess", True, r"(?:cache|buffers?) (?:\w+ ){0,5}(?:far |much )?larger than expected|more (?:\w+ )?than (?:the architecture|it should|expected)|far larger than expected"),
    _s("setting_has_effect", False, r"(?:changed|made|has|had) (?:nothing|no (?:effect|difference))|chang\w+ (?:\w+ ){0,3}(?:nothing|no difference)|(?:is|was) ignored|no effect"),
    # --- client
    _s("client", "proxy", r"(?:proxy|router|gateway) (?:between|in front of|before)|(?:through|behind|via) (?:a |an |the )?[\w-]*(?:proxy|router|gateway|litellm)", weight=3),
    _s("client", "agent", r"\b(?:Claude Code|OpenCode|Aider|Cline|Roo(?: Code)?|Cursor|Codex|Continue\.dev|bolt\.diy|Kilo|Goose|OpenHands|SWE-agent|coding agents?|agents?)\b", weight=2),
    _s("client", "chat-app", r"\b(?:Open ?WebUI|SillyTavern|LibreChat|AnythingLLM|Chatbox|Msty|Jan)\b|front end", weight=2),
    _s("client", "retrieval", r"\b(?:RAG(?:Flow)?|retrieval|LlamaIndex|vector (?:store|database))\b", weight=3),
    _s("client", "benchmark", r"\b(?:benchmark|llama-bench|load test|locust|lm-eval\w*)\b", weight=1),
    _s("client", "own-page", r"built-in web ?ui|web (?:page|ui)\b|ollama run\b|command line", weight=1),
    _s("client", "script", r"\bmy (?:own )?(?:script|program|code)\b|python script|\bcurl\b", weight=1),
)  # fmt: skip

_FAILS_AT = (
    re.compile(rf"(?:above|over|beyond|past|at|around|about|near|exceed\w*|of (?:some|about|around)|some|after|from|passed|부터|near token)\s+(?:about |some |around |roughly |approximately |token )?{_span('n')}(?:{_TOKENS}|\b)(?!\s*(?:tok\w*)?\s*(?:a|per|/) ?s)(?!\s*(?:percent|%|GB|GiB|MB|MiB|requests|minutes|hours|seconds|users|turns|cards))", re.IGNORECASE),
    re.compile(rf"{_span('n')}{_TOKENS}?\s*(?:부근|근처|쯤|이상|에서)", re.IGNORECASE),
    re.compile(rf"depth of {_span('n')}", re.IGNORECASE),
)  # fmt: skip
_WORKS_AT = re.compile(rf"(?:below|under|up to|less than) (?:about )?{_span('m')}{_TOKENS}? (?:\w+ ){{0,3}}(?:works?|is fine|fine|ok|passes|no problem)|(?:works?|worked|fine|good|ok|stable|fits?|smoothly|passes|passed|loads?|(?:ran|runs?)(?! out))\b[^.;]{{0,30}}?\b(?:up to|until|till|to about|at|with|to)\s+(?:about |some |around )?{_span('n')}(?:{_TOKENS}|\b)", re.IGNORECASE)  # fmt: skip
_WINDOW = re.compile(rf"(?:(?:window|context(?: size| length| window)?|num_ctx|n_ctx|ctx(?:-size)?|max_seq_len|max[-_]model[-_]len|contextsize)\s*(?:is |was |set to |set at |of |to |=|:|at |\()\s*(?:about )?{_span('a')}|(?:\ba |its |an? |the )?{_span('b')}{_TOKENS}? ?(?:context |ctx )?(?:window|context)\b)", re.IGNORECASE)  # fmt: skip
_TRAINED = re.compile(rf"(?:trained (?:window|context|to|for|at)(?: of| is| length)?|known for a window of|announced for|made for)\s*(?:about )?{_span('n')}", re.IGNORECASE)  # fmt: skip
_SHOWN = re.compile(rf"(?:reported?|shows?|showed|says|said|displays?) (?:a |an )?(?:\w+ )?(?:window|context|ctx)(?: length| size)? of {_span('n')}", re.IGNORECASE)  # fmt: skip
_PROCESSED = re.compile(rf"(?:process\w+|evaluat\w+|prompt_eval_count|kept)\s*(?:count )?(?:of |is |was |=|:)?\s*(?:only )?{_span('n')}(?:{_TOKENS})?\b(?! ?(?:%|GB|GiB|MB|s\b|ms|t/s|tok))", re.IGNORECASE)  # fmt: skip
_SENT = re.compile(rf"(?:prompts?|requests?|inputs?|messages?)\s+(?:with|of|has|have|had|is|was|are|were)\s+(?:only |about |some |around )?{_span('n')}[\s-]*tokens", re.IGNORECASE)  # fmt: skip
_TOTAL = re.compile(rf"prompt (?:plus|and|\+) (?:completion|answer|output|reply)[^.]{{0,40}}?(?:exactly |to |of |= ?|came to ){{1,2}}{_span('n')}", re.IGNORECASE)  # fmt: skip
_SECONDS = re.compile(r"(?:(?:after|within|timeout (?:of|after|is)|timeout_?s?[:=]|takes?|exceeds?|for)\s+(?:exactly |about |some |around |over )?(?P<n>\d+(?:\.\d+)?)[\s-]*(?P<u>s\b|sec\w*|min\w*|m\b|h\b|hours?))", re.IGNORECASE)  # fmt: skip
_SPEEDS = (
    re.compile(rf"(?P<v>\d+(?:\.\d+)?)\s*(?:tok(?:en)?s?|t)\s*(?:/|per |a )\s*s(?:ec(?:ond)?)?\w*\s*(?:\(\w+\)\s*)?(?:at|@|with|for)\s*(?:a depth of |depth |about )?{_span('n')}", re.IGNORECASE),
    re.compile(rf"{_span('n')}(?:{_TOKENS})?\s*(?:에서|:|=|->|→|\|)\s*(?:약 )?(?P<v>\d+(?:\.\d+)?)\s*(?:tok(?:en)?s?|t)\s*/\s*s", re.IGNORECASE),
    re.compile(rf"from (?P<v>\d+(?:\.\d+)?) tokens? (?:a|per) second at {_span('n')}", re.IGNORECASE),
    re.compile(rf"to (?P<v>\d+(?:\.\d+)?)(?: tok\w*(?:/s)?)? at {_span('n')}", re.IGNORECASE),
)  # fmt: skip
_SLOTS = re.compile(
    r"(?:num_parallel|--parallel|-np|parallel(?: slots)?|n_parallel|slots|max[-_]num[-_]seqs)\s*(?:=|:| of | set to )?\s*(?P<n>\d{1,4})\b|(?P<n2>\d{1,3}) (?:parallel )?slots\b|set up for (?P<word>two|three|four|six|eight) users",
    re.IGNORECASE,
)
_RESERVE = re.compile(rf"(?:max[-_ ](?:new[-_ ])?tokens|answer reserve|num_predict|n_predict)\s*(?:=|:| of | set to | is )?\s*{_span('n')}", re.IGNORECASE)  # fmt: skip
_UBATCH = re.compile(
    r"(?:micro-?batch|n_?ubatch|-ub|ubatch[- ]size|max_num_batched_tokens|chunked[-_]prefill[-_]size|prefill[- ]step[- ]size)\s*(?:=|:| of | size )?\s*(?P<n>\d{2,6})\b",
    re.IGNORECASE,
)
_GPU_NAMES: tuple[tuple[str, str, dict[str, float]], ...] = (
    (
        "nvidia",
        r"(?:RTX|GTX|GeForce|Tesla|Quadro|NVIDIA|H100|H200|A100|A10\b|A40|A6000|L40S?|L4\b|V100|P40|P100|T4\b|GB10|DGX Spark|CMP \d+HX|B200|Jetson|Titan)",
        {},
    ),
    ("amd", r"(?:Radeon|RX \d{4}|MI\d{2,3}X?|gfx\d{3,4}|Strix Halo|Ryzen AI|Instinct|7900 ?XTX?|AMD)", {}),
    ("intel", r"(?:Intel Arc|Arc [AB]?\d{3}\w?|Intel \(Mesa|Intel iGPU|Iris Xe|Arc Pro|Data Center GPU Max)", {}),
    ("apple", r"(?:\bM[1-5](?: (?:Max|Pro|Ultra))?\b|Apple Silicon|Mac Studio|MacBook|Mac mini|\ba \d+ GB Mac\b)", {}),
)
_CARD_GIB = re.compile(
    r"(?:RTX|GTX|GeForce|Radeon|RX|Tesla|Arc|A100|H100|H200|L40S?|MI\d+|P40|V100|card|VRAM|gpu|CMP)[^.;,\n]{0,30}?(?P<n>\d{1,3}(?:\.\d+)?)[\s-]*(?P<u>GiB|GB|G)\b|(?P<n2>\d{1,3}(?:\.\d+)?)[\s-]*(?P<u2>GiB|GB|G)\b(?:\s+\w+){0,2}?\s+(?:of )?(?:VRAM|video memory|(?:graphics )?card|GPU)",
    re.IGNORECASE,
)
_COUNT_GPU = re.compile(
    r"\b(?P<n>[2-9]|1[0-6]|two|three|four|six|eight)(?:\s*[x×]\s*|\s+)(?:NVIDIA |AMD |equal |Radeon |GeForce )?(?:RTX|GTX|RX|A100|H100|GPUs?\b|cards?\b|CUDA devices|P40|V100|MI\d+|3060|3090|4090|5090|7900 ?XTX?)",
    re.IGNORECASE,
)
_RAM = re.compile(
    r"(?:(?P<n>\d{1,4})\s*(?P<u>GiB|GB|G)\s*(?:of )?(?:system |unified |host |DDR\d )?(?:RAM|memory)\b|(?<![-_\w])(?:ram(?:_gb)?|system memory|unified memory)\s*(?:=|:|of|is)?\s*(?P<n2>\d{1,4})\s*(?P<u2>GiB|GB|G)?\b|(?P<n3>\d{1,4}) ?GB (?:Mac|machine|unified|box)|\bM[1-5](?: (?:Max|Pro|Ultra))?[ ,(/]{1,3}(?P<n4>\d{1,3}) ?GB)",
    re.IGNORECASE,
)
_STORE = re.compile(r"cache[-_ ]ram(?:_mib)?[\"'`]?\s*(?:=|:|\s)\s*[\"'`]?(?P<n>-?\d{1,7})\b", re.IGNORECASE)
_WEIGHTS = re.compile(
    r"(?P<n>\d+(?:\.\d+)?)\s*(?P<u>GiB|GB)\s+(?:of )?(?:weights|in all|model file)|(?:model|weights)(?: file)? (?:of|is|are|takes?|listed at) (?:about )?(?P<n2>\d+(?:\.\d+)?)\s*(?P<u2>GiB|GB)",
    re.IGNORECASE,
)
_CACHE_GIB = re.compile(
    r"KV(?: cache)?(?: \w+){0,4}?\s(?:is|was|of|about|takes?|needs?|=|:|only)+ (?:only )?(?:about )?(?P<n>\d+(?:\.\d+)?)\s*(?P<u>GiB|GB)",
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
_FAIL_WORD = re.compile(_FAIL, re.IGNORECASE)
_LARGEST_PROSE = 40_000
"""A story is told in less; what is longer is quoted from elsewhere."""
_LONGEST_SENTENCE = 600


def sentences(text: str) -> list[str]:
    """Split prose into sentences, bullet points included."""
    found: list[str] = []
    for part in _SENTENCE.split(text[:_LARGEST_PROSE]):
        whole = " ".join(part.split())
        found.extend(whole[at : at + _LONGEST_SENTENCE] for at in range(0, len(whole), _LONGEST_SENTENCE))
    return found[:500]


def read_prose(text: str) -> dict[str, Value]:
    """Give the answers that prose gives: question id → value."""
    text = _NO_WORD.sub(" ", text[:_LARGEST_PROSE])
    text = _WORD_THOUSANDS.sub(lambda match: f"{_SMALL_WORDS[match[1].lower()]} thousand", text)
    parts = sentences(text)
    answers: dict[str, Value] = {}
    votes: dict[str, Counter[Value]] = {}
    many: dict[str, list[str]] = {}
    for part in parts:
        for saying in SAYINGS:
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
                votes.setdefault(saying.question, Counter())[saying.value] += saying.weight
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


_SYMPTOMS: tuple[tuple[str, int, re.Pattern[str]], ...] = tuple(
    (symptom, weight, re.compile(pattern, re.IGNORECASE))
    for symptom, weight, pattern in (
        ("immediate-oom", 3, rf"{_LOAD}[^.]{{0,120}}{_OOM}|{_OOM}[^.]{{0,120}}{_LOAD}"),
        ("immediate-oom", 2, _LOAD),
        ("immediate-oom", 1, _OOM),
        ("immediate-oom", 2, r"first (?:matrix|computation|inference|token)[^.]{0,40}(?:fail|crash|died|error|out[- ]of)|(?:crash\w*|fail\w*|died) at (?:its|the) first"),
        ("fixed-length-error", 3, rf"(?:above|over|beyond|past|at|around|about|some|near|of|after|whenever)[^.]{{0,24}}\d[\d,.]*\s*(?:k|thousand)?{_TOKENS}(?! ?(?:a|per) second|/s)[^.]{{0,80}}{_FAIL}|{_FAIL}[^.]{{0,80}}(?:above|over|beyond|past|at|around|about|some|near|of|after)[^.]{{0,24}}\d[\d,.]*\s*(?:k\b(?! (?:context )?window)|thousand|{_TOKENS}(?! ?(?:a|per) second|/s))|\d+\s*[kK]?\s*(?:토큰)?\s*부근에서[^.]{{0,20}}{_FAIL}"),
        ("fixed-length-error", 2, rf"context (?:overflow|exceed\w*)|exceed\w* (?:the )?(?:available )?context|maximum context length|refused with|window of \d+\w* (?:was|is) used|as soon as the (?:chat|conversation) filled|(?:long|every) (?:\w+ )?prompts? (?:\w+ ){{0,5}}(?:fail|crash|cut off|error|die)|at a depth of|under (?:\w+[- ])?long-context load[^.]*{_FAIL}|at various steps|(?:reports?|reported|shows?|showed) a window of \d+ (?:though|but|instead|although)"),
        ("slow-long-context", 3, _SLOW),
        ("slow-long-context", 1, r"seconds? to (?:first|read)|\b(?:t|tok|tokens)/s\b"),
        ("forgetting", 3, _FORGET),
        ("forgetting", 1, r"effective (?:limit|context)|dropped"),
        ("flaky", 3, rf"^.{{0,60}}{_FLAKY}"),
        ("flaky", 2, _FLAKY),
        ("flaky", 3, r"sometimes[^.]{0,90}(?:sometimes|works|worked|passes|other times)|after one [^.]{0,40}after (?:the next|another)|with nothing changed|and the retry|(?:press|click|hit)\w* retry|\bretry(?:ing)? [^.]{0,30}(?:works|passes|completes|succeeds)|(?:fails|failed),? and then[^.]{0,30}(?:pass|work)"),
        ("flaky", 2, r"(?:when|once) several (?:\w+ )?(?:came|arriv\w*|long)|after (?:several|many|some|a few) (?:requests|hours|days|minutes|turns)|after a day|over \w+ gigabytes of system|until a reboot|killed by the kernel|whole machine|vanish\w*|single requests? were fine|time after time|works? on a (?:newly|freshly) started"),
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
    if len(speeds) > 0:
        answers["speed_by_length"] = ", ".join(f"{length}={speed:g}" for length, speed in sorted(speeds.items())[:40])
    _read_hardware(text, answers)
    near = " ".join(found[0] for found in _CACHE_NEAR.finditer(text))
    kinds = {name for name, pattern in _CACHE_NAMES if re.search(pattern, near, re.IGNORECASE)}
    if len(kinds) == 1:
        answers["cache_type"] = kinds.pop()


def _read_lengths(part: str, answers: dict[str, Value]) -> None:
    for question, pattern, names, low in (
        ("window_trained", _TRAINED, ("n",), 256), ("window_shown", _SHOWN, ("n",), 128), ("total_tokens", _TOTAL, ("n",), 64),
        ("processed_tokens", _PROCESSED, ("n",), 64), ("sent_tokens", _SENT, ("n",), 64), ("answer_reserve", _RESERVE, ("n",), 16),
        ("works_at", _WORKS_AT, ("n", "m"), 512), ("window_asked", _WINDOW, ("a", "b"), 256),
    ):  # fmt: skip
        if question not in answers:
            length = _length(pattern.search(part), *names)
            if length is not None and length >= low:
                answers[question] = length
    if "fails_at" not in answers and _FAIL_WORD.search(part):
        for pattern in _FAILS_AT:
            for match in pattern.finditer(part):
                length = _length(match)
                unit = match.groupdict().get("n_k") or "token" in match[0].lower() or "토큰" in match[0]
                if (
                    length is None
                    or length < 256
                    or (not unit and length < 1000)
                    or length in {answers.get("window_asked"), answers.get("works_at")}
                ):
                    continue
                answers.setdefault("fails_at", length)
    seconds = _SECONDS.search(part)
    if seconds is not None and "seconds_to_failure" not in answers and _FAIL_WORD.search(part):
        factor = {"m": 60, "h": 3600}.get(seconds["u"][0].lower(), 1)
        answers["seconds_to_failure"] = float(seconds["n"]) * factor
    slots = _SLOTS.search(part)
    if slots is not None and "slots" not in answers:
        count = int(slots["n"] or slots["n2"] or 0) or _SMALL_WORDS.get((slots["word"] or "").lower(), 0)
        if 1 <= count <= 4096:
            answers["slots"] = float(count)
    batch = _UBATCH.search(part)
    if batch is not None and "micro_batch" not in answers:
        answers["micro_batch"] = float(batch["n"])


def _gib(number: str, unit: str | None) -> float:
    value = float(number)
    return round(value * 1e9 / 2**30, 2) if (unit or "").upper() == "GB" and value != int(value) else value


def _read_hardware(text: str, answers: dict[str, Value]) -> None:
    makers = [maker for maker, pattern, _sizes in _GPU_NAMES if re.search(pattern, text)]
    if makers:
        answers["gpu_maker"] = makers[0] if len(makers) == 1 else "mixed" if "apple" not in makers else makers[0]
    names = set(
        re.findall(r"(?:RTX|GTX|RX|Tesla|Radeon)\s?(?:PRO |Pro )?[A-Z]?\d{3,4}(?:\s?(?:Ti|XTX|XT|SUPER|Laptop))*", text)
    )
    count = _COUNT_GPU.search(text)
    several = re.search(
        r"(?:multi-?gpu|multi-?card|dual[- ](?:gpu|card)|(?:two|both|many|three|several|four) (?:\w+ ){0,2}(?:cards|gpus|cuda devices)|over (?:two|three|many) )",
        text,
        re.IGNORECASE,
    )
    if (len(names) > 1 and re.search(r"\+|\band\b|,", text)) or re.search(
        r"(?:small|smaller) and a (?:large|larger|big) card|different sizes", text, re.IGNORECASE
    ):
        answers["several_gpus"] = "unequal"
    elif re.search(r"(?:two|three|four|\d) equal cards", text, re.IGNORECASE) or (
        count is not None and len(names) == 1
    ):
        answers["several_gpus"] = "equal"
    elif count is not None or several is not None:
        answers["several_gpus"] = "several"
    cards = [(_gib(m["n"] or m["n2"], m["u"] or m["u2"])) for m in _CARD_GIB.finditer(text)]
    cards = [size for size in dict.fromkeys(cards) if 2 <= size <= 4096]
    if cards:
        number = count["n"].lower() if count is not None else "1"
        amount = int(number) if number.isdigit() else _SMALL_WORDS.get(number, 1)
        answers["gpu_gib"] = float(cards[0] * amount if len(names) <= 1 else sum(cards[: max(len(names), 1)]))
        if "several_gpus" not in answers and count is None:
            answers["several_gpus"] = "one"
    ram = _RAM.search(text)
    if ram is not None:
        size = float(ram["n"] or ram["n2"] or ram["n3"] or ram["n4"])
        before = text[max(0, ram.start() - 12) : ram.start()].lower()
        if 1 <= size <= 8192 and "video" not in before and "gpu" not in before:
            answers["ram_gib"] = size
    store = _STORE.search(text)
    if store is not None:
        mib = int(store["n"])
        answers["stored_prompts"] = float(mib if mib <= 0 else round(mib / 1024, 3))
    for question, pattern in (("weights_gib", _WEIGHTS), ("cache_gib", _CACHE_GIB)):
        match = pattern.search(text)
        if match is not None:
            groups = match.groupdict()
            answers[question] = _gib(groups["n"] or groups.get("n2") or "0", groups.get("u") or groups.get("u2"))
