#!/usr/bin/env python3
"""Makes the small models and reference numbers that tests/right.rs reads.

Needs: pip install numpy torch transformers tokenizers safetensors gguf
Run:   python3 make_reference.py            (writes beside itself; the same bytes on every run)

Each model is a random two-layer transformer saved by `transformers`. `reference.safetensors` holds tokens; the logits that
`transformers` computes from the saved (bfloat16) weights in float64 (its norms and softmax in float32); and how far the same
library is from them when it runs in bfloat16: the largest difference in units of a row's root mean square. The Llama model
is saved once more as GGUF, with the rows of q and k in that format's order and the rotary scaling as frequency divisors.
`blocks.safetensors` holds random GGUF blocks and their values by the `gguf` package.
"""

import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = 64
VOCAB = 272
START, END = 256, 257

COMMON = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=128,
              bos_token_id=START, eos_token_id=END, hidden_act="silu")
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
PLAIN = dict(rope_type="default", rope_theta=10000.0)

MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**COMMON, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
              rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=LLAMA3)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**COMMON, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
              tie_word_embeddings=True, rope_parameters=PLAIN, use_sliding_window=True, sliding_window=24,
              max_window_layers=1)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**COMMON, num_attention_heads=2, num_key_value_heads=1, head_dim=48,
              rms_norm_eps=1e-6, tie_word_embeddings=False, rope_parameters=PLAIN)),
}


def randomise(model, seed):
    """Weights that keep a row's variance, so that every part of the model matters in the logits."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = rng.standard_normal(tuple(parameter.shape))
            if name.endswith("norm.weight"):
                values = 1.0 + 0.2 * values
            elif name.endswith(".bias"):
                values = 0.5 * values
            elif "embed_tokens" in name:
                # A tied table is also the LM head, whose rows keep the variance at 1/sqrt(hidden).
                values = values / (1.0 if not model.config.tie_word_embeddings else np.sqrt(values.shape[1]) / 2)
            else:
                values = values / np.sqrt(values.shape[1])
            parameter.copy_(torch.from_numpy(values).to(torch.bfloat16))


def save_tokenizer(folder):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("a", "n"), ("an", "d"), ("Ġ", "and"), ("e", "r")]
    words = alphabet + ["<|start|>", "<|end|>"] + [a + b for a, b in merges]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    template = ("{% for m in messages %}<|start|>{{ m.role }}: {{ m.content | trim }}<|end|>{% endfor %}"
                "{% if add_generation_prompt %}<|start|>assistant:{% endif %}")
    config = dict(bos_token="<|start|>", eos_token={"content": "<|end|>"})
    if folder.name == "llama":
        config["chat_template"] = template
    elif folder.name == "qwen2":
        config["chat_template"] = [dict(name="default", template=template)]
    else:
        (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def reference(kind, folder, seed):
    """Read back from the folder: a model that was cast to bfloat16 in memory has lost its rotary frequencies' precision."""
    tokens = np.random.default_rng(seed).integers(0, VOCAB, TOKENS)
    model = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
        rounded = kind.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
        off = (rounded(torch.from_numpy(tokens)[None]).logits[0].double() - logits).abs()
    assert logits.dtype == torch.float64
    distance = float((off.amax(dim=1) / (logits ** 2).mean(dim=1).sqrt()).max())
    return tokens.astype(np.uint32), logits.numpy(), distance


def save_gguf(folder, model):
    """The Llama model again: rows of q and k so ordered that rotated pairs are adjacent."""
    config = model.config
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]
    words = list(vocabulary["vocab"]) + [f"<|unused{i}|>" for i in range(len(vocabulary["vocab"]), VOCAB)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_merges([" ".join(merge) for merge in vocabulary["merges"]])
    writer.add_token_types([3 if word.startswith("<|") else 1 for word in words])
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])

    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    parts = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for layer in range(config.num_hidden_layers):
        for theirs, ours in parts.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"blk.{layer}.{ours}.weight"
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        values = parameter.detach().float().numpy()
        part = names[name].split(".")[-2]
        if part in heads:
            rows, columns = values.shape
            halves = values.reshape(heads[part], 2, rows // heads[part] // 2, columns)
            values = halves.swapaxes(1, 2).reshape(rows, columns)
        if values.ndim == 1:
            writer.add_tensor(names[name], values)
        else:
            raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(names[name], raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (np.arange(0, config.head_dim, 2) / config.head_dim)
    scaled = model.model.rotary_emb.inv_freq.double().numpy()
    writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save_blocks():
    """Random blocks with sane scales; f16 fields are at the places that each format gives them."""
    kinds = {"F16": ([0], 1), "BF16": ([], 1), "Q8_0": ([0], 32), "Q4_0": ([0], 32), "Q4_1": ([0, 2], 32),
             "Q4_K": ([0, 2], 256), "Q6_K": ([208], 256)}
    out = {}
    for seed, (kind, (halves, values)) in enumerate(kinds.items()):
        rng = np.random.default_rng(seed)
        code = gguf.GGMLQuantizationType[kind]
        size = gguf.GGML_QUANT_SIZES[code][1]
        blocks = rng.integers(0, 256, (4 * 256 // values, size), dtype=np.uint8)
        if kind == "BF16":
            blocks = gguf.quants.quantize(rng.standard_normal((1024, 1)).astype(np.float32), code)
        for at in halves:
            scales = (rng.standard_normal(len(blocks)) * 0.05).astype(np.float16)
            blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
        expected = gguf.quants.dequantize(blocks if kind != "F16" else blocks.view(np.float16), code)
        out[f"{kind}.bytes"] = np.ascontiguousarray(blocks)
        out[f"{kind}.values"] = np.ascontiguousarray(expected.astype(np.float32).reshape(-1))
    save_file(out, HERE / "blocks.safetensors")


def main():
    for seed, (name, (kind, config)) in enumerate(MODELS.items()):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model = kind(config).to(torch.bfloat16)
        randomise(model, seed)
        # The Qwen3 model is split into shards with an index.
        model.save_pretrained(folder, max_shard_size="80KB" if name == "qwen3" else "5GB")
        save_tokenizer(folder)
        if name == "llama":
            save_gguf(folder, kind.from_pretrained(folder, dtype=torch.float32))
        tokens, logits, distance = reference(kind, folder, 100 + seed)
        save_file({"tokens": tokens, "logits": logits.astype(np.float32),
                   "bf16_distance": np.array([distance], np.float32)}, folder / "reference.safetensors")
        print(name, "logits rms", float(np.sqrt((logits ** 2).mean())), "distance in bfloat16", distance)
    save_blocks()


if __name__ == "__main__":
    main()
