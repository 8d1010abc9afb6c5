#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nibble and llama.cpp (llama-cpp-python) in turns on the same weights: medians and their ratio.

usage: compare_llamacpp_python.py NIBBLE FILE.gguf... [--rounds N] [--threads N] [--prompt N]
                                  [--context N] [--tokens N] [--work FOLDER] [--json FILE]

nibble reads each FILE with --recipe nvfp4; llama.cpp runs its own Q4_0 of the same file, which its
quantiser makes once, in the work folder (kept, and used again). A machine's speed drifts, so each
round measures both, one after the other: --prompt tokens at once, and --tokens tokens one by one
after --context. Prompts are random ids; decoding is greedy. Nothing else should run meanwhile.
"""
import argparse
import ctypes
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llama_cpp


def quantised(source, folder):
    """llama.cpp's Q4_0 of the file."""
    out = folder / (source.stem + ".llamacpp-q4_0.gguf")
    if out.exists():
        return out
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    params.allow_requantize = True
    unfinished = out.with_suffix(".unfinished")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(unfinished).encode(),
                                      ctypes.byref(params)) != 0:
        sys.exit(f"{source}: llama.cpp does not make a Q4_0 of it")
    unfinished.rename(out)
    return out


class Llama:
    """A model in llama.cpp, and how fast it takes tokens."""

    def __init__(self, file, threads, most):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(file).encode(), params)
        if not self.model:
            sys.exit(f"{file}: llama.cpp does not load it")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = most
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocab)

    def close(self):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def feed(self, ids):
        array = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(self.context,
                                  llama_cpp.llama_batch_get_one(array, len(ids))) != 0:
            sys.exit("llama.cpp fails to decode")
        llama_cpp.llama_synchronize(self.context)

    def best(self):
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return max(range(self.vocabulary), key=logits.__getitem__)

    def forget(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def prompt_rate(self, n):
        self.forget()
        ids = [random.randrange(self.vocabulary) for _ in range(n)]
        begin = time.perf_counter()
        self.feed(ids)
        return n / (time.perf_counter() - begin)

    def decode_rate(self, context, n):
        """Only the model's own time: picking the id in Python is not counted."""
        self.forget()
        self.feed([random.randrange(self.vocabulary) for _ in range(context)])
        spent = 0.0
        for _ in range(n):
            ids = [self.best()]
            begin = time.perf_counter()
            self.feed(ids)
            spent += time.perf_counter() - begin
        return n / spent


def nibble_rates(options, model):
    """(prompt, decode) of one run of nibble bench."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        subprocess.run([options.nibble, "bench", "--quiet", "--device", "cpu", "--model", model,
                        "--recipe", "nvfp4", "--threads", str(options.threads),
                        "--prompt-tokens", f"{options.context},{options.prompt}",
                        "--tokens", str(options.tokens), "--repeat", "1", "--buffer-mib", "64",
                        "--json", out], check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(out.read_text())["rows"]
    rate = {(r["phase"], r["tokens"] if r["phase"] == "prefill" else r["context"]):
            r["median_tok_s"] for r in rows}
    return rate["prefill", options.prompt], rate["decode", options.context]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    random.seed(1)
    log = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(log, None)
    llama_cpp.llama_backend_init()
    most = max(options.prompt, options.context + options.tokens)
    results = []
    for model in options.models:
        llama = Llama(quantised(model, options.work), options.threads, most)
        llama.prompt_rate(16)  # the file's pages are read once
        rates = {"prompt": ([], []), "decode": ([], [])}
        for i in range(options.rounds):
            prompt, decode = nibble_rates(options, model)
            rates["prompt"][0].append(prompt)
            rates["decode"][0].append(decode)
            rates["prompt"][1].append(llama.prompt_rate(options.prompt))
            rates["decode"][1].append(llama.decode_rate(options.context, options.tokens))
            print(f"{model.name}, round {i + 1}: " + ", ".join(
                f"{phase} {a[-1]:.2f} / {b[-1]:.2f}" for phase, (a, b) in rates.items()),
                  file=sys.stderr, flush=True)
        llama.close()
        for phase, (a, b) in rates.items():
            results.append({"model": model.name, "phase": phase, "nibble": statistics.median(a),
                            "llama.cpp": statistics.median(b), "nibble_rounds": a,
                            "llama.cpp_rounds": b})
    print(f"{'tok/s, ' + str(options.threads) + ' threads':44} {'nibble':>9} {'llama.cpp':>9} ratio")
    for r in results:
        what = (f"prompt of {options.prompt}" if r["phase"] == "prompt" else
                f"decode {options.tokens} after {options.context}")
        print(f"{r['model'][:24]:24} {what:19} {r['nibble']:9.2f} {r['llama.cpp']:9.2f} "
              f"{r['nibble'] / r['llama.cpp']:5.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
