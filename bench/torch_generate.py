#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prefill and decode of the same Qwen3 shape in PyTorch (transformers, bf16), for comparison with
`nibble bench`. Random weights and tokens; decoding is greedy, one forward a token with a cache.

usage: torch_generate.py CONFIG.json --work prefill:512|decode:BATCH:CONTEXT [--samples 5]
                         [--tokens 16] [--device cpu|cuda] [--threads 2]
"""
import argparse
import json
import statistics
import time

import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

p = argparse.ArgumentParser()
p.add_argument("config")
p.add_argument("--work", required=True)
p.add_argument("--samples", type=int, default=5)
p.add_argument("--tokens", type=int, default=16, help="decoded in one sample, of each sequence")
p.add_argument("--device", default="cuda")
p.add_argument("--threads", type=int, default=2)
a = p.parse_args()

torch.set_num_threads(a.threads)
torch.manual_seed(0)
config = Qwen3Config(**json.load(open(a.config)))
config.dtype = torch.bfloat16
with torch.device(a.device):
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen3ForCausalLM(config).eval()
phase, *numbers = a.work.split(":")
batch, length = (1, int(numbers[0])) if phase == "prefill" else map(int, numbers)
ids = torch.randint(0, config.vocab_size, (batch, length), device=a.device)


def wait():
    if a.device == "cuda":
        torch.cuda.synchronize()


@torch.inference_mode()
def prefill():
    cache = DynamicCache()
    logits = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    return cache, logits[:, -1].argmax(-1, keepdim=True)


@torch.inference_mode()
def sample():
    if phase == "prefill":
        start = time.perf_counter()
        prefill()
        wait()
        return batch * length / (time.perf_counter() - start)
    cache, token = prefill()
    wait()
    start = time.perf_counter()
    for _ in range(a.tokens):
        token = model(token, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1, keepdim=True)
    wait()
    return batch * a.tokens / (time.perf_counter() - start)


for _ in range(2):
    sample()
rates = sorted(sample() for _ in range(a.samples))
print(f"torch {torch.__version__} {a.device} {a.work}: median {statistics.median(rates):.3f} tok/s "
      f"({rates[0]:.3f} to {rates[-1]:.3f})")
