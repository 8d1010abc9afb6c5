#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes config.json and tokenizer.json of a small Qwen3-shaped model for `./nibble.sh demo`.

tools/make_demo_model.py DIRECTORY TEXT...

The tokenizer is a byte-level BPE in the Hugging Face form, learnt from the given text files; the
model has no weights yet (`nibble init` makes random ones). Same texts, same files.
"""
import collections
import json
import pathlib
import re
import sys

MERGES = 256
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
# Qwen's pattern as it stands in its tokenizer.json, and a near relative that Python's re knows
# (learning may cut a little differently; encoding uses the first).
QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LEARNING_PATTERN = r"[^\r\n\w]?[^\W\d_]+|\d| ?[^\s\w]+[\r\n]*|_|\s*[\r\n]+|\s+"


def byte_alphabet():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return table


def learn_merges(text, count):
    alphabet = byte_alphabet()
    words = collections.Counter(re.findall(LEARNING_PATTERN, text))
    words = {tuple(alphabet[b] for b in word.encode()): n for word, n in words.items()}
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged = {}
        for word, n in words.items():
            out = []
            for token in word:
                if out and (out[-1], token) == best:
                    out[-1] += token
                else:
                    out.append(token)
            merged[tuple(out)] = merged.get(tuple(out), 0) + n
        words = merged
    return merges


def tokenizer(text):
    merges = learn_merges(text, MERGES)
    tokens = [*byte_alphabet().values(), *dict.fromkeys(a + b for a, b in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(tokens) + i, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": content.startswith("<|")}
            for i, content in enumerate(ADDED)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": QWEN_PATTERN}, "behavior": "Isolated",
                 "invert": False},
                byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [f"{a} {b}" for a, b in merges]},
    }


def config(tok):
    ids = {added["content"]: added["id"] for added in tok["added_tokens"]}
    used = max(ids.values()) + 1
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_act": "silu",
        "attention_bias": False,
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 768,
        "vocab_size": (used + 63) // 64 * 64,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }


def main(directory, *texts):
    if not texts:
        sys.exit(__doc__)
    text = "".join(pathlib.Path(path).read_text(encoding="utf-8") for path in texts)
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    tok = tokenizer(text)
    cfg = config(tok)
    for name, content in (("tokenizer.json", tok), ("config.json", cfg)):
        (out / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n",
                                encoding="utf-8")
    print(f"config.json: {cfg['num_hidden_layers']} layers, width {cfg['hidden_size']}; "
          f"tokenizer.json: {len(tok['model']['vocab'])} tokens and {len(ADDED)} special ones, "
          f"learnt from {len(text.encode())} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
