"""A model folder of random weights that mlx_lm.server and vLLM load in a second: Llama's shape, one token a byte."""

from __future__ import annotations

import json
from pathlib import Path

TRAINED = 2048
HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, VOCABULARY = 64, 2, 4, 2, 128, 258


def make_model(folder: Path, *, heads: int = HEADS, kv_heads: int = KV_HEADS, trained: int = TRAINED) -> Path:
    """Write config, tokenizer and float32 weights; text has as many tokens as bytes."""
    import numpy as np
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, "<s>": 256, "</s>": 257}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_bos_token": False,
        "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": trained,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 256,
        "eos_token_id": 257,
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.05).astype(np.float32)

    ones = np.ones(HIDDEN, np.float32)
    tensors = {"model.embed_tokens.weight": weights(VOCABULARY, HIDDEN), "model.norm.weight": ones}
    kv = kv_heads * HIDDEN // heads
    for layer in range(LAYERS):
        parts = {
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (kv, HIDDEN),
            "self_attn.v_proj": (kv, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
        }
        tensors |= {f"model.layers.{layer}.{name}.weight": weights(*shape) for name, shape in parts.items()}
        tensors |= {
            f"model.layers.{layer}.{name}.weight": ones for name in ("input_layernorm", "post_attention_layernorm")
        }
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "mlx"})
    return folder
