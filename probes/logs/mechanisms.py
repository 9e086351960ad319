# ruff: noqa: E501 - a phrase is read best on one line
"""Mechanisms that a report names itself, in its title or its sentences: the words of each trade, not of one report.

Who writes a report often knows, or suspects, what is behind it: "the context is divided by the slots", "prefix caching does not work". That is a
person's opinion and weighs as one; it tells between causes that the rest of the report leaves alike.
"""

from __future__ import annotations

import re
from collections import Counter

from .prose import is_negated, without_questions
from .sayings import GOES_ON, HUNG

MOST = 3
"""Who names more than so many names none."""
_TITLE, _SENTENCE = 3, 1
_LARGEST = 24_000

_NOT_WORK = r"(?:not (?:\w+ )?(?:function\w*|work\w*|re-?used?|used|enabled|supported|implemented|tak\w+ advantage|hit\w*|kick\w*|persist\w*|kept|shared)|never (?:\w+ )?(?:re-?used?|hits?|serv\w+|works?|matches|kicks|happens)|isn.t|is not|does(?:n.t| not)|did(?:n.t| not)|bypass\w*|no longer|disabled|broken|useless|ineffective|miss(?:es|ing)?)"
_LACK = r"(?:\bno\b|without|lacks?|missing|lack of|not (?:implement\w*|support\w*)|does(?:n.t| not) (?:support|have|implement|use|re-?use|do)|non-?functioning|not (?:functioning|working|re-?us\w+|using|enabled)|never (?:re-?uses?|hits?|serves?|uses?)|stopped re-?using|bypass\w*|not taking advantage of)"
_CACHE = r"(?:(?:prompt|prefix|query|kv|context|conversation|automatic|apc|radix)[- /]?)(?:state )?cach\w*"
_WINDOW = r"(?:context(?:[- _](?:window|size|length|limit))?|window|num_ctx|n_ctx|ctx(?:[-_ ]size)?|max[-_]model[-_]len|max_seq_len|contextsize|컨텍스트)"
_OOM = r"(?:out[- ]of[- ](?:\w+[- ])?memory|\bOOM(?:s|ed)?\b|outofmemory\w*|run(?:s|ning)? out of (?:\w+ )?(?:memory|vram)|메모리 부족)"
_SPEC = r"(?:\bmtp\b|\bdraft(?:er|ing|[- ]model|[- ]mtp)?\b|specul\w+|\beagle\d?\b|\bnextn\b|n-?gram)"
_LONG = r"(?:long|longer|large|larger|big|bigger|high|higher)(?:er)?[- ](?:context|prompt|input|sequence)s?(?: lengths?| sizes?)?"
_BABBLE = r"(?:garbage|gibberish|garbled|nonsens\w*|incoheren\w*|rubbish|broken output|wrong output)"
_FULL = r"(?<!-)\bfull\b(?![- ](?:attention|length|context|size|window|precision|prompt|prefill|log|output|model|path|re-?\w+|command|\w+ log|stop))"
"""Nothing left, not "the whole of something"."""
_PAST = r"(?:past|beyond|above|over|>|more than|after|exceed\w*|longer than|greater than|higher than)"

_NAMES: tuple[tuple[str, str, str | None], ...] = (
    # kv-format
    ("kv-cache-size", rf"larger than the maximum number of tokens that can be stored in (?:the )?kv|(?:{_WINDOW}|kv[- ]?cache) (?:\w+ ){{0,3}}(?:do(?:es)?(?:n.t| not)|did(?:n.t| not)|won.t|can(?:not|.t)|not) fit\w*|not enough (?:\w+ )?(?:memory|vram|room|space) for (?:the )?(?:\w+ )?(?:context|kv)|{_OOM} (?:\w+ ){{0,3}}(?:with|at|for) (?:a |the )?(?:larger |large |long |longer |big )?(?:context|num_ctx)|(?:larger|bigger|longer|huge|specifying a \w+) context(?: size| window| length)? (?:\w+ ){{0,3}}(?:{_OOM}|leads to|causes)|kv[- ]?cache (?:is |was |gets |being )?(?:too (?:big|large)|huge|enormous)|KV ?캐시.{{0,12}}(?:부족|안 들어|너무)", None),
    ("parallel-multiplies-kv", r"(?:num_parallel|parallel\w*|slots?|concurren\w+|max[-_]num[-_]seqs)\b.{0,60}(?:multipl\w*|times|doubl\w*|quadrupl\w*|reserv\w*|per slot).{0,50}(?:kv|memory|vram|cache)|kv[- ]?cache (?:\w+ ){0,3}(?:for each|per|times the) (?:slot|sequence|parallel)|(?:ctx|context|cache|num_ctx)\w* ?(?:size |length )?(?:\*|×|\bx\b|times) ?(?:the )?(?:num_?|n_?|number of )?(?:parallel\w*|slots|concurren\w*)|(?:parallel\w*|slots) ?(?:\*|×|\bx\b|times) ?(?:the )?(?:n_?ctx|num_ctx|context)", None),
    ("engine-kv-overallocation", r"over-?allocat\w*.{0,24}(?:kv|cache)|(?:kv|cache).{0,30}over-?allocat\w*|(?:kv[- ]?cache|memory)(?: usage| size)? (?:is )?(?:\w+ )?(?:higher|larger|more|bigger|too (?:high|large|much)) than (?:expected|necessary|it should|needed|calculated)|(?:swa|sliding\w*) (?:\w+ )?(?:layers|cache).{0,40}full[- ](?:size|length|context)", None),
    ("kv-quant-needs-flash-attn", r"(?:quant\w*|\bv\b)[- ]?(?:v |kv )?cache.{0,20}(?:requires?|needs?|without) (?:\w+ )?flash|kv (?:cache )?quant\w*.{0,20}(?:needs?|requires?|without) (?:flash|fa\b)", None),
    ("kv-quant-no-gpu-kernel", r"(?:quanti[sz]\w*|quants?|mixed|mismatch\w*|differ\w*|q\d_\d|kv[- ]quant\w*)\b.{0,30}(?:kv|k/v|cache|types?)\b.{0,60}(?:slow\w*|\bcpu\b|fall\w* ?back|unsupported|not supported|performance|speed)|(?:slow\w*|on the cpu|fall\w* back|performance|speeds?)\b.{0,60}(?:quanti[sz]\w*|quants?|mixed|differ\w*|q\d_\d).{0,16}(?:kv|k/v|cache)|kv[- ]quant\w*.{0,20}(?:slow|performance|speed)|(?:kv|k/v).{0,20}types? differ|캐시 양자화.{0,20}(?:느|CPU)", r"quality|accuracy"),
    ("kv-quant-quality", rf"(?:quanti[sz]\w*|q4_\d|q8_0|fp8|int8|[48][- ]bit)\b.{{0,16}}(?:kv|k/v|cache)\b.{{0,80}}(?:quality|accuracy|dumb\w*|worse answers|reasoning|perplexity|hallucin\w*|{_BABBLE}|degrad\w* (?:output|quality))|(?:quality|accuracy|reasoning|{_BABBLE})\b.{{0,60}}(?:quanti[sz]\w*|q4_\d|q8_0|fp8)[- ](?:kv|k/v|cache)", r"slow"),
    ("kv-cache-corruption-bug", rf"(?:corrupt\w*|poison\w*|contaminat\w*)\b.{{0,40}}cach\w+|cach\w+\b.{{0,40}}(?:corrupt\w*|poison\w*|contaminat\w*)|(?:cached|cache (?:hits?|re-?use|restor\w*)|prefix cach\w*|restor\w+ .{{0,40}}(?:cache|checkpoint|slot|state))\b.{{0,60}}(?:{_BABBLE}|wrong|corrupt\w*|crash\w*|assert\w*)|(?:{_BABBLE}|crash\w*|assert\w*)\b.{{0,60}}(?:cache (?:hits?|re-?use)|(?:when|after|while|with) .{{0,40}}(?:restor\w+|checkpoint restor\w*|prefix cach\w*))", r"--cache-ram|out of memory"),
    # backend-allocation
    ("weights-leave-no-room", r"model (?:is |may be |just |itself )*too (?:big|large|heavy)|weights (?:alone )?(?:take|fill|leave|do not|don.t|barely)|(?:can.?t|cannot|unable to|fail\w* to) (?:load|fit) .{0,30}(?:model|weights) .{0,30}(?:vram|gpu memory)", None),
    ("compute-buffer-too-big", rf"compute (?:pp |graph )?buffers?\b.{{0,50}}(?:too|fail\w*|{_OOM}|large|huge|grow\w*)|(?:fail\w*|unable)\b.{{0,24}}compute (?:pp )?buffers?|(?:graph|scratch) (?:buffer|memory|reserv\w*)\b.{{0,40}}(?:too|{_OOM}|huge|fail\w*|large)|(?:ubatch\w*|-ub|micro-?batch)\b.{{0,40}}{_OOM}", r"device (?:memory|buffer)"),
    ("pipeline-copies-buffer", r"pipeline parallelism|n_copies|SCHED_MAX_COPIES|(?:loads?|works?|fits?|runs?)\b.{0,24}\b(?:single|one) (?:gpu|card)\b.{0,40}(?:fail\w*|\boom\b|crash\w*|out of memory)\b.{0,24}(?:two|dual|both|multi\w*)", None),
    ("memory-fragmentation", r"fragment(?:ed|ation)\b|not contiguous|contiguous (?:block|memory|chunk)|단편화", r"to avoid fragmentation"),
    ("backend-single-allocation-limit", r"exceeds? (?:the )?device (?:memory allocation|buffer size|buffer|max\w*) ?\w* ?limit|maxMemoryAllocationSize|max_?BufferSize|MAX_ALLOCATION_SIZE|max(?:imum)? (?:allowed )?(?:buffer|allocation) size|greater than the maximum allowed buffer|single (?:buffer|allocation)\b.{0,30}(?:limit|max\w*|[124] ?gb)|[124] ?GB (?:per[- ]|single )?(?:allocation|buffer) limit|buffers? larger than [124]|device memory allocation of size \S+ failed", None),
    ("memory-estimate-bug", r"memory (?:estimat\w*|predict\w*|calculations?|profiling|planner|planning|accounting)|(?:estimat|calculat|predict|profil)\w* .{0,40}(?:gpu_?memory|memory|vram|layers|kv cache)|under-?estimat\w*|over-?estimat\w*|miscalculat\w*|does(?:n.t| not) (?:see|take into account|account for|consider|include) .{0,40}(?:vram|memory|context|overhead|cache)|too many layers (?:on|to|in)|(?:kv )?(?:cache |memory )?pool (?:is |being )?(?:sized|size|budget) .{0,20}too small|ignor\w* .{0,20}overhead|(?:only )?us(?:es?|ing) (?:only |just |about )?\d+(?:\.\d+)? ?G(?:i?B)? (?:out )?of (?:the |my |its )?\d+|(?:not|fails? to|does(?:n.t| not)) (?:fully |completely )?(?:utili[sz]\w+|us\w+|fill\w*) (?:all (?:of )?|the |my |its |available |whole |\S+ \S+ ){0,3}(?:vram|gpu memory|video memory)|(?:0|zero) (?:bytes )?(?:free|available) (?:vram|memory)|picks? (?:the )?wrong .{0,20}(?:heap|free|memory)|(?:gpu_)?memory[_-]utili[sz]ation .{0,40}(?:oom|wrong|ignored|not (?:respect|honou?r))\w*", None),
    ("engine-reserve-overhead", rf"cuda ?graphs?\b.{{0,40}}(?:{_OOM}|memory)|(?:{_OOM}).{{0,40}}(?:cuda ?graph|captur\w+)|captur\w+ .{{0,20}}graphs?|enforce[-_]eager", r"FULL_AND_PIECEWISE"),
    ("draft-mtp-vram", rf"{_SPEC}\b.{{0,90}}(?:{_OOM}|(?:memory|vram) (?:usage|use|need)|more (?:memory|vram)|offload\w* to (?:the )?cpu|on the cpu|extra (?:context|kv))|(?:{_OOM}|excessive memory|memory usage|offload\w* to (?:the )?cpu|on the cpu)\b.{{0,60}}{_SPEC}", None),
    ("mmproj-vram", rf"(?:mmproj|vision|projector|\bclip\b|image encod\w*|multimodal)\b.{{0,60}}(?:{_OOM}|vram|gpu memory|allocat\w*)|(?:{_OOM}|vram)\b.{{0,50}}(?:mmproj|projector|images?\b|vision)", r"host|system ram|cache-ram"),
    ("pinned-host-memory-limit", r"pinned (?:host )?memory|page-?locked|cudaMallocHost|cudaHostAlloc|hipHostMalloc", None),
    ("metal-wired-limit", r"iogpu\.wired|wired[_ ](?:memory[_ ])?limit|recommendedMaxWorkingSetSize|working set|ErrorOutOfMemory\b.{0,40}metal|metal\b.{0,60}ErrorOutOfMemory", None),
    ("prefill-activation-peak", rf"(?:transient|temporary|momentary|activations?)\b.{{0,24}}(?:alloc\w*|memory|tensors?|peaks?|buffers?|spikes?)|(?:{_OOM}|memory (?:peak|spike|refus\w*|guard))\b.{{0,40}}(?:during|in|while|at|on) (?:the )?(?:{_LONG} |long )?(?:prefill\w*|prompt processing|inference|generation)|prefill\w*\b.{{0,50}}(?:{_OOM}|memory (?:peak|spike|refus\w*|guard))|memory_refusal|logits .{{0,30}}{_OOM}|context .{{0,30}}(?:during|at) (?:the )?inference", None),
    # uneven-split
    ("uneven-gpu-split", r"(?:uneven|unbalanced|imbalanced?|unequal|asymmetric|lopsided)\w*\b.{0,30}(?:split|gpus?|vram|memory|cards?|distribut\w*|layers)|(?:split|distribut\w*|spread)\w* .{0,40}(?:uneven\w*|unequal\w*|not (?:even|correct|proper)\w*)|(?:split|distribut\w*|spread) context (?:between|across|over)|context splitting|(?:second|other|secondary|2nd)(?: graphics)? (?:gpu|card)s?\b.{0,40}(?:not (?:\w+ )?(?:used|utili[sz]ed|working)|idle|empty|unused|plenty|free|room left)|not (?:fully )?(?:utili[sz]\w+|us\w+) (?:the )?(?:secondary|second|other|all|both) gpus?|tensor[-_ ]?split\b.{0,80}(?:oom|out of memory|still|ignored|not)|(?:only|just)\b.{0,50}\bon the \W?first\W? gpu|multi-?gpu\b.{0,30}(?:fail\w*|oom|allocation|setup)|plenty of room .{0,20}(?:second|other) gpu|한쪽 (?:GPU|카드)", None),
    ("gpu-split-no-headroom", rf"gpu[-_ ]split\b.{{0,60}}(?:{_OOM}|insufficient|not enough|mem)|insufficient vram in split|auto-?split\b.{{0,60}}(?:{_OOM}|headroom|room|exhaust\w*|fail\w*)|no (?:headroom|room)\b.{{0,30}}(?:activations?|context|cache)|gpu (?:mem(?:ory)? )?split logic|{_OOM} even with multiple gpus", None),
    ("gpu-transfer-bound", r"(?:pcie|pci-e|nvlink|risers?|interconnect|thunderbolt|oculink)\b.{0,40}(?:bottleneck\w*|bandwidth|slow\w*|limit\w*)|bottleneck\w* by (?:the )?(?:pcie|bus|link)|대역폭.{0,10}병목", None),
    # spill
    ("vram-spill-shared-memory", r"shared (?:gpu |video |graphics |system )?memory(?!: ?\d)|sysmem fallback|system (?:memory )?fallback|spill\w* (?:over )?(?:in)?to (?:system |shared |host )?(?:ram|memory)|공유 ?(?:GPU )?메모리", r"cuda kernel|shmem|on-chip|unified"),
    ("cpu-layer-offload", r"(?:layers?|entire model|whole model|model fully|the model|model)\b.{0,30}\b(?:on|to|onto) (?:the )?cpu\b|(?:runs?|running|inference|falls? back|forc\w+)\b.{0,30}\b(?:on|to) (?:the )?cpu\b|\d+ ?%/\d+ ?% cpu/gpu|\d+ ?% cpu\b|not (?:running|using|use)\b.{0,20}\bgpu|model not running on|cpu (?:utili[sz]ation|usage|load)\b.{0,20}(?:100|high|near)|offload\w*\b.{0,30}\bto (?:the )?(?:cpu|ram|system ram)|on gpu\+cpu|CPU(?:로|에서) ?(?:넘어|돌|밀)", r"kv cache to"),
    ("cpu-offload-transfer", r"(?:experts?|moe|weights)\b.{0,40}\b(?:in|on) (?:ram|cpu|system memory)\b.{0,60}(?:slow\w*|pcie|bus|transfer\w*)|(?:ncmoe|n-cpu-moe|cpu-moe)\b.{0,40}(?:slow\w*|prefill)", None),
    ("mmap-or-swap-paging", r"page ?cache|swapp?ing (?:to|in|out|heavily)|\bswap\b.{0,30}(?:thrash\w*|full|used|heavy)|page faults?|paging\b|mmap\w*\b.{0,40}(?:slow|disk|reads?)|(?:reads?|reading|loads?)\b.{0,40}from (?:the )?(?:disk|ssd|nvme)\b|thrash\w*|디스크(?:에서|를).{0,12}읽", r"paged"),
    # effective-context
    ("effective-context-quality", r"lost in the middle|needle[- ]in|\bruler\b|nolima|effective context|(?:quality|accuracy|recall|comprehension)\b.{0,20}(?:drops?|degrad\w*|declin\w*|falls?)\b.{0,40}(?:context|length|long|tokens)|degrad\w* (?:at|with|over|in) (?:long|longer|large) context", r"cache|quanti"),
    ("rope-scaling-misuse", rf"\brope\b.{{0,20}}(?:scal\w*|freq\w*|base|factors?|issue|wrong|config\w*|bug)|(?<![-/])\byarn\b(?![-/])|longrope|rope_scaling|dynamic ntk|{_BABBLE}\b.{{0,80}}{_PAST} ?~? ?(?:2048|4096|8192|16384|32768|131072|[248]k|16k|32k)\b|{_PAST} ?~? ?(?:2048|4096|8192|32768|[248]k|32k)\b.{{0,60}}{_BABBLE}", None),
    ("context-shift", r"context[- ]?shift\w*|ctx[-_]shift|rolling window|shift\w* the (?:slot )?context|n_discard|crash\w*.{0,24}context (?:length|limit|window) (?:is |was )?(?:exceeded|reached)|컨텍스트 ?시프트", r"disable\w* context|no context shift|not (?:available|supported)|--no-context-shift"),
    ("backend-attention-bug", rf"(?:sliding[- ]window|\bi?swa\b|local attention|attention (?:mask|sinks?|bias)|chunked attention)\b.{{0,40}}(?:bug|wrong|ignored|incorrect\w*|missing|not (?:implemented|applied))|{_BABBLE}\b.{{0,60}}{_LONG}|{_LONG}\b.{{0,60}}{_BABBLE}|prompts? longer than \S+ tokens.{{0,80}}{_BABBLE}|{_BABBLE}\b.{{0,60}}prompts? longer than", r"cache (?:hit|reuse)|quanti"),
    ("long-session-drift", r"(?:after|over) (?:many|\d+|several|dozens of) (?:turns|messages|tool calls|iterations|steps)\b.{0,80}(?:loops?|repeat\w*|forget\w*|drift\w*|los\w+)|(?:model|agent|context|persona|character|behaviou?r|instructions?|answers?|persona) (?:\w+ )?drift(?:s|ing|ed)?\b|long (?:\w+ )?sessions?\b.{0,60}(?:loops?|repeat\w*|degrad\w*|forget\w*)", None),
    # window-limits
    ("silent-truncation-default-ctx", rf"truncation[-_ ]length\W{{0,6}}(?:(?:is|was|of|at|to|set|still|the|default)\W{{1,3}}){{0,4}}(?:512|1024|2048|4096)\b|(?:prompts?|inputs?|context|history|text|messages?|conversation)\b (?:\w+ ){{0,3}}(?:truncat\w*|clipped|cut off|cut at)|truncat\w* (?:\w+ )?(?:the )?(?:input|prompt|context)|input truncation|default (?:value |setting )?(?:of )?(?:the )?{_WINDOW}(?!.{{0,80}}(?:memory|vram|\bgpu\b|spill|larger|bigger|increas|higher|oom))|(?:defaults? (?:to|of|is|num_ctx is))\b.{{0,16}}(?:2048|4096|2k|4k|512)\b|(?:2048|4096|2k|4k)(?:[- ]token)?s? (?:default|limit)|\d{{4,6}}/\d{{4,6}}\b.{{0,40}}(?:tokens|context)|(?:잘리|잘려|잘린)", r"truncation (?:setting|slider)|half|num_ctx ?/ ?2|untruncat"),
    ("silent-truncation-half-window", r"half (?:of )?(?:the |its |my )?(?:configured |context|window|num_ctx)|(?:num_ctx|n_ctx|window) ?/ ?2|half[- ]window", None),
    ("slots-divide-ctx", r"(?:ctx|context|window)\S*(?: size| length| window)?\b.{0,40}(?:divid\w*|split|shared|distributed) (?:by|among|between|across|over)\b.{0,30}(?:slots?|parallel\S*|\bnp\b|sequences|requests|users|sessions|\d)|divid\w* (?:the )?(?:total )?(?:ctx|context) by|each slot (?:receives|gets|has|only)|(?:multiple|parallel|more) (?:slots|sessions|requests)\b.{0,60}(?:fraction|divid\w*|ctx\b|smaller|context)|it.s divided by|슬롯.{0,20}나누", r"gpu"),
    ("kv-pool-exhausted", r"(?:kv|token)[- ]?(?:cache )?(?:pool|usage|blocks|pages)\b.{0,40}(?:full|exhaust\w*|100 ?%|0\.9\d|9\d(?:\.\d)? ?%|1\.0\b|run\w* out|never hold)|preempt(?:ed|ion)\b|no (?:available|free) (?:kv )?(?:blocks|cells|pages)|kv[- ]cache (?:is )?full|(?:longer|larger|bigger) than the (?:kv )?(?:cache )?pool|retract\w*|queued forever|not enough (?:kv )?cache (?:space|blocks|pages)|fail\w* to find (?:a |free )?.{0,12}(?:slot|space|cells)|context size has been exceeded|exhausting context|(?:cpu|gpu) kv cache is used", None),
    ("ctx-capped-by-engine", r"(?:capp?ed|clamp\w*|limited|restricted|reduced) (?:to|at) (?:the )?(?:n_ctx_train|training|trained|max_position|model.s)|exceeds? (?:the )?(?:trained|training|n_ctx_train)|greater than the derived max_model_len", None),
    ("default-ctx-tier-changed", r"(?:new|changed|larger|bigger|higher|increased|raised) default (?:context|num_ctx|ctx|window)|default (?:context|num_ctx|ctx|window)(?:[ _](?:length|size|window))?\b.{0,60}(?:memory|vram|spill|larger|bigger|increas\w*|higher)|(?:default|tiered|vram[- ]based|automatic)\b.{0,12}(?:context|num_ctx|ctx)\w*\b.{0,60}(?:changed|tiers?|vram|new version|upgrad\w*|updat\w*|262144|256k)|default_num_ctx|after (?:the |an )?(?:update|upgrade)\b.{0,60}(?:context|ctx)\b", None),
    ("server-config-not-applied", rf"(?:settings?|config\w*|options?|parameters?|flags?|arguments?|env(?:ironment)? (?:variables?|file)|\.env file|slider|presets?|yaml|max_position_embeddings|max prompt size|maximum prompt size|prompt size)\b.{{0,60}}(?:ignored|not (?:\w+ )?(?:applied|honou?red|respected|read|picked up|passed|taken)|no effect|nothing for|does(?:n.t| not) (?:\w+ )?(?:apply|affect|do anything|read|respect|change)|non-?functional)|(?:ignor\w+|does(?:n.t| not) (?:read|respect|honou?r|apply|affect))\b.{{0,40}}(?:settings?|config\w*|env\b|max_position|{_WINDOW}|maximum prompt)|(?:context|window)\b.{{0,24}}cannot be changed|not (?:to have been |been )?passed (?:on )?to|we set in .{{0,30}}(?:why|not|still)|ignor\w+ (?:the |my )?(?:flag |option |argument )?[`\"\W]{{0,2}}--?[a-z][a-z-]+|설정.{{0,16}}(?:적용(?:이|되지)? ?(?:안|않)|무시)", None),
    ("request-option-ignored", r"num_ctx\b.{0,60}(?:ignored|not (?:honou?red|respected|passed|sent|applied)|no effect|never)|(?:ignor\w*|drop\w*|never sets?|but never)\b.{0,30}(?:num_ctx|options\.num_ctx|n_ctx)|openai[- ](?:compat\w*|endpoint)\b.{0,60}(?:ignor\w*|num_ctx|context)|regardless of (?:the|which)\b.{0,40}(?:\bapi\b|endpoint)|ignored regardless|request omits|(?:front-?end|client|request|\bapi\b|app|tool)s?\b.{0,30}(?:can(?:no|.)t|no way|unable|impossible|not possible)\b.{0,40}(?:context|num_ctx|n_ctx)|(?:can(?:no|.)t|no way|unable|impossible|not possible)\b.{0,40}(?:set|choose|control|change|pass|specify)\b.{0,24}(?:context|num_ctx|n_ctx)\w*.{0,30}(?:via|through|from|per|in|over) (?:the |an? |each )?(?:front-?end|client|request|\bapi\b|app|tool)", None),
    ("client-ctx-mismatch", r"exceeds? (?:the )?(?:available |maximum |model.s )?context (?:size|length|window)|(?:longer|larger|bigger|greater) than (?:the )?(?:model.s |model )(?:context|window|max\w*)|keep the first \d+ tokens|exceed_context_size|(?:exceeding|exceeds) the context window|context[- ]overflow\w*|exceeds the (?:model.s )?(?:actual |real )?(?:context|window)|prompt (?:is )?too long|maximum context length is|(?:cline|roo|kilo|opencode|continue|cursor|extension|client|plugin|agent|front-?end)\b.{0,40}(?:defaults? to|assumes?|is stuck at|caps? (?:it )?at|shows?)\b.{0,24}\d[\d.,]* ?k?\b.{0,24}(?:context|tokens|window)|report\w* (?:the )?wrong (?:context|window)|(?:context|limit)\b.{0,30}(?:hard-?coded|mismatch\w*)", r"pool"),
    ("output-budget-eats-window", r"max_(?:new_|completion_|output_)?tokens\b.{0,60}(?:subtract\w*|reserv\w*|eats|truncat\w*)|reserv\w*\b.{0,40}(?:for (?:the )?)(?:output|response|answer|generation|completion)|(?:output|response) (?:budget|reserve)", None),
    # time-and-size-limits
    ("gpu-watchdog-timeout", r"ring\b.{0,24}time-?out|\btdr\b|(?<!discovery )(?<!health )(?<!startup )(?<!server )(?<!load )watchdog|gpu (?:job |command )?(?:hangs?|time-?out|resets?(?! required| needed))|device ?lost\w*|errordevicelost|launch ?time-?d? ?out|impacting ?interactivity|VK_ERROR_DEVICE_LOST|monopoli[sz]ing the gpu", None),
    ("client-proxy-timeout", r"\btime-?outs?\b|timed out|times? out\b|client disconnect\w*|disconnects? (?:before|after|while)|\b504\b|deadline exceeded|abort\w*\b.{0,24}after (?:exactly )?\d+ ?(?:s\b|sec\w*|min\w*)|hard-?limits? .{0,30}requests?|시간 ?초과|타임아웃", rf"ring|\bgpu\b|watchdog|\btdr\b|runner to start|devicelost|device lost|kernel|opencode started|{GOES_ON}|{HUNG}"),
    ("backend-kernel-bug", r"GGML_ASSERT|(?:int(?:eger)?|32-?bit|16-?bit)[- ](?:\w+ )?overflow\w*|INT_MAX|invalid (?:argument|configuration)|illegal memory access|assert\w* (?:fail\w*|triggered)|misaligned address|\b65535\b|grid (?:dim\w*|size)|cuda errors?\b(?!.{0,16}(?:out of|memory))|(?:vulkan|cpu|rocm|metal) (?:build |backend |version )?(?:is|works|works? just) fine|crash\w*\b.{0,40}\d{2,3}k?\b.{0,12}(?:tokens|context)", r"devicelost|out of memory|send_error"),
    ("concurrency-limit", r"\b429\b|too many requests|concurren\w*\b.{0,30}(?:limit|reject\w*|refus\w*|exceed\w*)|max(?:imum)? (?:concurrent|queue)|queue (?:is )?full", None),
    # speed
    ("prompt-cache-miss-swa-hybrid", r"full prompt re-?processing|lack of cache data|(?:hybrid|recurrent|mamba\w*|\bswa\b|sliding\w*|\brnn\b|\bgdn\b|linear attention|\bssm\b)\b.{0,90}(?:cach\w+|re-?process\w*|prefix|checkpoints?|fast ?forward\w*)|(?:cach\w+|re-?process\w*|prefix|fast ?forward\w*|checkpoints?)\b.{0,90}\b(?:hybrid|recurrent|mamba\w*|\bswa\b|\brnn\b|\bgdn\b|\bssm\b)|invalidated context checkpoint|swa-full|whole prefill .{0,20}start over", None),
    ("prompt-cache-miss-prefix-changed", r"(?:prefix|beginning|start of the prompt|system prompt|header|timestamps?|current date|\bcch\b)\b.{0,60}(?:chang\w+|differ\w*|varies|dynamic\w*|modif\w+|inject\w+|mutat\w*)|(?:invalidat|bust)\w*\b.{0,24}(?:prompt |prefix |kv )?cache|(?:system prompt|whole prompt|history)\b.{0,40}(?:re-?process\w*|re-?comput\w*|re-?evaluat\w*)|(?:full|whole) (?:system )?prompt re-?process\w*|re-?tokeni[sz]\w*.{0,60}(?:differ\w*|mismatch\w*|other|chang\w*|not the same)|(?:differ\w*|mismatch\w*)\b.{0,60}re-?tokeni[sz]\w*", r"hybrid|recurrent|lack of cache|swa|chat_template|reused"),
    ("prompt-cache-evicted", r"(?:cache|context state|state|slot)\b.{0,40}(?:evict\w*|dropp?ed|discard\w*|erased|expire\w*|unload\w*|invalidat\w*)\b.{0,60}(?:idle|inactiv\w*|minutes|another|other request|title|summary)|evict\w* (?:the )?(?:prefix|prompt|slot|session|my)|keep[-_ ]alive\b.{0,40}(?:unload|cache|evict|expire)|(?:after|during) idle(?!.{0,40}\bgpu)(?<!gpu after idle)|idle (?:time|slots?)\b.{0,60}(?:cache|erase|unload|invalid\w*)|(?:inactiv\w*|idle|pause|a while)\b.{0,50}(?:unload|evict|drop|erase|clear|discard|los[et]|empt)\w*.{0,24}(?:kv|cache)|invalidation during idle", None),
    ("prompt-cache-not-implemented", rf"{_LACK}\b.{{0,30}}{_CACHE}|{_CACHE}\b.{{0,50}}{_NOT_WORK}|\bcach(?:e|ing)\b (?:\w+ ){{0,2}}{_NOT_WORK}|cached_tokens\W{{1,6}}0\b|(?:re-?process|re-?prefill|processes?|re-?reads?|re-?comput)\w*\b.{{0,30}}(?:whole|entire|full|every)\b.{{0,40}}(?:each|every) (?:time|request|turn|completion|message|agent)|full re-?prefill|processing of the whole \d+ tokens|as long as processing the first|prompt cache issue|(?:no longer|stopped|not|n.t) (?:\w+ ){{0,4}}cach(?:e|es|ing) (?:the |my |any )?(?:prompts?|prefix\w*|context|conversation)\b|캐시.{{0,12}}(?:안 되|없|작동하지)", r"kv[- ]?cache (?:\w+ )?quanti|quanti\w* (?:of )?(?:the )?kv|cache[-_ ]type|hybrid|recurrent|lack of cache|--no-|out of memory|cache-ram|\bswa\b|crash"),
    ("attention-kernel-slow", r"(?:flash[- ]?att\w*|\bfa\b|fattn|attention kernels?)\b.{0,50}(?:slow\w*|regress\w*|quadratic|inefficien\w*)|slow\w*\b.{0,40}(?:flash[- ]?att\w*|\bfa\b|attention kernels?)", r"quanti|cache|types? differ"),
    ("speculative-overhead", rf"{_SPEC}\b.{{0,110}}(?:slow\w*|net[- ]?(?:negative|loss)|net \W?loss|regress\w*|degrad\w*|decay\w*|no (?:gain|speed-?up|benefit)|worse|faster without|acceptance (?:rate|collapse))|(?:slow\w*|degrad\w*|regress\w*)\b.{{0,60}}{_SPEC}", r"on the cpu|to (?:the )?cpu|ending up"),
    ("depth-cost", r"(?:slows? down|slower|speed (?:drops?|decreas\w*|falls?|degrad\w*)|t/s (?:drops?|falls?))\b.{0,60}(?:as|with|when|the longer|over)\b.{0,30}(?:context|conversation|chat|length|depth|grows?|fills?|longer)|(?:길어|늘어)(?:질|날)수록.{0,20}느", r"cache|shared|full|100 ?%"),
    # interference
    ("other-process-vram", r"other (?:process\w*|programs?|apps?|containers?)\b.{0,50}(?:memory|vram|gpu|taking|using|hold\w*)|(?:desktop|browser|comfyui|xorg|another (?:process|program|container|instance))\b.{0,50}(?:vram|gpu memory|hold\w*|taking)|free memory on device\b.{0,80}less than desired|다른 (?:프로그램|프로세스)", None),
    ("previous-instance-holds-memory", r"(?:previous|old|earlier|zombie|orphan\w*|stale)\b.{0,30}(?:process|instance|runner|server|model|engine)\b.{0,60}(?:memory|vram|running|alive|hold\w*)|(?:gpu |video )?(?:memory|vram) (?:is |was )?(?:not|never|isn.t) (?:freed|released|reclaimed)|(?:unload|switch|restart|stop|reload)\w*\b.{0,60}(?:not|never|without) (?:free|freeing|releas\w*)|zombie|(?:same|one|a single) (?:model|instance|runner|server)s?\b.{0,30}(?:load|start|spawn|preload|runn)\w*\b.{0,30}(?:multiple|several|two|three|many|twice|again and again)|(?:two|several|multiple) (?:copies|instances) of the same model", r"request|kv cache"),
    ("host-memory-growth", r"memory leak|(?:\bram\b|\brss\b|host memory|system memory|host[- ]ram|wired(?:/metal)? memory|memory usage|memory)\b (?:\w+ ){0,3}(?:grow\w*|leak\w*|climb\w*|unbounded|keeps? (?:growing|increasing))|oom[- ]?kill\w*|killed by (?:the )?(?:global )?oom|--cache-ram\b.{0,60}(?:not|ineffective|unbounded|exceed\w*|ignored|default|oom)|prompt[- ]cache\b.{0,50}(?:host[- ]?ram|\bram\b|memory|unbounded|grow\w*)|exit(?:ed)? (?:code )?137|grows? (?:\w+/?\w* ){0,3}memory|메모리.{0,10}(?:계속 늘|누수)", r"killed the|vram leak"),
    ("server-state-bug", r"pool leak|(?:kv[- ]?cache|slots?|blocks?|pages?|state)\b (?:\w+ ){0,3}(?:not (?:\w+ )?(?:released?|freed)|leak\w*)|not (?:\w+ ){0,2}releas\w+ (?:the )?(?:kv|slot|cache)|leak\w* (?:\w+ )?(?:slots?|kv|blocks?|pages?)|dead-?locks?\w*|live-?lock\w*|(?:stops?|hangs?|stuck|unresponsive)\b.{0,60}(?:has to be|until|needs? a?) ?(?:shut down|restart\w*)|switch\w* to (?:a )?(?:different|another) (?:chat|conversation)\b|second (?:chat|request|conversation)\b.{0,30}(?:fail\w*|crash\w*|error)|double free|use[- ]after[- ]free|prompt cach\w+ crash\w*", r"hidden"),
    ("driver-kernel-bug", r"kernel panic|(?:driver|firmware|mesa|linux kernel|macos|rocm) (?:bug|regression)|\bbsod\b|blue ?screen|on linux-\d\S* kernels?", None),
    ("gpu-lost-at-runtime", r"(?:gpu|cuda|device) (?:is )?(?:no longer|not) (?:detected|available|found|visible)|after (?:suspend|sleep|resum\w+|hibernat\w*)|lost (?:access to )?the gpu|\b999\b.{0,20}(?:cuda|unknown)|no (?:compatible )?gpus? (?:were )?discovered|절전", None),
    ("hardware-fault", r"\bxid ?\d+|fallen off the bus|\bpsu\b|power supply|\brisers?\b|overheat\w*|overclock\w*|faulty|hardware (?:fault|error|defect)", None),
)  # fmt: skip

_CONCEPTS: dict[str, str] = {
    "memory": r"\b(?:v?ram|memory|OOMs?|OOM-?ing|OOMed|allocat\w*|MiB|GiB)\b|out of memory|cudamalloc|메모리",
    "full": rf"{_OOM}|\bOOM(?:s|ing|ed)?\b|runs? out|ran out|exceeds?|overflow\w*|not enough|insufficient|{_FULL}|fail\w* to (?:load|allocate)|does(?:n.t| not) fit|crash\w*|can(?:no|.)t (?:be )?load\w*|부족",
    "slow": r"\bslow\w*|\bspeeds?\b|performance|degrad\w*|regress\w*|drops?\b|collaps\w*|plummets?|\blag\w*|takes? (?:forever|ages|minutes)|t/s|tok(?:ens)?/s|throughput|느리|느려",
    "garbage": rf"{_BABBLE}|unintelligible|unreadable|degenerate|corrupt\w*|wrong (?:output|answers?|results?)|different (?:results?|outputs?|answers?)|totally wrong|strange responses?|broken (?:text|answers?)|횡설수설",
    "quality": r"quality|accuracy|fidelity|reasoning|tool[- ]calls? fail\w*|tool-call failure|perplexity|dumb\w*|smart\w*",
    "cache-quantised": r"(?:kv|k/v|v|k)[- ]?cache(?:[- ]type)?\b.{0,24}(?:quant\w*|fp8\w*|int[48]\w*|q[458]\w*|[48][- ]?bit)|(?:quant\w*|fp8\w*|int[48]\w*|q[458]_\d|[48][- ]?bit|lower quantization).{0,24}(?:kv|k/v|cache)|kv[- ]quant\w*|kv[- ]?(?:fp8|int[48]|q[48])|(?:fp8|int[48]) kv|(?<!\w)-ct[kv] (?:i?q\d|fp8|int)|--(?:kv-)?cache-(?:d?type|type-[kv])|(?:mixed|differ\w*|mismatch\w*|unequal|asymmetric)\b.{0,16}(?:kv|k/v|cache|\bk and v\b).{0,12}types?|(?:kv|k/v|k and v|cache) (?:cache )?types? (?:\w+ ){0,3}(?:differ\w*|mismatch\w*|do(?:n.t| not) match)|캐시 양자화",
    "flash": r"flash[-_ ]?att\w*|\bfa\b|fattn",
    "needs": r"requires?|needs?|without|disabled?|\boff\b|must be|only with",
    "unsupported": r"not (?:supported|available|compatible|implemented)|unsupported|incompatible|no kernel|not working",
    "prefix-cache": r"(?:prefix|prompt|radix|automatic)[- ]?cach\w*|cache (?:hits?|miss\w*|re-?use)|cached (?:tokens|blocks|prefix|kv)|프롬프트 캐시",
    "reused": r"cache (?:hits?|re-?use)|cached (?:blocks|kv|prefix)|restor\w*|checkpoint\w*|prefix cach\w*|re-?us(?:e|ed|ing)\b",
    "off": r"disabled|not (?:supported|used|enabled|work\w*|re-?used|available|hit\w*)|incompatible|never|hit rate:? ?\W*0(?:\.0)? ?%|0 ?% (?:cache )?hit|=False|without|\bno\b|lack\w*|bypass\w*|안 되|없",
    "hybrid": r"hybrid|recurrent|mamba\w*|\bi?swa\b|sliding[- ]?window|\brnn\b|\bgdn\b|\bssm\b|linear attention|deltanet|\bkda\b",
    "reread": r"re-?process\w*|re-?prefill\w*|re-?comput\w*|re-?evaluat\w*|from scratch|full (?:prompt |pre)fill|(?:additional|extra|much more) (?:prompt |tokens )?process\w*|whole (?:prompt|conversation|context)|every (?:turn|step|request|message)",
    "head": r"system (?:prompt|message)|\bprefix\b|\bheader\b|beginning|start of the prompt|first (?:system )?message|timestamps?|attribution|billing|tool definitions|chat template|author.?s note|lorebook|world ?info|character card",
    "changes": r"chang\w+|differ\w*|varies|dynamic\w*|modif\w+|inject\w+|mutat\w*|reorder\w*|random\w*",
    "evicted": r"evict\w*|erase[sd]?|thrown (?:away|out)|discard\w*|expire\w*|dropp?ed|unload\w*",
    "idle": r"\bidle\b|inactiv\w*|keep[-_ ]?alive|after (?:a )?(?:few )?(?:minutes|while)|pause",
    "vision": r"\bimages?\b|vision|mmproj|projector|\bclip\b|multimodal|\bvit\b|-vl\b|pictures?|screenshots?|그림|이미지",
    "speculation": _SPEC,
    "several": r"(?:multi|dual|two|both|second|other|2nd|all|\d ?x)[- ]?(?:\w+ )?(?:gpus?|cards?)|tensor[-_ ]?split|main[-_ ]gpu|gpu ?[01]\b.{0,40}gpu ?[1-9]|across (?:multiple |the |my )?gpus|GPU 두",
    "uneven": r"uneven\w*|unbalanced|imbalance\w*|unequal\w*|asymmetric|only (?:uses?|using|loads?|the first)|(?:first|one|single) (?:gpu|card)|not (?:used|utili[sz]ed|working)|unused|idle|plenty|한쪽",
    "gpu-split": r"gpu[-_ ]?split|auto-?split|reserve\w* per gpu",
    "shared": r"shared (?:gpu |video |graphics )?memory(?!: ?\d)|sysmem|system memory fallback|spill\w*|공유 메모리",
    "processor": r"\bcpu\b|processor(?! (?:is |shows? |at )?100 ?% gpu)",
    "on-processor": r"(?:runs?|running|falls? back|computed|done|lands?|ends? up) (?:\w+ ){0,2}(?:on|to) (?:the )?cpu\b",
    "layers": r"\blayers?\b|offload\w*|entire model|whole model|\bmodel\b",
    "sleep": r"sleep\w*|suspend\w*|suspension|hibernat\w*|wak(?:e|ing) up|절전",
    "gpu": r"\bgpus?\b|\bcuda\b|graphics|\bvram\b|nvidia",
    "gpu-unused": r"(?:stop\w*|not|n.t|no longer|fail\w* to|cease\w*|without) (?:\w+ )?(?:us\w+|utili[sz]\w+|access\w*|initiat\w*|detect\w*|find\w*|see\w*|run\w*)\b.{0,24}(?:gpu|cuda)|(?:revert|switch|fall|fell|go|went)\w* (?:back )?to (?:using )?(?:only )?(?:the )?cpu|gpu .{0,24}(?:lost|gone|vanish\w*|disappear\w*)|(?:lost|loses) (?:the |access to )?(?:the )?gpu",
    "in-time": r"\bidle\b|after (?:a |an |some |about )?(?:\w+ )?(?:while|period|time|hours?|days?|couple of days|inactivity)|extended periods?|period of time|over time|\d+ (?:hours|days)|after (?:a )?few (?:minutes|hours|days)|until (?:it |i |the \w+ )?(?:is )?(?:restart|re-?boot)\w*|timeout unload",
    "machine-off": r"(?:pc|computer|machine|system|server|box|host|workstation)\b.{0,30}(?:shuts?|shut|turns?|powers?)[- ]?(?:down|off)|(?:hard|sudden)[- ]?(?:ly )?(?:reset|shut\w*|power)|system shutdown|shuts? down (?:the )?(?:pc|computer|system|machine)|reboots?/|fallen off the bus|\bxid\b|\bpsu\b|power (?:supply|limit|spike)|전원",
    "load-again": r"unload\w*|re-?load\w*|(?:chang|switch|swapp?)(?:e|ing|es|ed)? (?:the |to )?(?:\w+ )?models?|load\w* (?:another|a second|the next|models one after)|models? one after another|another (?:one|model)|after (?:stop\w*|clos\w*|kill\w*|delet\w*)|모델을 바꾸",
    "kept": r"does(?:n.t| not) (?:go|get|free|release|unload|come)|not (?:\w+ )?(?:unload\w*|freed|released|cleared|go down)|keeps? being used|still (?:loaded|in|resident|used|listed|holds?|occup\w*)|remains? (?:resident|in|loaded|used)|stuck|keeping both|never (?:freed|released)|leftover|zombie|orphan\w*",
    "depth": r"(?:long|longer|large|larger|deep|deeper|high|higher|big)[- ]?(?:er)? ?(?:context|prompt|depth)|context (?:sizes?|length|grows?)|\bdepths?\b|as (?:the )?(?:context|conversation|chat) (?:grows|fills)|\d+k (?:tokens|context|of context|of used)|긴 컨텍스트|길어질수록",
    "backend": r"vulkan|rocm|\bhip\b|sycl|metal|cuda (?:build|backend|kernel)|opencl|\brdna\d?|\bxe2?\b",
    "setting": r"settings?|config\w*|options?|parameters?|flags?|sliders?|env(?:ironment)?|num_ctx|context (?:size|length)|tokens higher than|설정",
    "ignored": r"ignor\w*|not (?:applied|honou?red|respected|passed|taken|used)|no effect|does(?:n.t| not) (?:apply|work|change|affect)|always (?:com\w*|goes|resets?|reverts?) (?:back )?(?:to|at)|resets? to|reverts? to|refus\w*|cannot be changed|무시|적용 ?안",
    "in-request": r"per request|each request|in the request|api request|options\W|extra_body|/v1\b|openai[- ](?:compat\w*|endpoint|api)|endpoint",
    "cut": r"truncat\w*|cut(?:s|ting)? (?:off|all|at|the)|clipp?ed|dropp?ed|only sees?|forgets?|loses? the (?:beginning|start)|잘리|잊",
    "default": r"default\w*|\b2048\b|\b4096\b|\b[24]k\b",
    "text": r"prompts?|context|inputs?|messages?|history|conversation|tokens|instructions",
    "window": rf"{_WINDOW}|context",
    "divided": r"divid\w*|split (?:by|among|between)|shared (?:by|among|between)|per[- ]slot|fraction|나누|나뉘",
    "slots": r"slots?|parallel\w*|\bnp\b|concurren\w*|sessions|슬롯",
    "answer-budget": r"max[_ ](?:new_|completion_|output_)?tokens?|output tokens|in the completion|num_predict|n_predict|reserved? for (?:the )?(?:answer|output|response)",
    "too-long": r"exceed\w*|longer than|larger than|too (?:long|large)|greater than|over the (?:limit|window)|requested \d+ tokens|초과",
    "pool": r"(?:kv|token)[- ]?(?:cache )?(?:pool|usage|blocks?|pages|cells)|kv[- ]?cache",
    "exhausted": rf"exhaust\w*|{_FULL}|100 ?%|no free|not enough (?:space|blocks)|preempt\w*|retract\w*|queued? forever|never scheduled",
    "grows": r"grow(?:s|ing|th)?\b|leak\w*|increas\w* (?:over|with|until|steadily)|climb\w*|unbounded|without (?:limit|bound)|keeps? (?:rising|increasing)|oom-?kill\w*|늘어나|누수",
    "host": r"\bhost\b|system (?:ram|memory)|\bram\b|\brss\b|resident|oom-?kill\w*|cgroup|container|swap|unified memory|wired",
    "leaks-slot": r"(?:slot|kv|block|page|pool|request|cache)s?\b.{0,24}leak\w*|leak\w*.{0,24}(?:slot|kv|block|page|pool)|not released after|never released",
    "hangs": r"hangs?\b|hung|stuck|dead-?lock\w*|live-?lock\w*|unresponsive|stops? (?:responding|processing|generating)|freez\w*|blocks? (?:for|on|until)|never (?:complete|schedul|return)\w*",
    "serving": r"requests?|server|scheduler|engine|health|batch\w*|completions?|event loop",
    "only-up-to": r"\bonly\b|up to|at most|max(?:imum)?\b|no more than|limited to|larger context|bigger context",
    "ignores-text": r"(?:ignor\w*|clipp\w*|forg[eo]t\w*|not (?:see|read|aware of|follow)\w*|does(?:n.t| not) (?:see|know|follow|read)|without answering)\W+(?:\w+\W+){0,4}(?:prompts?|instructions?|context|documents?|requests?|question|messages?|beginning)|(?:prompts?|instructions?|context|documents?|requests?|messages?)\W+(?:\w+\W+){0,3}(?:ignored|clipped|forgotten|being ignored|not (?:seen|read|followed))",
    "restart": r"restart\w*|shut down and|kill(?:ed)? the (?:server|process)",
    "assertion": r"GGML_ASSERT|assert\w*|illegal memory|invalid (?:argument|configuration)|overflow|INT_MAX|out of range|out of bounds|misaligned|(?:cuda|hip|vulkan|metal) errors?\b(?!.{0,12}out of)",
    "gpu-time": r"ring \S+ timeout|\btdr\b|(?<!discovery )(?<!health )(?<!startup )(?<!server )(?<!load )watchdog|device[- ]?lost|gpu (?:timeout|hang\w*|reset(?! required| needed))|xid 8\b|interactivity|command buffer .{0,20}(?:timeout|abort)",
    "client-time": r"time-?outs?\b|times? out|timed out|disconnect\w*|aborts?\b|\b504\b|connection (?:closed|reset)",
    "goes-on": GOES_ON,
    "client-left": r"(?:client|user|request|connection|stream)s?\b.{0,40}(?:cancel\w*|disconnect\w*|abort\w*|interrupt\w*|gone|clos\w+|stopp?\w*|left)|(?:cancel\w*|disconnect\w*|abort\w*|interrupt\w*) (?:\w+ ){0,3}(?:client|request|connection|stream|generation)",
    "served-long": r"after (?:(?:a|some|several|few|many|about|around|roughly|~) ?)*(?:\d+\S* )?(?:requests?|hours?|minutes?|days?|calls|prompts|inferences|generations|rounds)|(?:for|over) (?:(?:a|some|several|few|many) )*(?:\d+ )?(?:hours|days)|overnight|over time|under (?:sustained |heavy |concurrent )?load",
    "early": r"\bearly\b|too soon|premature\w*|reserv\w*|output|max[_ ]tokens|aggressive\w*",
    "not-done": r"\bnever\b|n.t\b|\bnot\b|fails? to|no (?:auto|longer)|wrong|hard-?coded|falls? back|ignor\w*|unknown|too late",
    "bisected": r"bisect\w*|first bad commit|introduced (?:in|by|with) (?:commit|pr\b|#|b\d{4})|(?:since|after|regression in|broken (?:in|by|since)) (?:commit|b\d{4}|#\d)",
    "window-default": rf"default (?:value of |setting for )?(?:the )?{_WINDOW}|{_WINDOW}(?: is| was)? (?:by default|defaults?)",
    "larger": r"larger|bigger|increas\w*|higher|raised|huge|too (?:large|big|high)|grew|much more|\bmax(?:imum)?\b|262144|256k",
    "page-fault": r"page fault|memory access fault|PROTECTION_FAULT",
    "rope": r"\brope\b|(?<![-/])\byarn\b(?![-/])|longrope|rope_scaling|position(?:al)? (?:scaling|embedding)",
    "shift": r"context[- ]?shift\w*|rolling window",
    "guard": r"guardrails?|insufficient system resources|not enough resources|load anyway|memory[_ ]guard\w*|overload your system",
    "link": r"pcie|pci-e|nvlink|risers?|\bx1\b|interconnect|thunderbolt|oculink|peer[- ]to[- ]peer|\bp2p\b",
    "loops": r"\bloops?\b|looping|repetit\w*|repeat\w*|over and over|re-?fetch\w*|again and again|stuck in",
    "session": r"sessions?\b|\bturns?\b|agentic|tool[- ]?calls?|iterations|messages|hours",
    "forgets": r"forg[eo]ts?\w*|ignores?|loses? track|misses|does(?:n.t| not) recall|hallucinat\w*|makes? (?:things |stuff )?up",
    "fills": r"fills? up|filling up|high (?:context )?fill|\d+ ?% of (?:capacity|context|the (?:window|context))|at length|the longer",
    "more-than": r"more than|lot more|way more|far more|double|twice|\d+(?:\.\d+)? ?x\b|\d+ times|higher than|much more|too much|huge|excessive\w*|compared (?:to|with)|footprint|5 times",
    "graphs": r"cuda ?graphs?|captur\w+|enforce[-_]eager|cudagraphs?",
    "experts": r"\bexperts?\b|\bmoe\b|-ot\b|n-?cpu-?moe|cpu-moe",
    "disk": r"\bdisk\b|\bssd\b|nvme|\bmmap\w*|page ?cache|swap(?:ping|ped|s)?\b|thrash\w*|paging|디스크",
    "refused-many": r"\b429\b|rate[- ]?limit\w*|concurren\w* ?limit\w*|too many requests|queue (?:is )?full",
    "os-fault": r"kernel panic|\bbsod\b|blue ?screen|(?:gpu |nvidia |amd )?drivers?\b|firmware|\bmesa\b|linux[- ]\d|kernel (?:version|update)|macos \d+",
    "broke": r"panic\w*|crash\w*|regress\w*|broken|breaks|bug|reboot\w*|hang\w*",
    "wired": r"wired|working set|iogpu|recommendedMaxWorkingSetSize",
    "compaction": r"compact(?:ion|ing)|auto-?compact\w*|summari[sz]\w*",
    "after-it": r"after (?:\w+ ){0,2}compact\w*|post-?compact\w*",
    "occupied": r"(?:occupied|used|held|taken|consum\w*|filled) by (?:an?|the|some|other|my)?|external (?:process|program)|non-\S+ (?:cuda )?process|already (?:using|holding|in use)",
    "in-pieces": r"single (?:buffer|allocation)|(?:maximum|max) (?:allowed )?(?:buffer|allocation)|buffer size|allocation (?:of )?size|(?:buffer|allocation) limit",
    "estimate": r"estimat\w*|calculat\w*|predict\w*|profil\w*|\bfit(?:s|ting)?\b|--fit\S*|planner|accounting|auto-?detect\w*",
    "wrong-sum": r"wrong\w*|incorrect\w*|too (?:low|high|few|many|small|large)|does(?:n.t| not) (?:account|include|consider|take|see|detect|work|behave)|ignor\w*|under-?|over-?estimat|not working|miscalc\w*|fail\w*|crash\w*",
    "scratch": r"compute (?:pp )?buffers?|graph (?:reserve\w*|buffer)|scratch|activation\w*|transient",
    "reading": r"prefill\w*|prompt (?:processing|eval\w*)|long prompts?|mid-prefill",
    "pinned": r"pinned|page-?locked|host_malloc|HostAlloc|cudaMallocHost",
    "other-program": r"other (?:process\w*|programs?|models?|apps?)|another (?:process|program|model|one|instance)|both (?:models?|loaded|running|at the same)|desktop|comfy\w*|browser|same time",
    "too-big": r"too (?:big|large|heavy)|bigger than|larger than",
    "cache-size": r"kv[- ]?cache|context (?:size|length|window)|num_ctx|max[-_ ](?:model|seq)[-_ ]len",
}  # fmt: skip
"""What can be said of the trade's matters, in whatever order."""

_TOGETHER: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("kv-cache-size", ("cache-size", "full", "memory"), ("estimate", "speculation", "vision", "several", "garbage", "prefix-cache")),
    ("kv-quant-needs-flash-attn", ("cache-quantised", "flash", "needs"), ("slow",)),
    ("kv-quant-no-gpu-kernel", ("cache-quantised", "slow"), ("quality", "garbage")),
    ("kv-quant-no-gpu-kernel", ("cache-quantised", "unsupported"), ("prefix-cache", "quality", "garbage")),
    ("kv-quant-no-gpu-kernel", ("cache-quantised", "on-processor"), ("quality", "garbage")),
    ("kv-quant-quality", ("cache-quantised", "garbage"), ("slow", "prefix-cache")),
    ("kv-quant-quality", ("cache-quantised", "quality"), ("slow",)),
    ("kv-cache-corruption-bug", ("reused", "garbage"), ("hybrid",)),
    ("prompt-cache-not-implemented", ("prefix-cache", "off"), ("hybrid", "garbage", "memory")),
    ("prompt-cache-not-implemented", ("cache-quantised", "prefix-cache", "unsupported"), ("garbage",)),
    ("prompt-cache-miss-swa-hybrid", ("hybrid", "prefix-cache"), ("garbage",)),
    ("prompt-cache-miss-swa-hybrid", ("hybrid", "reread"), ("garbage",)),
    ("prompt-cache-miss-prefix-changed", ("head", "changes"), ("hybrid", "garbage")),
    ("prompt-cache-evicted", ("prefix-cache", "evicted", "idle"), ()),
    ("mmproj-vram", ("vision", "memory", "full"), ("host", "grows")),
    ("mmproj-vram", ("vision", "estimate", "wrong-sum"), ()),
    ("draft-mtp-vram", ("speculation", "memory", "full"), ("slow",)),
    ("speculative-overhead", ("speculation", "slow"), ("memory",)),
    ("uneven-gpu-split", ("several", "uneven"), ("machine-off",)),
    ("gpu-split-no-headroom", ("gpu-split", "full"), ()),
    ("vram-spill-shared-memory", ("shared", "slow"), ()),
    ("cpu-layer-offload", ("layers", "processor", "slow"), ("sleep", "speculation", "cache-quantised", "in-time")),
    ("gpu-lost-at-runtime", ("sleep", "gpu"), ("machine-off",)),
    ("gpu-lost-at-runtime", ("sleep", "processor"), ()),
    ("gpu-lost-at-runtime", ("sleep", "slow"), ()),
    ("gpu-lost-at-runtime", ("gpu-unused", "in-time"), ("machine-off",)),
    ("gpu-lost-at-runtime", ("processor", "in-time", "slow"), ("machine-off", "speculation", "cache-quantised", "grows")),
    ("driver-kernel-bug", ("page-fault", "gpu"), ("assertion", "flash", "bisected")),
    ("hardware-fault", ("machine-off",), ("gpu-time",)),
    ("previous-instance-holds-memory", ("load-again", "memory"), ("grows", "prefix-cache")),
    ("previous-instance-holds-memory", ("kept", "memory", "gpu"), ("prefix-cache", "hangs")),
    ("other-process-vram", ("other-program", "memory"), ("host",)),
    ("attention-kernel-slow", ("flash", "slow"), ("cache-quantised",)),
    ("attention-kernel-slow", ("backend", "slow", "depth"), ("full",)),
    ("depth-cost", ("depth", "slow"), ("flash", "full", "shared", "cache-quantised", "speculation", "prefix-cache", "processor")),
    ("server-config-not-applied", ("setting", "ignored"), ("in-request", "garbage")),
    ("request-option-ignored", ("setting", "ignored", "in-request"), ()),
    ("silent-truncation-default-ctx", ("cut", "text", "default"), ("too-long",)),
    ("slots-divide-ctx", ("window", "divided", "slots"), ()),
    ("client-ctx-mismatch", ("too-long", "text", "window"), ("answer-budget", "pool", "garbage", "memory")),
    ("output-budget-eats-window", ("answer-budget", "too-long"), ()),
    ("kv-pool-exhausted", ("pool", "exhausted"), ("garbage",)),
    ("host-memory-growth", ("grows", "host"), ("leaks-slot",)),
    ("server-state-bug", ("leaks-slot",), ()),
    ("server-state-bug", ("hangs", "restart"), ("memory", "machine-off")),
    ("server-state-bug", ("hangs", "serving"), ("memory", "machine-off", "client-time", "pool", "loops", "prefix-cache")),
    ("server-state-bug", ("client-left", "goes-on"), ()),
    ("server-state-bug", ("hangs", "served-long"), ("memory", "machine-off", "prefix-cache", "sleep")),
    ("backend-kernel-bug", ("page-fault", "flash"), ()),
    ("backend-kernel-bug", ("page-fault", "bisected"), ()),
    ("backend-kernel-bug", ("page-fault", "depth"), ()),
    ("default-ctx-tier-changed", ("window-default", "larger", "memory"), ("cut",)),
    ("kv-cache-size", ("cache-size", "memory", "only-up-to"), ("estimate", "speculation", "vision", "several", "garbage", "prefix-cache", "slots", "more-than", "in-pieces")),
    ("silent-truncation-default-ctx", ("ignores-text",), ("fills", "in-request", "setting", "session", "garbage")),
    ("prompt-cache-miss-prefix-changed", ("head", "reread"), ("hybrid", "garbage", "sleep")),
    ("client-ctx-mismatch", ("broke", "too-long", "text"), ("answer-budget", "pool", "garbage", "memory", "shift")),
    ("backend-kernel-bug", ("assertion", "depth"), ()),
    ("gpu-watchdog-timeout", ("gpu-time",), ()),
    ("client-proxy-timeout", ("client-time", "reading"), ("gpu-time",)),
    ("backend-attention-bug", ("garbage", "depth"), ("cache-quantised", "rope", "reused", "shift")),
    ("rope-scaling-misuse", ("rope", "garbage"), ()),
    ("context-shift", ("shift", "garbage"), ()),
    ("context-shift", ("shift", "broke"), ("reread",)),
    ("memory-estimate-bug", ("guard",), ("speculation", "several", "other-program", "reading")),
    ("memory-estimate-bug", ("guard", "wrong-sum"), ("speculation",)),
    ("draft-mtp-vram", ("speculation", "guard"), ()),
    ("other-process-vram", ("occupied", "gpu"), ("load-again",)),
    ("gpu-transfer-bound", ("several", "slow"), ("uneven", "machine-off", "speculation", "cache-quantised", "prefix-cache", "shared")),
    ("gpu-transfer-bound", ("link", "slow"), ("machine-off",)),
    ("long-session-drift", ("loops", "session"), ("hangs", "prefix-cache", "gpu")),
    ("effective-context-quality", ("forgets", "fills"), ("cut", "default")),
    ("effective-context-quality", ("quality", "fills"), ("cache-quantised",)),
    ("effective-context-quality", ("quality", "depth"), ("cache-quantised", "slow", "session")),
    ("engine-kv-overallocation", ("more-than", "memory", "cache-size"), ("slots", "estimate", "host", "speculation")),
    ("engine-kv-overallocation", ("more-than", "memory", "hybrid"), ("slots", "estimate", "host")),
    ("parallel-multiplies-kv", ("slots", "memory"), ("divided", "grows", "garbage")),
    ("engine-reserve-overhead", ("graphs", "full"), ()),
    ("cpu-offload-transfer", ("experts", "processor", "slow"), ("disk",)),
    ("mmap-or-swap-paging", ("disk", "slow"), ()),
    ("mmap-or-swap-paging", ("disk", "memory", "load-again"), ()),
    ("concurrency-limit", ("refused-many",), ()),
    ("driver-kernel-bug", ("os-fault", "broke"), ("gpu-time",)),
    ("metal-wired-limit", ("wired", "memory"), ("grows",)),
    ("client-ctx-mismatch", ("compaction", "too-long"), ("answer-budget",)),
    ("output-budget-eats-window", ("compaction", "early"), ("too-long",)),
    ("client-ctx-mismatch", ("compaction", "not-done"), ("answer-budget", "early", "garbage", "reread", "after-it")),
    ("backend-single-allocation-limit", ("in-pieces", "full"), ()),
    ("memory-estimate-bug", ("estimate", "wrong-sum", "memory"), ("vision",)),
    ("compute-buffer-too-big", ("scratch", "full", "memory"), ("reading",)),
    ("prefill-activation-peak", ("reading", "full", "memory"), ("vision", "cache-quantised")),
    ("pinned-host-memory-limit", ("pinned",), ()),
    ("weights-leave-no-room", ("too-big", "layers", "memory"), ("cache-size",)),
)  # fmt: skip
"""Cause, what must be said together in one sentence, and what takes it back."""

_SAID = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _CONCEPTS.items()}


def _together(sentence: str) -> list[str]:
    said = {name for name, pattern in _SAID.items() if pattern.search(sentence)}
    return list(
        dict.fromkeys(
            cause for cause, all_of, unless in _TOGETHER if said.issuperset(all_of) and said.isdisjoint(unless)
        )
    )


_MECHANISMS = tuple(
    (cause, re.compile(pattern, re.IGNORECASE), re.compile(unless, re.IGNORECASE) if unless else None)
    for cause, pattern, unless in _NAMES
)
NAMED = tuple(cause for cause, _pattern, _unless in _NAMES)
"""The causes that have words of their own."""


def mechanisms(title: str, parts: list[str]) -> tuple[str, ...]:
    """Give the ids of the causes that a report names: at most three, those first that the title names or that are named most.

    ``title``: its heading, or empty; ``parts``: its sentences.
    """
    score: Counter[str] = Counter()
    spent = len(title)
    for weight, part in [(_TITLE, title), *((_SENTENCE, part) for part in parts if part != title)]:
        spent += len(part)
        if spent > _LARGEST:
            break
        said = without_questions(part) if weight == _SENTENCE else part
        if not said.strip():
            continue
        found: Counter[str] = Counter(_together(said))
        for cause, pattern, unless in _MECHANISMS:
            match = pattern.search(said)
            if match is None or (unless is not None and unless.search(said)) or is_negated(said, match.start()):
                continue
            found[cause] += 1
        for cause, ways in found.items():
            # Said in two ways at once counts a little more than in one.
            score[cause] += weight * (1 + ways)
    most = max(score.values(), default=0)
    for share in (0.5, 0.75, 1.0):
        named = [cause for cause, points in score.most_common() if points >= share * most]
        if len(named) <= MOST:
            return tuple(named)
    return ()
