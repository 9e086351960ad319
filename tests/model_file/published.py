"""Headers of published models, written from their dimensions: tensors in the types that llama.cpp's quantiser gives them. No tensor data."""

from __future__ import annotations

F32, F16, Q4_0, Q5_0, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 1, 2, 6, 8, 12, 14, 39
BLOCKS = {
    F32: (1, 4),
    F16: (1, 2),
    Q4_0: (32, 18),
    Q5_0: (32, 22),
    Q8_0: (32, 34),
    Q4_K: (256, 144),
    Q6_K: (256, 210),
    MXFP4: (32, 17),
}
FALLBACK = {Q4_K: Q5_0, Q6_K: Q8_0}
"""What is used instead where a row is no multiple of 256."""


def write(gguf, path, model):
    """Write the header of ``model``: ``architecture``, ``quant``, ``vocab``, ``keys`` (by name without the architecture), ``tied``, ``bias``."""
    architecture = model["architecture"]
    writer = gguf().add("general.architecture", architecture)
    for name, value in model["keys"].items():
        writer.add(f"{architecture}.{name}", value)
    writer.add(f"{architecture}.vocab_size", model["vocab"])
    if model.get("quant"):
        for name, shape, kind in _tensors(model):
            block, size = BLOCKS[kind]
            count = 1
            for side in shape:
                count *= side
            writer.tensor(name, shape, kind, size=count // block * size)
    path.write_bytes(writer.bytes())
    return path


def _tensors(model):
    keys, quant = model["keys"], model["quant"]
    width, layers = keys["embedding_length"], keys["block_count"]
    heads, kv_heads = keys["attention.head_count"], keys["attention.head_count_kv"]
    head = keys.get("attention.key_length", width // heads)
    wide = keys["feed_forward_length"]
    experts = keys.get("expert_count", 0)
    each = keys.get("expert_feed_forward_length", wide)
    vocab = model["vocab"]
    tied = model.get("tied", False)

    def kind(row, wanted):
        return FALLBACK[wanted] if wanted in FALLBACK and row % 256 else wanted

    plain, better = {"Q4_K_M": (Q4_K, Q6_K), "Q8_0": (Q8_0, Q8_0), "MXFP4": (Q8_0, Q8_0), "Q4_0": (Q4_0, Q4_0)}[quant]
    output = Q6_K if quant in {"Q4_K_M", "Q4_0"} else Q8_0
    yield "token_embd.weight", (width, vocab), kind(width, output if tied else plain)
    if not tied:
        yield "output.weight", (width, vocab), kind(width, output)
    yield "output_norm.weight", (width,), F32
    if model.get("rope_freqs"):
        yield "rope_freqs.weight", (head // 2,), F32
    # the quantiser counts layers in the order of the file, which in some is that of their names: 0, 1, 10, 11, ..., 2, 20
    for place, layer in enumerate(sorted(range(layers), key=str) if model.get("sorted_by_name") else range(layers)):
        eighth = layers // 8
        more = place < eighth or place >= 7 * layers // 8 or (place - eighth) % 3 == 2
        at = f"blk.{layer}."
        value = better if more else plain
        yield at + "attn_norm.weight", (width,), F32
        yield at + "ffn_norm.weight", (width,), F32
        if model["architecture"] == "gemma3":
            yield at + "post_attention_norm.weight", (width,), F32
            yield at + "post_ffw_norm.weight", (width,), F32
        yield at + "attn_q.weight", (width, heads * head), kind(width, plain)
        yield at + "attn_k.weight", (width, kv_heads * head), kind(width, plain)
        yield at + "attn_v.weight", (width, kv_heads * head), kind(width, value)
        yield at + "attn_output.weight", (heads * head, width), kind(heads * head, plain)
        if model.get("bias"):
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                yield f"{at}attn_{name}.bias", (count * head,), F32
        if architecture_has_head_norms(model):
            yield at + "attn_q_norm.weight", (head,), F32
            yield at + "attn_k_norm.weight", (head,), F32
        if model["architecture"] == "gpt-oss":
            yield at + "attn_output.bias", (width,), F32
            yield at + "attn_sinks.weight", (heads,), F32
            yield at + "ffn_gate_inp.bias", (experts,), F32
            for name, rows in (("up", each), ("gate", each), ("down", width)):
                yield f"{at}ffn_{name}_exps.bias", (rows, experts), F32
        if experts:
            inside = MXFP4 if quant == "MXFP4" else plain
            yield at + "ffn_gate_inp.weight", (width, experts), F32
            yield at + "ffn_up_exps.weight", (width, each, experts), kind(width, inside)
            yield at + "ffn_gate_exps.weight", (width, each, experts), kind(width, inside)
            yield at + "ffn_down_exps.weight", (each, width, experts), kind(each, inside if quant == "MXFP4" else value)
        else:
            yield at + "ffn_up.weight", (width, wide), kind(width, plain)
            yield at + "ffn_gate.weight", (width, wide), kind(width, plain)
            yield at + "ffn_down.weight", (wide, width), kind(wide, value)


def architecture_has_head_norms(model):
    """Say whether queries and keys are normalised head by head."""
    return model["architecture"] in {"qwen3", "qwen3moe", "gemma3"}
