#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `nibble check --choices` with log-likelihoods computed by transformers, choice by choice.

    tools/check_choices.py NIBBLE MODEL CHOICES.jsonl [--questions 200] [--bound 1e-4]

MODEL is anything nibble reads; it is expanded to a Hugging Face directory first, so that both compute
with the same values, in fp32. Prints the largest difference and ends with exit code 1 where it is above
the bound, with 77 (skipped) where transformers is not
installed or the model is not there.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def nibble_scores(nibble, model, choices, questions, folder):
    out = folder / "choices.json"
    subprocess.run([nibble, "check", "--model", model, "--choices", choices, "--choice-max", str(questions),
                    "--json", out, "--device", "cpu", "--compute-dtype", "fp32", "--recipe", "bf16",
                    "--activations", "bf16", "--kv-dtype", "fp32", "--quiet"], check=True)
    return json.loads(out.read_text())["checks"][0]["results"]


def transformers_scores(torch, model, tokenizer, question, choices):
    """Each choice by itself, behind its question, one forward pass each."""
    prompt = tokenizer.encode(question, add_special_tokens=False)
    scores = []
    for choice in choices:
        rest = tokenizer.encode(question + choice, add_special_tokens=False)[len(prompt):]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + rest])).logits[0].double()
        logp = torch.log_softmax(logits, -1)
        scores.append(sum(float(logp[len(prompt) - 1 + i, t]) for i, t in enumerate(rest)))
    return scores


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nibble")
    p.add_argument("model")
    p.add_argument("choices", type=pathlib.Path)
    p.add_argument("--questions", type=int, default=200)
    p.add_argument("--bound", type=float, default=1e-4)
    a = p.parse_args()
    try:
        import torch
        import transformers
    except ImportError as e:
        print(f"check_choices.py: skipped, {e}")
        sys.exit(77)
    if not pathlib.Path(a.model).exists():
        print(f"check_choices.py: skipped, there is no {a.model}")
        sys.exit(77)
    questions = [json.loads(line) for line in a.choices.read_text().splitlines()][:a.questions]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        subprocess.run([a.nibble, "convert", a.model, folder / "hf", "--quant", "none", "--quiet"], check=True)
        ours = nibble_scores(a.nibble, folder / "hf", a.choices, a.questions, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
        model.eval()
        worst = best_differs = count = 0
        for mine, q in zip(ours, questions, strict=True):
            choices = q["choices"] if "choices" in q else [q["answer"]]
            theirs = transformers_scores(torch, model, tokenizer, q["question"], choices)
            count += len(theirs)
            worst = max(worst, *(abs(x - y) for x, y in zip(mine["log_likelihood"], theirs, strict=True)))
            best_differs += mine["best"] != max(range(len(theirs)), key=theirs.__getitem__)
    print(f"{len(questions)} questions, {count} choices: largest difference of a log-likelihood {worst:.2e}, "
          f"{best_differs} other answers")
    sys.exit(1 if not worst <= a.bound else 0)


if __name__ == "__main__":
    main()
