#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One training step of the same Qwen3 shape in PyTorch eager (transformers), for comparison with
`nibble profile --repeat`. Random weights, random tokens, every position scored, AdamW.

usage: torch_train.py CONFIG.json [--batch 8] [--seq 256] [--steps 20] [--threads 2]
                      [--device cpu|cuda] [--dtype float32|bfloat16] [--autocast] [--checkpoint]
"""
import argparse
import json
import statistics
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

p = argparse.ArgumentParser()
p.add_argument("config")
p.add_argument("--batch", type=int, default=8)
p.add_argument("--seq", type=int, default=256)
p.add_argument("--steps", type=int, default=20)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--device", default="cpu")
p.add_argument("--dtype", default="float32")
p.add_argument("--autocast", action="store_true", help="products in bf16, parameters as they are")
p.add_argument("--checkpoint", action="store_true", help="recompute activations")
a = p.parse_args()

torch.set_num_threads(a.threads)
torch.manual_seed(0)
config = Qwen3Config(**json.load(open(a.config)))
with torch.device(a.device):
    model = Qwen3ForCausalLM(config).to(getattr(torch, a.dtype))
if a.checkpoint:
    model.gradient_checkpointing_enable()
    model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0,
                              fused=a.device == "cuda")
ids = torch.randint(0, config.vocab_size, (a.batch, a.seq + 1), device=a.device)
parameters = sum(p.numel() for p in model.parameters())


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(a.device, torch.bfloat16, enabled=a.autocast):
        logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


for _ in range(3):
    step()
times = []
for _ in range(a.steps):
    start = time.perf_counter()
    step()
    times.append((time.perf_counter() - start) * 1e3)
times.sort()
median = statistics.median(times)
tokens = a.batch * a.seq
print(f"torch {torch.__version__} {a.dtype}{' autocast' if a.autocast else ''} {a.device}: "
      f"{parameters} parameters, {tokens} tokens, "
      f"median {median:.2f} ms (p10 {times[len(times) // 10]:.2f}, "
      f"p90 {times[len(times) * 9 // 10]:.2f}), {tokens / median * 1e3:.0f} tokens/s"
      + (f", peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if a.device == "cuda" else ""))
