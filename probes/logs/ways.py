# ruff: noqa: E501 - a sentence is read best on one line
"""How people tell each cause when they do not know it: titles and sentences in our own words, a line each.

They are no patterns. :mod:`.likeness` weighs the words of a report against them: words that only one cause's people use say much, words that all use
say nothing. A cause that is told in a new way gets a line more here.
"""

from __future__ import annotations

WAYS: dict[str, str] = {
    "kv-cache-size": """
KV cache does not fit at the requested context length, out of memory with larger num_ctx
No available memory for the cache blocks, try decreasing max_model_len or increasing gpu_memory_utilization
how much VRAM do I need for 128k context, the KV cache alone takes 20 GB
the max seq len is larger than the maximum number of tokens that can be stored in the KV cache
raising the context from 8k to 64k and the model will not load, cuda malloc failed allocating kv buffer
can only get 40k of context on a 24 GB card, want longer, offload kv cache to ram to support more context
KV cache is huge for this model because it has no GQA, many kv heads, multi head attention
kv cache OOM crash when context window set to maximum on mac studio
failed to allocate buffer for kv cache, llama_kv_cache init failed
each user needs their own KV cache memory, remaining gigabytes fill up quickly
estimated maximum model length is lower than what I want, reduce context to fit
not enough memory for this context length, how to fit 100k tokens in 16 GB
the engine says the KV cache needs 30 GiB which is larger than the available KV cache memory
increase context size leads to crash on load, smaller context loads fine
context of 32k needs more gigabytes than my card has, lower n_ctx works
cache buffer allocation failed, context too large for vram
maximum context cannot be used because memory ends before, 1M context model
requested num_ctx of 131072 tries to allocate 12 GB for the cache and startup fails
ValueError model's max seq len larger than tokens in KV cache, decrease max_model_len
raise context and the app crashes, lower works, memory
startup needs more memory for the cache than is free, choose a shorter context
allocating a window of this length needs more than the card has, halving it starts
million token window means hundreds of gigabytes of keys and values
memory needed goes up with the window that I choose
""",
    "parallel-multiplies-kv": """
OLLAMA_NUM_PARALLEL=4 makes the model use four times the VRAM
memory usage grows with the number of parallel slots, every slot reserves a full context
setting -np 8 allocates kv cache for 8 sequences and runs out of memory
why does one model take so much memory, num_parallel defaults to 4, context multiplied by 4
max-num-seqs too high reserves state cache per sequence out of memory, lowering it fixes
n_parallel auto is 4 by default and wastes VRAM for a single user
context size shown in ollama ps is four times what I set because of parallel requests
lowering parallel to 1 frees gigabytes, ollama allocates context for each parallel request
concurrency of 10 users, kv per user, memory multiplied
KvSize shown is 4 x num_ctx, memory much more than needed for one chat
more slots more VRAM, total context equals ctx times slots
runner is started with larger ctx-size than I asked for, a multiple because of parallel
--parallel 5 and ctx-size 40960 although I set 8192
total window shown is the wanted one times the parallel setting
eight slots of full length each eat the card
memory used for 1, 2, 5 and 10 parallel requests rises with each, putting the parallel setting down frees it
""",
    "engine-kv-overallocation": """
KV cache much larger than expected for a sliding window model, gemma uses too much memory for context
SWA layers get full length cache instead of the window, iSWA not used, wasted memory
kv cache memory usage 5 times higher than llama.cpp for the same model and context
MLA is not implemented so the cache of deepseek is enormous compared to other engines
hybrid mamba model allocates attention cache for all layers, should be a quarter
context takes more VRAM than calculated, per token memory too high in this backend
global and local attention layers both allocated at the full context size
why is the cache for gpt-oss or gemma3 so big, other program needs a fraction of it
cache footprint per token far above the formula, compressed latent not used
memory required doubled for interleaved attention, full KV for local layers
unexpectedly high VRAM for context in this engine compared with another
hybrid cache manager is off so sliding layers hold the whole length
this backend needs several times the memory per token that the formula gives
sparse or latent attention model stored as if it had full heads
window layers could be small but each is given all positions
a smaller model needs more memory at the same window than a bigger one of another family
""",
    "kv-quant-needs-flash-attn": """
quantized V cache requires flash attention, failed to create context
--cache-type-v q8_0 fails unless -fa is on
V cache quantization not allowed without flash_attn, model fails to load with plenty of memory
OLLAMA_KV_CACHE_TYPE has no effect because flash attention is disabled
cannot set quantkv without flashattention
setting kv cache quantization in lm studio gives error loading model until flash attention is enabled
V cache quantization requires flash_attn error when loading
quantised cache refused because flash attention is not supported on this device or model
turn on flash attention or else q8 cache does not start
kv cache q4 set but flash attention off, falls back to f16 silently
""",
    "kv-quant-no-gpu-kernel": """
prompt processing is extremely slow with q4_1 or q5_1 KV cache, CPU at 100 percent
mixing q8_0 keys and q4_0 values drops speed twenty times, GGML_CUDA_FA_ALL_QUANTS not built
quantized KV cache falls back to CPU attention on vulkan, rocm or metal
fp8 kv cache not supported on this GPU architecture, no kernel for this cache dtype
unsupported kv cache type combination aborts in flash attention, fattn no kernel
different K and V cache types slow prefill on gpu
q8 kv cache makes token generation crawl compared to f16 although everything on the gpu
head size not supported with quantized kv flash attention
q8_0 K with q5_1 V is terribly slow, cpu usage goes up while the gpu waits
turboquant or iq4_nl cache type not supported by the cuda kernels
kv cache quant halves prompt speed on this card
unsupported cache type for flash attention on metal, op runs on the cpu, many graph splits
nvfp4 or fp8 kv cache prefill slower than 16 bit, kernel must unpack and convert
""",
    "kv-quant-quality": """
q4_0 kv cache makes the model dumber, tool calls fail, wrong code
quality loss with quantized KV cache, perplexity rises, answers worse than with f16 cache
fp8 kv cache gives accuracy drop in reasoning benchmark
with 4 bit context cache small model repeats and outputs nonsense, f16 is fine
does K cache quantization hurt more than V, degraded output
kv cache quantization breaks long reasoning, hallucinated tokens, misspelled names
kv cache int4 gibberish output, without quantization output is good
compressing the context cache to 4 bits breaks coding, mistakes in json, loops
model goes crazy with q4 KV but not with q8
kv cache fp8 without scales gives bad answers, calibration scale
turbo cache lower bits failed needle or reasoning, long chain of thought wrong
rare names and other scripts are spelled wrong with an eight bit cache, half precision is right
accuracy on a test falls when the cache dtype is lowered
""",
    "kv-cache-corruption-bug": """
garbage output from the second turn, after a prompt cache hit, first answer fine
prefix caching returns wrong results, disabling it fixes the output
restored slot or checkpoint gives gibberish, saved state corrupted
output contains text of another conversation, cache mixing between requests
different answers when the prompt is cached versus not cached, cache reuse corrupt
after loading session kv file the model answers nonsense
speculative rollback leaves the kv cache in wrong state, output corrupted
cache hit causes crash or assertion, cached blocks contaminated
enable prefix caching leads to nondeterministic wrong output
answers leak from other chats, wrong context returned after cache reuse
first request fine, same request again gives garbage
restoring prompt cache from disk breaks the next reply
hicache or lmcache offload reload gives corrupted text
after checkpoint restore the model answers nonsense until cache cleared
stale kv, cache not invalidated, position wrong after partial reuse
a hit in the cache whose last part is one token long gives a wrong first token
""",
    "weights-leave-no-room": """
model too big for my GPU, weights alone fill the VRAM, nothing left for context
70B model out of memory while loading weights on 24 GB
model loaded takes 92 of 96 GB so hardly any cache blocks, no space left for kv cache
cannot load model, unable to allocate CUDA buffer for tensors
can I run this model with 8 GB of VRAM, out of memory at any context even tiny
fails on loading tensors, reduce gpu layers, quant too large
OOM when loading checkpoint shards before anything is served
negative available kv cache memory after loading the model
want to run a bigger model than the memory allows, crashes at load
the weights are 23 GB on a 24 GB card
unable to allocate CUDA0 buffer, error loading model
even ctx 512 does not load, out of memory at tensor loading
which quant fits, model size larger than VRAM
moe kernel repack of weights takes extra memory at load
vram nearly used up by the parameters, only few cache blocks remain
llama_model_load error unable to allocate buffer for tensors, file bigger than memory
""",
    "compute-buffer-too-big": """
failed to allocate compute pp buffers, graph_reserve failed to allocate
compute buffer is several GB at large context and batch size, reduce ubatch
allocating compute buffer fails after the kv cache was created
lower -ub or -b fixes out of memory, ubatch 2048 eats VRAM
compute buffer scales with context length without flash attention
ggml_gallocr_reserve_n failed to allocate buffer of size
lightning indexer or attention scores buffer too large at long context
blas batch size too high out of memory
compute buffer of 10 GB with huge micro batch
failed to allocate compute buffers after cache was placed, context 128k
scratch memory for graph grows with context, ggml_backend_sched reserve fails
lower batch size fixes cudaMalloc failed during graph reserve
worst case graph needs too much memory
not enough space in the context's memory pool, scratch buffer too small, needed more than available
crash when the question is too big, graph memory
old library runs over its fixed memory pool with large batches or a stretched window
fatal error about the size of the context's memory pool while evaluating a prompt
scratch region overflows with a bigger batch of prompt tokens
more memory than the cache itself goes to temporary buffers of the graph
""",
    "pipeline-copies-buffer": """
pipeline parallelism enabled uses more VRAM, compute buffer much larger with two GPUs
GGML_SCHED_MAX_COPIES=1 reduces memory with multi gpu
adding a second GPU increases the compute buffer four times, n_copies = 4
same model fits on one card but not on two because of input buffer copies
compute buffer retry without pipeline parallelism
two gpus need more memory than one for the same settings
input buffers kept four times because of scheduler copies
disable pipeline parallel to save vram
""",
    "memory-fragmentation": """
enough VRAM free but allocation fails, fragmentation
reserved but unallocated memory is large, set expandable_segments
after several model loads and unloads it fails to allocate, restart helps
no contiguous block large enough though total free memory suffices
loads right after reboot, not after other models were used
torch allocator fragmentation during long inference, memory reserved grows
PYTORCH_CUDA_ALLOC_CONF expandable_segments avoids the failure, 5 GiB free but 2 GiB could not be allocated
after running for long or swapping models the allocation of one large block fails
free memory is in pieces
memory fragmented on android, rocm or mac, only a fresh start loads it
plenty free in total yet a single block cannot be had, worked right after reboot
""",
    "backend-single-allocation-limit": """
Requested buffer size exceeds device memory allocation limit vulkan
single buffer larger than 4 GB not allowed on Intel Arc SYCL
ErrorOutOfDeviceMemory although there is free memory, maxMemoryAllocationSize
metal buffer length greater than maximum allowed buffer length
GGML_VK_FORCE_MAX_ALLOCATION_SIZE 2GB limit per allocation
attempting to allocate bytes which is greater than the maximum allowed buffer size
OpenCL CL_DEVICE_MAX_MEM_ALLOC_SIZE max alloc
UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS needed for buffers over 4 GB
one tensor or buffer is larger than the driver permits, total memory would be enough
intel arc cannot allocate more than 4GB in one piece
vulkan heap limit buffer size maxBufferSize 2 GB 4 GB strix halo radeon
unable to use more than some context although lots of memory free, allocation limit
failed to allocate vulkan buffer, device memory limit
one instance can use only half of the card but two instances both fit, vulkan premature out of memory
rocm can use the whole memory, vulkan only a part per buffer
""",
    "memory-estimate-bug": """
ollama memory estimate wrong, too many layers offloaded then out of memory
memory estimation underestimates, does not account for the context or flash attention
gpu_memory_utilization computed incorrectly, profiling run sees wrong free memory, OOM
scheduler thinks there is not enough memory although it would fit, refuses to load
model requires more system memory than is available, wrongly calculated
insufficient system resources guardrail refuses to load model that fits
--fit picks wrong number of layers, auto fit ignores mmproj or draft model
integrated GPU reports 0 bytes free VRAM, available memory detected wrong
fewer layers offloaded than possible, half the VRAM unused, estimate too high
mem_fraction_static heuristics wrong leads to crash, lower it
unified memory free detected incorrectly on gb10 or strix halo
loads fewer layers than would fit, VRAM left unused
auto offload puts too much on gpu and crashes, has to set num_gpu by hand
memory requirement printed is nonsense, far more than actual
refuses to load the model saying not enough resources although enough is free
prediction of memory ignores kv quantization or vision part
engine grabs wrong fraction, profile peak counted twice, available memory calculation
free VRAM is read as zero, shared iGPU memory not counted
kv pool sized too small by calculation
works with older version, newer version out of memory with same settings because of estimate
says it requires 273 GB although the file is 7 GB, load anyway works
static memory fraction not reduced enough for long context
same model loads on a smaller machine, insufficient system resources here
not the right number of gpu layers chosen automatically
memory budget does not account for an allocation that grows with context
""",
    "engine-reserve-overhead": """
out of memory capturing CUDA graphs, --enforce-eager helps
CUDA graph capture takes several GB, lower mem-fraction-static or cuda-graph-max-bs
OOM during warmup of sampler with 1024 dummy requests, reduce max_num_seqs
NCCL and cudagraph overhead not included so startup fails
torch compile and graph pool memory reserve does not fit beside kv cache
vllm takes 90 percent of the memory reserved even for a small model
capture cuda graph failed: out of memory possible solutions
startup dies at capturing the graph shapes, eager mode works
graph capture sizes reserve gigabytes
profiling ok but then cudagraph memory on top overflows
startup OOM right after the cache was allocated, lower gpu memory utilization leaves headroom
torch.compile warm up out of memory
new version reserves more memory, 0.9 no longer works at startup
high cuda graph memory when launching, graph estimate under-reserves
gpu memory utilization set too high causes out of memory in graphs
""",
    "draft-mtp-vram": """
MTP head doubles memory, speculative decoding draft model causes out of memory
draft model kv cache allocated at full context takes too much VRAM
loading with --model-draft fails to fit, without draft it fits
eagle3 or nextn draft OOM at startup, remove speculative config and it works
crash with mtp enabled at large context on mac, without mtp it runs
draft context not quantized, f16 cache for draft layer
turning on spec decoding pushes layers to cpu
second context for the draft doubles the kv
no room for the drafter beside the target model
enabling multi token prediction crashes with out of memory
draft tensors pushed main model off the gpu
""",
    "mmproj-vram": """
vision projector takes VRAM, mmproj on cpu with --no-mmproj-offload
out of memory when sending an image, encode image fails to allocate clip
large screenshot crashes the vision model with OOM, lower resolution max pixels
multimodal profiling reserves memory for images and video, limit-mm-per-prompt
clip graph allocates many GB for high resolution picture
vit encoder memory spike
model with mmproj fails while text only loads fine
sending a photo makes the server die with out of memory, text works
clip image encoding buffer allocation very large for high resolution
multimodal projector needs extra memory that was not planned
qwen vl image tokens huge, encode needs gigabytes
attention matrix of the vision tower allocates 100 GB
vision instruct model takes up a lot of memory, profile run for multi-modal models fails
out of memory when providing an image, llava, llama 3.2 vision, pixel values
""",
    "pinned-host-memory-limit": """
failed to allocate pinned host memory, cudaMallocHost, CUDA_Host buffer
GGML_CUDA_NO_PINNED=1 solves out of memory with plenty of VRAM
cudaHostAlloc error out of memory on WSL with experts in RAM
page locked memory limit, ulimit memlock
hipHostMalloc fails for large buffer while gpu is nearly empty
pin_memory out of memory in offloading connector host pool
ggml_cuda_host_malloc failed to allocate pinned memory
host buffer registration fails, cudaHostRegister, lots of RAM
out of memory reported though both gpu and ram are nearly empty, experts in host memory
""",
    "metal-wired-limit": """
iogpu.wired_limit_mb needs raising to load model on mac
recommendedMaxWorkingSetSize exceeded, kIOGPUCommandBufferCallbackErrorOutOfMemory
mac with 64 GB only lets the GPU use 48, model does not load
Insufficient Memory command buffer metal apple silicon
mlx wired memory warning generating with a model that requires near the maximum recommended size
macbook unified memory model larger than working set, system freezes
metal out of memory at long context on m1 max m2 ultra
apple gpu memory cap 75 percent, sysctl to raise it
model bigger than what macOS gives the GPU
metal command buffer failed insufficient memory on mac mini
mac with 36 GB cannot load 30 GB model, ggml_metal error status 5
server crashes with uncaught metal exception when cache grows beyond gpu memory
apple gpu may use only part of unified memory, the rest cannot be allocated by metal
allocation above the recommended working set makes the whole mac stutter or panic
""",
    "prefill-activation-peak": """
OOM during prefill of a long prompt, short prompts work, server started fine
memory spikes while processing the prompt then drops back, reduce chunked prefill size
max_num_batched_tokens too large crash CUDA out of memory at inference in MLP forward
mlx prefill step size memory peak kills server at 60k tokens
long prompt blows memory during prompt processing although idle usage is low
torch.OutOfMemoryError tried to allocate in forward when request with long input arrives
logits for the whole prompt take too much memory, prompt_logprobs
activation memory for long sequence prefill exceed, lower mem fraction
prompt of 100k tokens crashes mac with out of memory during prefill
server survives idle but a 50k tokens input kills it, CUDA OOM in forward pass
long context requests crash with out of memory, short ones are fine
peak memory in prefill, chunk size 2048 instead of 8192 works
chat gets long and then CUDA out of memory, tried to allocate
batch of long prompts causes torch cuda out of memory, reduce max batched tokens
exllama or transformers out of memory at inference when the prompt is long
memory guard stops prefill at some tokens
single long request kills the worker, no traceback, prefill over 40k tokens
transient allocation in forward, kv cache usage only 12 percent at crash
logits or indexer tensor grows with prompt, deterministic OOM on long prefill
prompt of 185k tokens OOMs and kills engine though below max model len
newer exllama version goes out of memory with same bpw and context
""",
    "uneven-gpu-split": """
first GPU full while second GPU has free memory, out of memory on device 0
tensor split puts too much on one card, context all on GPU 0
two different GPUs 24GB and 12GB, the smaller one overflows
layers distributed unevenly across multiple GPUs, one overloaded
main gpu runs out of memory, KV cache only on one gpu
second card not used, unbalanced vram between cards
kv cache split not proportional, tensor_split ignored
third gpu oom while others half empty
device 1 has gigabytes unused, device 0 is out of memory
how to distribute context over both cards
-ts ratio puts kv and compute on the main gpu
one of four cards gets more, layer assignment not proportional to memory
unequal cards 16 and 8 GB, the smaller runs out
splits layers evenly but first layers are bigger so vram usage is unequal, plenty of free VRAM on the second
one gpu uses 97 percent the others 70, balance needed
smaller card first in order, incorrect tensor split, asymmetric vram
split according to VRAM usage on multi gpu
extending context dumps all memory on one gpu instead of splitting equally
only uses one gpu, split disabled
one device reaches its limit first, the others are far from full
""",
    "gpu-split-no-headroom": """
gpu split auto leaves no room for cache, exllama OOM on last device
insufficient VRAM in split for model and cache
autosplit_reserve too small out of memory during inference on gpu 0 with tabby
manual gpu split 20,24 fills by weights and runs out on generation
tensor parallel exl2 exl3 out of memory reserve per gpu
split counts only weights and context goes over on first card
loading fills both gpus to the brim then the first prompt fails
split of exl2 model has no space for activations
reserve memory on the first gpu for autosplit
OOM though four cards together have enough, split too tight
""",
    "gpu-transfer-bound": """
multi GPU slower than one, PCIe x4 or x1 bandwidth bottleneck
tensor parallel over pcie without nvlink slow at long context
adding a second GPU makes token generation slower
row split slow, riser x1, prompt processing limited by transfer between gpus
two cards each at 30 percent utilisation, no p2p, all reduce
rpc over network slow prompt processing 1gbit ethernet
multi node tensor parallel slow interconnect
two cards give less speed than a single one
pcie gen3 x4 egpu thunderbolt oculink bottleneck
tensor parallelism does not scale, gpus wait for each other
distributed inference over the network is slow
prompt processing drops when model is spread over four gpus
splitting rows or tensors over the cards makes it slower than whole layers
tensor parallel gives fewer tokens per second than one card, the bus is the limit
synchronising the devices after each layer costs more than it saves
""",
    "vram-spill-shared-memory": """
shared GPU memory used on windows, very slow when VRAM full, no error
cuda sysmem fallback policy, driver swaps to system RAM
speed collapses once dedicated memory is full, task manager shows shared memory
GTT memory used on amd linux, generation drops
vram overflows into system ram and tokens per second drop by ten
gpu at 100 percent but slow, dedicated memory 11.9 of 12 GB
nvidia driver offloads to ram instead of oom, prefer no sysmem fallback
windows moves part of the model into shared video memory, crawls
no out of memory but everything is ten times slower above some context
dedicated gpu memory is full and system ram rises
gpu memory overflows quietly, low power draw
nvidia control panel setting sysmem fallback
uses shared VRAM although dedicated VRAM is free, very slow, processor 100% GPU
WDDM shared-memory spill near the vram limit, no error, throughput collapses
unified memory option makes it use RAM first and slow
windows lets the allocation pass and pages it to host ram, tokens crawl
several times slower when the last gigabyte of video memory is used up, no crash
hardware shared memory graph rises in the task manager while replies crawl
""",
    "cpu-layer-offload": """
ollama ps shows 40%/60% CPU/GPU when context is increased, slow
layers moved to CPU after raising num_ctx, not all layers offloaded to the gpu
model runs on CPU instead of GPU at large context
only 20 of 33 layers offloaded, generation slow
gpu not fully used, cpu high, model partly in system memory
bigger context window forces the model off the graphics card
why is my gpu idle and cpu 100, 100% CPU in ollama ps
reducing the context puts everything back on gpu and is fast
gpu layers setting too low
processor column shows cpu share after larger context
my GPU is detected but the model does not run on it, low gpu usage
part of the model goes to the CPU and it is slow
context 32k makes ollama split between cpu and gpu
size in ollama ps bigger than vram
ngl not high enough, layers in ram
fast without num_ctx, very slow when num_ctx is set larger
custom model with large context uses almost no gpu
one model runs on gpu fast, another runs on cpu slow
generation speed decreases when num_ctx is a larger number
almost one character per second, gpu resources not used
""",
    "cpu-offload-transfer": """
MoE experts on CPU make prompt processing slow, PCIe copy of weights
--n-cpu-moe prefill speed limited by pcie bandwidth
-ot exps=CPU long prompts take minutes, larger ubatch helps
cpu-offload-gb is very slow, weights streamed from ram each step
experts offloaded to system ram, gpu waits
ktransformers prefill slow with experts in ram
experts in system memory, reading prompts is slow
expert weights copied over the bus for each batch
hybrid cpu gpu inference of big moe, prompt speed poor
offload of experts, gpu utilisation low in prefill
""",
    "mmap-or-swap-paging": """
model reads from disk during generation, SSD at 100 percent, mmap
system swaps heavily, model larger than RAM, page faults
disk thrashing, very slow tokens, use --no-mmap or mlock
first tokens slow, page cache evicted, weights paged in again from nvme
mac swapping gigabytes memory pressure, slow
pagefile usage huge on windows
loading stays in disk sleep state, swap full
model loaded from hard disk at each token, disk light always on
RAM full, heavy swap, system nearly frozen
reads from ssd although model was loaded already
memory mapped weights get dropped and read again
after switching the model load takes minutes from disk
disk read at 100 percent while generating
""",
    "effective-context-quality": """
model forgets or ignores details in the middle of long documents though all fits
needle in haystack fails beyond 32k, accuracy drops with length
answers get worse as context fills up, model weak at long context
RULER score drop, claims 1M context but useless after 64k
recall degraded at long input, same in other engines
instructions ignored when prompt is long, model attention quality
model performs poorly with large codebase in context, hallucinates
lost in the middle
with 100k tokens in it the model becomes stupid
it misses facts that are in the document
long context benchmark accuracy falls with length
model does not follow instructions any more when context is large, nothing truncated
context rot
good at 8k and bad at 100k with no error, comprehension gone
cannot find information it was given long before, benchmark of recall by length
the longer the document the worse the answers, it overlooks passages in the middle
model degrades long before its advertised window, retrieval accuracy at 64k below half
""",
    "rope-scaling-misuse": """
yarn rope scaling degrades short prompts, performance worse with rope_scaling enabled
gibberish beyond the original trained context, rope freq base wrong
need to set yarn factor 4 to go past 32k, rope scaling not applied
--rope-scaling yarn support for qwen, longer than max_position_embeddings
llama 3.1 rope factors missing in gguf, incoherent after 8k
longrope phi 3 short and long factor switch wrong
allocating more context changes rope automatically, koboldcpp auto rope, alpha value
linear rope compress_pos_emb nonsense output
dynamic ntk, mrope, rope_theta config error
after 8k or 32k tokens it outputs word salad, the model was trained for less
config rope_parameters missing for long context version
yarn enabled and answers got worse for short inputs
add support for yarn or longrope to reach 128k
--rope-freq-base --rope-freq-scale wrong value
self extend, ntk alpha, extended context garbage
gibberish as soon as more than the native length is used, scaling factor not set or wrong
wrong frequency base read from the file, answers fall apart past the trained window
linear scaling value applied twice or not at all
old conversion without the scaling metadata speaks nonsense
""",
    "context-shift": """
context shift crash when the context is full
model goes incoherent after context shifted, lost the beginning
infinite generation with context shift never stops
after reaching n_ctx the conversation breaks, n_keep discard
context shift not supported for this model, cache cannot be shifted
rolling window drops the system prompt
slot context shift n_discard, K-shift assertion with quantized cache
smart context, rolling messages out
after the context is full generation turns to nonsense
crash as soon as context limit is reached
conversation gets broken when older tokens are discarded
endless generation because shifting drops the stop
shifting on full window not possible with quantized or mla cache
keeps crashing on long answers, context does not support K-shift
system prompt is lost when the window filled up and a shift happened, numKeep n_keep too small
persona gone after the conversation exceeds the context limit
""",
    "backend-attention-bug": """
wrong output on long prompts only in this backend, other engine fine
sliding window attention mask wrong, model outputs garbage past 4096 tokens
attention sinks or logit softcap not implemented, gibberish at long context
flash attention gives different incorrect results at long context on rocm vulkan
gemma output degenerates beyond window size, iswa bug
model outputs garbage at long context lengths, exclamation marks, question marks, repeated characters
nan in attention with long sequence
attention backend triton gives garbage, flashinfer correct
long context incoherent since update, mask bug
this architecture gives gibberish above some length here, reference implementation is right
output quality collapses at long prompts since kernel change, flash attention off fixes
all tokens become question marks or GGGG or exclamation marks with long prompt
swa window size read wrong from config
model outputs same token repeated forever at long context, bug in attention
mismatch with transformers output for long inputs
outputs special characters when input is over 2048 or 3000 tokens, short fine
weird hallucinations past a length, converted model in this engine
""",
    "long-session-drift": """
after many turns the agent loops and repeats the same tool calls
long chat session becomes repetitive and confused before the window is full
model gets stuck in a loop after hours of coding agent use
coherence lost after 50 messages, starts over doing the same things
agent forgets what it did and rereads the same files again and again
roleplay becomes repetitive after long conversation
endless thinking loop in long agent session
agent keeps calling the same tool again and again after a long time
gets dumber the longer we talk, repeats earlier answers
after an hour of coding it forgets the goal and starts over
goes round in circles and will not stop
""",
    "silent-truncation-default-ctx": """
prompt is truncated to 4096 tokens, default num_ctx 2048, no error
model ignores the system prompt or the beginning of the document when prompt is long
ollama forgets instructions with RAG, context cut off at default
truncating input prompt limit=2048
long text gives unrelated answers, short text works, need to raise num_ctx
the model answers only about the last part of the document
default context length too small for agents, tool definitions get cut
assistant does not follow system instruction, clipped prompts
file content not seen by the model, says no file was provided
summaries only cover the end of the text
the agent cannot use tools or create files with ollama because context is 4k by default
bot forgets what I said a few messages before
pdf or web page pasted but the answer ignores it
why does it only see the end, prompt seems cut
model replies to something else, as if it never got my request
system prompt not respected with larger prompts, num_ctx must be raised
n_ctx 512 default in python binding, old text lost
rag answers are wrong, retrieved documents are not used
responses not shown or tools not called in coding agent with local ollama
truncation length setting cuts history
does it consider only the last tokens, is there a way to accept more than 2048
requested tokens exceed context window of 512, default of the binding
stream is empty or answer unrelated when prompt is larger than default
model seems to have no memory of the conversation
only 4096 tokens are processed of my long prompt
every message starts a new dialogue with local models, no session context, history lost
system prompt does not work on first round with ollama, model had no identity
long notes give an incomplete prompt, only the end passed on, instructions cut off
the instructions at the top are dropped as soon as much text is pasted
with a lot of history the persona is gone, as if the instructions were never there
answers as though it had seen only the tail of what was sent
number of evaluated prompt tokens stays the same however much is sent
tool list is longer than the default window so no tool is ever called
""",
    "silent-truncation-half-window": """
only half of num_ctx processed, prompt eval count is num_ctx/2
input cut to half of the context window
when prompt exceeds the context it keeps only half
truncated to 50 percent of the window, loses half the messages
server keeps only half when overflow occurs
prompt_eval_count is always half of the context plus a little
evaluated tokens stop at half the configured window
""",
    "slots-divide-ctx": """
n_ctx per slot is a quarter of what I set, --parallel divides the context
context size divided by number of slots, each request gets ctx/np
request exceeds the available context size 8192 but I started with -c 32768
parallel requests with smaller context than set, n_ctx_slot
llama-server slots split the total context
need to multiply ctx-size by parallel
with four slots each has only 8k of my 32k
n_seq_max splits n_ctx, context per sequence smaller than configured
default parallel value scales or divides context wrongly
each user gets a fraction of the context
context limit hit at a quarter of configured size
client sees full window but single session limit is smaller, parallel slots
the window each request gets shrinks when the number of parallel sequences is raised
total window divided, a single conversation is refused far below what was configured
server says a smaller limit for one slot than the flag gave
dozens of slots with a few hundred tokens each, answers repeat without end or stop early
new slot lines show a tiny context for each of many slots
""",
    "kv-pool-exhausted": """
requests preempted because KV cache is full, recompute preemption, throughput drops
failed to find free space in the KV cache, decode failed under concurrent requests
KV cache pool is full, retract requests, decode out of memory
running requests stuck waiting, gpu kv cache usage 100%
two parallel long requests fail together but each works alone, unified kv
context size has been exceeded with several slots
input longer than the pool max_total_num_tokens
no free kv slots, could not find a KV slot for the batch
waiting queue never scheduled, request needs more blocks than available
under load requests get queued and preempted
several users with long prompts and the cache runs out of blocks
token usage near 1.0, retraction, kv cache full
works with one user, fails with two at once, no space in cache
throughput collapses when cache usage reaches 100 percent
prompt is longer than the number of cache tokens so it is never run
decode: failed to find a memory slot for batch
what happens when cache usage reaches 100%, no new requests, nothing generated
request larger than kv capacity waits forever, within max_model_len
context size exceeded, failed to decode ret = 1
""",
    "ctx-capped-by-engine": """
requested context larger than training context, capped to n_ctx_train
max_model_len greater than derived max from config, refused
context limited to 32k although model supports 128k
engine clamps num_ctx to model maximum 8192
cannot set the context above the sliding window or max_position_embeddings
context slider maximum is lower than what model supports
user specified max_model_len is greater than derived max_model_len, VLLM_ALLOW_LONG_MAX_MODEL_LEN
cannot go higher than 32768 context although model card says 1M
context is reduced to the training length at load
value of max model len rejected, larger than model config
limit in the ui slider stops too early
n_ctx_seq greater than n_ctx_train, possible training context overflow
the engine cuts the maximum length to its sliding window size
length limited to the original positions because scaling in the config is not understood
cannot choose more than the value in the model config although scaling would allow it
slot context exceeds the training context, capping, the long prompt is refused
""",
    "default-ctx-tier-changed": """
after update default context became 32k or 256k depending on VRAM and memory usage exploded
new version uses vram based default context length
default num_ctx changed to 4096 between versions, more memory used than before
same model uses more VRAM after upgrading ollama, context 262144 by default
llama-server now uses full training context by default when -c not given
model that fit before no longer fully on gpu after update, default context larger
since new release the model eats all memory, context was not set
why is my context suddenly 256k
default window picked from vram size
after upgrade models moved to cpu because default context is larger
fit lowers context automatically when memory is short
the release raised the default window and now the layers spill
default length follows the card's memory, so the same model needs more than before
""",
    "server-config-not-applied": """
context length setting ignored, server still starts with 4096
environment variable OLLAMA_CONTEXT_LENGTH has no effect, service does not see it
changed the setting in the ui but the loaded model keeps old context
modelfile num_ctx parameter not applied
config yaml max_seq_len ignored, preset not loaded
systemd env not picked up, KV cache type not applied
load parameter not passed to backend, rope_scaling parameter not passed
lm studio context length resets to default when loaded through api jit
command line flag ignored in router mode
my context setting is not saved, always goes back to 4096
docker compose env not used by the service
ini preset or json config key is ignored by the loader
changed num_ctx in modelfile nothing happens
option accepted but no effect in server log
model loads with other context than configured when request triggers load
auto fit overrides the configured context length
wrong option name, setting silently dropped
context silently decreased with no way to force requested length
requested context not used, loader picks its own value
cannot change the context, stays at default whatever I choose
gpu split list is not followed or respected any more
context in the settings file is larger but only 500 or 2048 tokens work
what I configured does not arrive at the backend, model configured with larger context still limited
the value jumps back to another after the model is loaded
slider says one number and the server log shows another
override in the preset is dropped when the model is started on demand
saved per model defaults are not used when loaded from the command line
set the window to more but the runner is started with the old number
""",
    "request-option-ignored": """
num_ctx ignored through the openai compatible endpoint
options in the request are ignored by /v1/chat/completions
client sends num_ctx but server uses default, cannot set context through openai api
extra_body options num_ctx not honoured
context length per request not supported, request parameter dropped
langchain or litellm does not pass num_ctx to ollama
api parameter for context has no effect
the /v1 endpoint does not let me set the context, always the default
sdk drops options num_ctx before sending
setting sent in json body is ignored
tool use with ollama through openai provider fails because window cannot be passed
backend does not forward num_ctx, model is reloaded with other context
endpoint does not honor the parameter
client omits the context option in its request
how to set num_ctx when the call goes through the openai interface, parameter not set
""",
    "client-ctx-mismatch": """
client thinks the context window is 128k while server has 32k, context overflow error
prompt too long, request exceeds the available context size, try increasing it
opencode or cline does not compact before the local model's limit is reached
wrong context window shown in the extension, model info context hard coded
This model's maximum context length is 32768 tokens however you requested
trying to keep the first tokens when context overflows, load with larger context length
auto compact never triggers with local model
server error when input length exceeds maximum allowed length
agent sends more tokens than the model's window, 400 bad request
auto compaction condensing threshold uses the wrong limit
tokens to keep from the initial prompt is greater than the context length
context length exceeded in my editor agent, local model
client sends 60k tokens to a server with 32k
no setting in the client to tell it the context size of my local model
context percentage shown by the client is wrong
does not summarise the conversation before it is too late
input length exceeds, server crash or 400 when prompt longer than max
request rejected, input is too long for the model
compaction threshold uses hard coded default instead of model's real window
auto-compaction never triggers, never runs, context fills up and request exceeds
context window unknown falls back to 32k or 128k or 200k
prompt longer than loaded context, API fails instead of truncating
crashes when prompt exceeds context size
usage counters zero so client never notices the context is full
estimated tokens exceed model context window but nothing is compacted
program crashes or disappears when text is longer than the model context size
the prompt size exceeds the context window and cannot be processed
""",
    "output-budget-eats-window": """
max_tokens reserved for output reduces the input window
max_tokens equal to context leaves no room for prompt, requested tokens in messages plus completion exceed
client reserves 32k output tokens of a 64k context so compaction starts early
max_completion_tokens too large error with input tokens
answer budget subtracted from context, truncated input
num_predict or max_new_tokens shrinks the prompt length allowed
max output tokens default 32000 so requests over the limit though the prompt is small
max_tokens must be at least 1, got negative
context left for prompt is window minus response length
compaction starts early because of output reserve
response length slider reduces the history
input tokens plus max_new_tokens greater than context, generates 0 tokens
fails silently when prompt and requested answer together exceed the window
keep and reserve settings larger than the session, nothing to compact
""",
    "gpu-watchdog-timeout": """
amdgpu ring gfx timeout during long prompt processing, GPU reset
vulkan device lost on long prompts, lower ubatch helps
TDR delay windows display driver stopped responding
metal command buffer timeout impacting interactivity
vk::DeviceLostError queue submit at large batch
gpu hang on prompt processing strix halo
kernel takes too long watchdog killed
screen freezes and driver resets when a long prompt is evaluated
amdgpu job timed out ring comp reset
device lost error with vulkan, smaller batch avoids
macos kills gpu work that takes too long
wsl windows gpu times out in prefill
Xid 8 gpu timeout
lockup timeout of 10 seconds resets the gpu in sustained inference
""",
    "client-proxy-timeout": """
request aborted after 60 or 300 seconds while prompt is processed, client timeout
fetch failed headers timeout 5 minutes with long prompts
nginx 504 gateway timeout before first token
context canceled, client disconnected during prefill, 499
read timeout waiting for first token with slow local model, increase timeout
undici headersTimeout bodyTimeout, agent retries the request
connection closed by client before prompt processing is complete
llama-swap or proxy timeouts, socket hang up
opencode times out waiting for local model
stream stops after exactly five minutes
local model needs long for the first token and the client gives up and sends again
timeout error in agent while server is still processing prompt
cancelled by client after 120 s, try longer timeout setting
reverse proxy closes connection
request timed out with large prompt
aborted request without reason for long prompts, ECONNRESET
fails if prompt ingestion takes more than 10 minutes, retry succeeds because cached
requests that take longer than 15 minutes are aborted and sent again
very long system prompt and error in client after minutes
prompt processing timeout
""",
    "backend-kernel-bug": """
illegal memory access at long context, CUDA error
GGML_ASSERT failed in flash attention or rope or copy kernel with long prompt
integer overflow int32 with large context crash, segfault
invalid argument cuda error at over 65535
crash on first prompt from agent since update, metal or cuda backend, older build fine
assertion in ggml-metal ggml-cuda ggml-vulkan during prompt processing
kernel launch failure invalid configuration, misaligned address
segmentation fault with batch size above
crash at specific number of tokens, works on cpu or vulkan
xid 31 mmu fault illegal access by kernel
triton kernel error out of resources shared memory, device-side assert triggered
crash mid prompt processing at a certain token count with assert
CUDA error an illegal memory access was encountered when context is long
metal or vulkan shader fails with large tensors
segfault with long input, index out of bounds
device-side assert index out of range at long sequence
server crashes when number of input tokens close to limit
context above 13k unsupported kernel shared memory error
crash with new gpu generation, blackwell sm120, kernel not compiled
crashed at 40k tokens in prefill while 32k works, illegal memory access
index out of bounds assertion for long input length, specific sequence lengths
first bad commit found by bisecting, crash in the attention kernel with certain shapes
page fault in the gpu kernel with flash attention on, fine with it off
illegal access only above some batch or length
""",
    "concurrency-limit": """
429 too many requests, proxy allows only some concurrent requests
llama-swap concurrencyLimit reached
maximum pending requests exceeded, server busy 503
max queue full OLLAMA_MAX_QUEUE
parallel subagents get rejected
rate limited local endpoint, agent retries 429
second request rejected while first one is running
too many parallel requests refused by the gateway
HTTP 429 from local proxy with several agents in parallel
only one request is served at a time, others are refused
server busy please try again, pending requests over the maximum
an automation sends many calls at once and some are turned away
reply 503 because the queue of waiting requests is at its limit
""",
    "prompt-cache-miss-swa-hybrid": """
forcing full prompt re-processing due to lack of cache data, SWA or hybrid recurrent memory
qwen3.5 or qwen3-next reprocesses the whole prompt every turn, other models do not
gemma 3 gpt-oss prompt cache not reused, sliding window, --swa-full helps
mamba hybrid model prefix caching not working, granite jamba nemotron
context checkpoints invalidated, prompt evaluated from scratch
fast forward impossible with rnn, context shift and SWA, kobold
recurrent models always reprocess prompt, no partial rollback
ArraysCache not trimmable in mlx so cache unusable
prompt reprocess on every message with this new model only
qwen next and gemma re-read all context every time, llama models fast
n_past smaller than pos_min, erased invalidated checkpoint
linear attention gdn state cannot be reused
cache reuse is not supported by this context
hybrid kv cache manager disables prefix cache
mamba radix cache hit is zero
repeated identical request with qwen3.6 processed fully again
FastForward does not work with qwen3 next, nemotron, hybrid
never remembers the prefix with a mamba model, full minute again each message
""",
    "prompt-cache-miss-prefix-changed": """
client changes the system prompt every request so cache is useless
timestamp or date in the system prompt invalidates the prefix cache
claude code attribution header changes each request, full reprocessing
lorebook world info author's note inserted near the top causes reprocessing
tool order is random, prompt prefix differs, cache miss
whole chat reprocessed every message because client trims old messages at the top
thinking blocks removed from history so prefix changes
much more tokens processed each time during chat since update, author's note injected
environment details change, git status in prompt, cache busting
chat template drops reasoning so the cached prefix does not match
first tokens of the prompt differ each call, LCP similarity low
chat history is edited or trimmed at front so every message is reprocessed
dynamic content at the start of messages breaks caching
template inserts today's date
client removes reasoning content and rewrites old tool results
extra system message injected in the middle each turn
regenerating after world info change processes everything
editing an answer near the end reprocesses hundreds of tokens
at max context the oldest messages get trimmed so each turn needs full BLAS processing
after a few exchanges every reply takes minutes, processing prompt in whole
some turns process all tokens, some only the new ones, roleplay front end
every follow up request invalidates the context cache though history is unchanged
per-turn content put first so the prefix cache barely applies
volatile text in the system prompt, regenerated each turn, breaks caching
tool list or memory notes at the head differ between turns, so the rest is computed again
the client trims old messages and so every turn starts from zero
time of day or a random id in the first lines defeats the cache
""",
    "prompt-cache-evicted": """
cache lost when another request comes in between, title generation evicts slot
prompt cache dropped after idle, keep_alive unloads model
two clients alternate and each time the whole prompt is processed
subagents throw out the main session's cache, use more slots
cached prefix evicted by LRU, hit rate low with many sessions
slot picked by LRU, prompt processed again after switching chats
after five minutes the next message is slow again, model reloaded
prompt cache limit reached, removing oldest entry
side request for chat title throws away the main conversation's cache
after pause it has to read everything again
slots reassigned between several agents, cached state lost
idle slots are cleared, cache saved and dropped
background tasks kick out my prefix
prefix cache too small for all sessions, evictions
two users with different prompts on one instance, full processing every time
multi user chat, contexts alternate
only one cached conversation, switching between users reprocesses
chat switches back and forth between clients and the state is thrown out each time
cached conversation disappears when idle, unloaded by ttl
""",
    "prompt-cache-not-implemented": """
no prompt caching, every request processes the whole conversation
prompt cache not reused with vision models, multimodal disables cache
prefix caching disabled automatically, hit rate 0%
support prompt caching in the server please, reuse kv between requests
lm studio mlx reprocesses entire history each message
cached_tokens always 0
cache_prompt not supported in this endpoint, batch generator ignores it
automatic prefix caching does not work with this option, prefix cache hit rate: 0.0%
continuous batching without prompt cache
time to first token grows every message, history recomputed
second message takes as long as first, everything evaluated again with all models
third party apps slow for subsequent prompt evaluation, chat in main is fast
api does not keep the session between requests
prefix caching not available in this mode or engine
no kv reuse with images or lora
prompt cached tokens zero every time
full prefill every request even for identical prompt
cache_prompt false by default, makes prompt processing slow
endpoint does not honor cache_prompt
identical requests show no indication of caching
cache is not reused between completions
no reuse of the kv cache between two requests with the same prefix
every turn evaluates the complete conversation, whichever model, latency adds up
caching of the prompt would save minutes, please add
""",
    "attention-kernel-slow": """
flash attention slower than without on this GPU at long context
prompt processing speed drops quickly at depth with vulkan or rocm
attention kernel not optimised for head size 256, slow at 32k
performance regression in flash attention long context
token generation drops from 40 to 8 t/s at 30k, other backend much better
tensor cores not used, volta pascal rdna slow fattn
vulkan long context performance worse than rocm
decode attention split kv slow with long sequences triton
tg drops with depth much faster than on cuda
flash attention on makes it slower
performance at 32k depth poor on rdna4 intel arc
kernel for mla or head dim 512 inefficient at depth
prefill speed decays quadratically on this gpu
speed regression at long context since a commit
sharp performance regression beyond 4090 tokens, generation speed plummets after 100k of used context
""",
    "speculative-overhead": """
speculative decoding slower than without at long context
MTP gives no speedup, acceptance rate low
draft model makes generation slower
eagle acceptance falls with context length, throughput worse
mtp enabled slows prompt processing
n-gram speculation reduces speed
draft acceptance rate collapses after long output
turn off the draft and it is faster at depth
speculation gains vanish with longer context
mtp acceptance drops, net loss
slowdown after enabling draft, tokens per second lower
acceptance rate decays with context length, net loss, slower tokens at high context
why is speculative decoding slower than normal decoding
""",
    "depth-cost": """
generation gets slower as the conversation grows, is this normal
tokens per second decrease with context length
speed drops gradually from 30 to 15 t/s over 50k tokens
time to first token takes minutes for a 60k prompt on mac
prompt processing is slow for large prompts, expected compute cost
slows down the longer the chat
why does inference slow with more context, benchmark at depth
long prompt takes very long to first token on cpu
why does it take longer and longer to answer
big prompt takes minutes before first word, is it expected
speed at 0 context 60 t/s and at 60k 20 t/s
performance degradation at large context sizes
reading 100k tokens on cpu or mac takes very long
it slows with every message
inference slows with longer history, half the tokens per second at 32k compared to empty
evaluating a long document takes minutes before it starts to write
""",
    "other-process-vram": """
another program uses VRAM, browser desktop game comfyui stable diffusion
two models loaded at the same time, not enough free memory
free memory on device less than desired GPU memory utilization
second vllm instance on same gpu fails to start
embedding model loaded too takes the memory, whisper tts on same card
gpu memory occupied by other processes, ollama and lm studio both loaded
display manager holds memory
stable diffusion or a game takes part of the card
cannot start second model, other container occupies the gpu
nvidia-smi shows another python process using memory
two servers on one gpu, memory conflict
free memory less than requested at startup
exhausted VRAM by another model already loaded
""",
    "previous-instance-holds-memory": """
VRAM not released after unloading the model or stopping server
zombie process holds GPU memory after crash, restart fails out of memory
old runner still running when loading next model
memory not freed when switching models
ollama runner processes remain in nvidia-smi
after ctrl-c the engine core keeps gpu memory
model swap loads new one before old is gone, out of memory
sleep mode does not free memory, keeping both models
model stays in vram after unload, next model does not fit
restart too fast and old process has not released memory
loading models one after another runs out of vram
killed server leaves gpu memory allocated
eject model does not free memory
shared or dedicated memory is not released when model is uninstalled or unloaded
vram usage does not go down after unload, stuck in stopping
nvidia-smi still lists the python worker after the server was stopped
switching to another model leaves the first one in memory
""",
    "host-memory-growth": """
RAM usage grows with every request until OOM killed
memory leak in server, host memory keeps increasing
prompt cache fills system RAM, --cache-ram limits it
container killed exit 137 after hours
mlx server memory grows after each request, metal cache not cleared
checkpoints consume gigabytes of system memory
process RSS climbs, kernel oom-killer kills llama-server
/dev/shm or hicache host pool too large for ram
wired memory grows on mac until kernel panic
swap and ram fill up over the day while vram stays constant
server's memory doubles after each long chat, gets killed
python process leaks
prompt cache in ram grows without bound, cgroup limit kill
memory usage keeps increasing on every generation
buffer cache accumulates without a cap, sawtooth memory during serving
prompt cache grows to 26 GB then abort
memory allocations orphaned and not cleared after failed streams
grows over multi-day serving beyond the configured cap
checkpoints consume abnormal amounts of RAM, memory leakage suspicion
server is down without clear log messages, killed by the OOM killer while saving a prompt
""",
    "server-state-bug": """
server hangs after some requests, stops responding, must restart
scheduler deadlock, requests stuck forever, health check fails
slot not released after client disconnects, server busy
second conversation fails while first worked, until restart
memory pool leak detected, token_to_kv_pool leak assertion
server silently stops responding to new requests, gpu utilization 0
engine dies after a few hundred requests, pages not freed
invalid state position mismatch, input batch not initialized, seq pos inconsistent
stops in the middle and process stays stuck, utility becomes zero
event loop blocks, embedding server deadlocks, all subsequent requests hang
cancelled request keeps generating, slot stuck in processing
after a while all requests hang and gpu is at 0%
health endpoint times out, scheduler stuck
slot is busy forever after abort
assert fails in scheduler, memory pool check
KV cache not released after request completes, token usage accumulates
stops answering until I restart it
crash when switching conversations with saved slot state
hang during prefill with multiple requests
hangs without logs, full model reload needed
prompt waits for an answer that never comes, requires reload
after reload of a model the server never recovers and must be restarted
a request that was cancelled goes on computing and holds its slot, the next one waits
the client is gone but generation continues to the maximum, nothing is aborted
abandoned streams keep the scheduler busy, new requests queue behind ghosts
freezes after some hours of normal use with no line in the log
cancelling one stream also kills another that was running
works for an hour, then every reply is empty until the process is started anew
health probe still answers but no completion ever finishes
worker stays at full load with nothing to do after the connection was closed
stopping generation in the ui leaves the backend computing
""",
    "driver-kernel-bug": """
after driver or macos update crashes with long prompts, kernel panic
linux kernel 6.x regression amdgpu, rocm version broke
mac reboots with kernel panic IOGPUFamily during inference
new nvidia driver slower or crashes, downgrade fixes
firmware linux-firmware bug strix halo memory access fault
mesa version bug vulkan radv crash
gpu memory fault page not present rocm driver
completeMemory prepare count underflow panic
os update made inference panic
rocm 7 or driver 5xx regressions, rollback fixes
page fault in amdgpu with kernel 6.18
macos update reboot panic in gpu driver
vulkan driver bug crash fixed by newer mesa
gfxhub page fault, gpu hang with rocm on strix halo, kernel and firmware versions
occasional gpu hangs with newer kernel, rocm 7.1, memory access fault by gpu node
Xid of the firmware while the card only held the model, GPU reset required, since an update
""",
    "gpu-lost-at-runtime": """
after suspend or sleep ollama uses CPU only until restarted
GPU no longer detected in docker after a while, falls back to cpu
nvml unknown error failed to initialize, container loses gpu
model runs on cpu after laptop wakes up
cuda driver library unknown error 999, reload nvidia_uvm
gpu discovery timed out, no compatible GPUs after hours
systemctl daemon-reload makes container lose gpu
works at first, hours later model uses cpu only, restart container brings gpu back
wake from sleep and no gpu
cuda error unknown after resume
gpu vanished from ollama until service restart
stops using the GPU and reverts to CPU after running for extended periods
docker container fails to use gpu after idle time, allocation lost after idle period
initially used the gpu but not any more after a period of time
switches to using only CPU after a couple of days, restarting the container makes it work again
not using GPU after the model was unloaded, runs on CPU then
falls back to the processor in the middle of the day although it started on the card
after a container ran for days nvml can no longer be initialised inside it
fast right after boot, minutes later a tenth of the speed with the processor at full load, until the computer is rebooted
""",
    "hardware-fault": """
PC shuts down or reboots under load, power supply
Xid 79 GPU has fallen off the bus
riser cable or overheating crashes during inference
computer powers off when using two gpus
power limit lower fixes crashes, faulty card, ECC error
hard reset during prompt processing at full power
the whole machine switches itself off when both cards are under load
pc reboots while processing prompts
gpu fell off the bus, riser, cable, psu too weak
crash only at high power, undervolt helps
system shutdown overheating
""",
}

USUAL: dict[str, tuple[str, ...]] = {
    "ollama": ("silent-truncation-default-ctx", "memory-estimate-bug", "cpu-layer-offload", "parallel-multiplies-kv", "default-ctx-tier-changed", "previous-instance-holds-memory", "request-option-ignored", "server-config-not-applied", "gpu-lost-at-runtime"),
    "lm-studio": ("memory-estimate-bug", "server-config-not-applied", "client-ctx-mismatch", "vram-spill-shared-memory", "prompt-cache-not-implemented", "context-shift", "cpu-layer-offload"),
    "llama.cpp": ("kv-cache-size", "compute-buffer-too-big", "prompt-cache-miss-swa-hybrid", "slots-divide-ctx", "backend-kernel-bug", "uneven-gpu-split", "kv-quant-no-gpu-kernel", "backend-single-allocation-limit", "gpu-watchdog-timeout", "attention-kernel-slow"),
    "ik_llama.cpp": ("compute-buffer-too-big", "backend-kernel-bug", "uneven-gpu-split", "cpu-offload-transfer", "speculative-overhead"),
    "beellama.cpp": ("speculative-overhead", "draft-mtp-vram", "kv-quant-quality", "backend-kernel-bug", "prompt-cache-miss-swa-hybrid"),
    "koboldcpp": ("prompt-cache-miss-prefix-changed", "context-shift", "rope-scaling-misuse", "prompt-cache-miss-swa-hybrid", "vram-spill-shared-memory"),
    "vllm": ("kv-cache-size", "prefill-activation-peak", "kv-pool-exhausted", "engine-reserve-overhead", "other-process-vram", "memory-estimate-bug", "prompt-cache-not-implemented"),
    "sglang": ("server-state-bug", "kv-pool-exhausted", "prefill-activation-peak", "engine-reserve-overhead", "memory-estimate-bug", "backend-kernel-bug"),
    "mlx_lm": ("prefill-activation-peak", "metal-wired-limit", "host-memory-growth", "prompt-cache-not-implemented", "driver-kernel-bug", "prompt-cache-miss-swa-hybrid"),
    "tabbyapi": ("gpu-split-no-headroom", "prefill-activation-peak", "ctx-capped-by-engine", "server-config-not-applied"),
    "text-generation-webui": ("silent-truncation-default-ctx", "weights-leave-no-room", "prefill-activation-peak", "gpu-split-no-headroom", "server-config-not-applied", "output-budget-eats-window"),
    "llama-cpp-python": ("silent-truncation-default-ctx", "prompt-cache-not-implemented", "slots-divide-ctx", "request-option-ignored"),
    "llama-swap": ("client-proxy-timeout", "concurrency-limit", "previous-instance-holds-memory"),
}  # fmt: skip
"""Server → what its users come with most: by its own defaults and design (an estimate before loading, a pool, a profiled reserve, a default window)."""
