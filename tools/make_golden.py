#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes and checks the reference vectors of tests/golden.

tools/make_golden.py make DIR [--seed N]      new models with random weights, and what is expected
tools/make_golden.py check DIR                recomputes every expectation from the stored weights
                                              and inputs, in fp64; prints the relative L2 per tensor
tools/make_golden.py check DIR --numpy        only what needs no torch
tools/make_golden.py check DIR --exact        how far stored gradients of biases are from exact ones

Needs numpy, ml_dtypes and safetensors; gradients and optimizer steps also torch and transformers
(4.5x or 5.x). None of these is a dependency of nibble or of its tests, which read the files.

DIR holds
  qwen3_tied, qwen3_untied, qwen2_tied, qwen2_untied, llama_tied, llama3_rope, yarn_rope
      a Hugging Face directory (config in the form of transformers 5) and
      expected.safetensors: input_ids, labels (logits at t are scored against labels at t + 1, -100
      is ignored), logits, loss, grad.<name>; greedy: the first 8 ids of row 0, then 24 greedy ones;
      adamw_losses and adamw5.<name>: five steps of AdamW on that batch
  qwen3_tied_nvfp4   the projections lie on the NVFP4 grid, <name>.qdata and <name>.scale are their
      bytes by rule absmax; gradients go straight through
  predecessor        the weights of qwen3_tied as a .dat file of the predecessor: scales as torchao
      makes them, fp16 for the rest, a head quantised from the tied embedding; the dequantised
      tensors and their logits
  nvfp4              blocks of all kinds by two rules, all E4M3 values, and E4M3 rounding
"""
import argparse
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

from golden import dat, nvfp4, decoder_numpy

# Relative L2, as for the reference backend (docs/numerics.md, "How close is close").
BOUND, BOUND_AFTER_STEPS = 1e-6, 2e-5
# The stored vectors were made by transformers with fp32 inside, which shows where keys have large
# biases: how far those gradients are from exact ones. `make` computes in fp64 and needs no such thing.
FP32_INSIDE = {"qwen2_tied": 5.3e-6, "qwen2_untied": 4.5e-6, "yarn_rope": 1.81e-5}
PROMPT, CONTINUATION = 8, 24
PROJECTIONS = (*(f"self_attn.{n}_proj" for n in "oqkv"),
               *(f"mlp.{n}_proj" for n in ("gate", "up", "down")))
NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
MODELS = {  # name: (settings of the config, rope_theta, shape of the batch)
    "qwen3_tied": ({"head_dim": 32, "hidden_size": 64, "intermediate_size": 160,
                    "num_attention_heads": 4, "num_hidden_layers": 2, "tie_word_embeddings": True,
                    "vocab_size": 384}, 1e6, (2, 24)),
    "qwen3_untied": ({"head_dim": 16, "hidden_size": 96, "intermediate_size": 256,
                      "num_attention_heads": 6, "num_hidden_layers": 3,
                      "tie_word_embeddings": False, "vocab_size": 500}, 5e6, (3, 40)),
    "qwen2_tied": ({"model_type": "qwen2", "hidden_size": 112, "intermediate_size": 304,
                    "num_attention_heads": 7, "num_key_value_heads": 1, "num_hidden_layers": 2,
                    "tie_word_embeddings": True, "vocab_size": 384}, 1e6, (2, 24)),
    "qwen2_untied": ({"model_type": "qwen2", "hidden_size": 96, "intermediate_size": 240,
                      "num_attention_heads": 6, "num_hidden_layers": 3,
                      "tie_word_embeddings": False, "vocab_size": 500}, 1e6, (3, 40)),
    "llama_tied": ({"model_type": "llama", "head_dim": 16, "hidden_size": 144,
                    "intermediate_size": 384, "num_attention_heads": 9, "num_key_value_heads": 3,
                    "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
                    "vocab_size": 400}, 1e5, (2, 24)),
    "llama3_rope": ({"model_type": "llama", "head_dim": 16, "hidden_size": 64,
                     "intermediate_size": 160, "num_attention_heads": 4, "num_hidden_layers": 2,
                     "rms_norm_eps": 1e-5, "rope": LLAMA3, "tie_word_embeddings": False,
                     "vocab_size": 300}, 5e5, (2, 48)),
    "yarn_rope": ({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 160,
                   "num_attention_heads": 4, "num_hidden_layers": 2, "rope": YARN,
                   "tie_word_embeddings": False, "vocab_size": 300}, 1e6, (2, 48)),
}
MODELS["qwen3_tied_nvfp4"] = MODELS["qwen3_tied"]


# --- What is expected of given weights and inputs ---

def projection_names(config):
    return [f"model.layers.{layer}.{name}.weight" for layer in range(config["num_hidden_layers"])
            for name in PROJECTIONS]


def expect_from_numpy(config, weights, stored):
    values = decoder_numpy.logits(config, weights, stored["input_ids"])
    return {"logits": values.astype(np.float32),
            "loss": np.array([decoder_numpy.loss(values, stored["labels"])], np.float32),
            "greedy": decoder_numpy.greedy(config, weights, stored["input_ids"][0, :PROMPT],
                                         CONTINUATION)}


def expect_from_torch(config, weights, stored, with_adamw):
    from golden import decoder_torch  # large, and only needed here
    inputs = (config, weights, stored["input_ids"], stored["labels"])
    expected = decoder_torch.forward_and_gradients(*inputs)
    expected["greedy"] = decoder_torch.greedy(config, weights, stored["input_ids"][0, :PROMPT],
                                            CONTINUATION)
    if with_adamw:
        expected |= decoder_torch.adamw(*inputs)
    return expected


def expect_on_grid(config, weights):
    """Codes and scales of projections that lose nothing by being quantised."""
    expected = {}
    for name in projection_names(config):
        expected[f"{name}.qdata"], expected[f"{name}.scale"] = nvfp4.quantize(weights[name],
                                                                              "absmax")
    return expected


def predecessor_file(config, weights):
    """The .dat entries its converter made of the weights of a tied model."""
    def raw(name):
        return {name: (5, weights[name].astype(np.float16))}

    def packed(name, values):
        codes, scales = nvfp4.quantize(values, "torchao")
        return {f"{name}.qdata": (0, codes), f"{name}.scale": (dat.E4M3, scales)}

    tensors = raw("model.embed_tokens.weight")
    for layer in range(config["num_hidden_layers"]):
        for name in NORMS:
            tensors |= raw(f"model.layers.{layer}.{name}.weight")
        for name in PROJECTIONS:
            full = f"model.layers.{layer}.{name}.weight"
            tensors |= packed(full, weights[full])
    tensors |= raw("model.norm.weight")
    return tensors | packed("lm_head.weight", weights["model.embed_tokens.weight"])


def expect_of_predecessor(config, tensors, ids):
    values = {}
    for key, (_, array) in tensors.items():
        if key.endswith(".qdata"):
            name = key.removesuffix(".qdata")
            values[name] = nvfp4.dequantize(array, tensors[f"{name}.scale"][1])
        elif not key.endswith(".scale"):
            values[key] = array.astype(np.float32)
    expected = {"logits": decoder_numpy.logits(config, values, ids).astype(np.float32)}
    return expected | {f"dequant.{name}": x for name, x in values.items()}


def expect_of_nvfp4(stored, rule):
    expected = {}
    for i in range(3):
        codes, scales = nvfp4.quantize(stored[f"x{i}"], rule)
        expected |= {f"qdata{i}": codes, f"scale{i}": scales,
                     f"dequant{i}": nvfp4.dequantize(codes, scales)}
    if "e4m3_in" in stored:
        expected |= {"e4m3_all": nvfp4.e4m3_values(np.arange(256)),
                     "e4m3_out": nvfp4.e4m3_encode(stored["e4m3_in"])}
    return expected


# --- check ---

class Report:
    def __init__(self):
        self.bad = 0

    def compare(self, folder, stored, expected, fp32_inside=0.0):
        for name, want in expected.items():
            got = stored.get(name)
            if got is None or got.shape != want.shape or got.dtype != want.dtype:
                found = "nothing" if got is None else f"{got.dtype} {list(got.shape)}"
                self.line(folder, name, f"{found} instead of {want.dtype} {list(want.shape)}", True)
                continue
            if want.dtype.kind in "iu":
                count = int((got != want).sum())
                self.line(folder, name, f"{count} of {want.size} differ", count > 0)
                continue
            nan = np.isnan(got)
            distance = relative_l2(got[~nan], want[~nan])
            bound = bound_of(name, fp32_inside)
            wrong = not np.array_equal(nan, np.isnan(want)) or not distance <= bound
            note = f" (at most {bound:.1e})" if bound > BOUND else ""
            self.line(folder, name, f"{distance:.1e}{note}", wrong)

    def unknown(self, folder, stored, known):
        """Stored tensors that nothing here recomputes."""
        for name in sorted(set(stored) - set(known)):
            self.line(folder, name, "is not known to this program", True)

    def line(self, folder, name, text, wrong):
        self.bad += wrong
        print(f"{folder:24} {name:55} {text}{'  WRONG' if wrong else ''}")


def bound_of(name, fp32_inside):
    """AdamW divides small elements by their own size: five steps move by 20 times the error."""
    if name.startswith("adamw"):
        return BOUND_AFTER_STEPS + 20 * fp32_inside
    return BOUND + (fp32_inside if name.startswith("grad.") else 0)


def relative_l2(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    norm = np.linalg.norm(want)
    return np.linalg.norm(got - want) / norm if norm > 0 else np.linalg.norm(got)


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


def check(root, use_torch, fp32_inside):
    report = Report()
    for name in MODELS:
        config, weights = read_config(root / name), load_file(root / name / "model.safetensors")
        stored = load_file(root / name / "expected.safetensors")
        on_grid = expect_on_grid(config, weights) if name.endswith("nvfp4") else {}
        report.compare(name, stored, on_grid)
        for key in projection_names(config) if on_grid else []:
            values = nvfp4.dequantize(on_grid[f"{key}.qdata"], on_grid[f"{key}.scale"])
            report.compare(name, {f"{key} lies on the grid": weights[key]},
                           {f"{key} lies on the grid": values})
        report.compare(f"{name} (numpy)", stored, expect_from_numpy(config, weights, stored))
        if use_torch:
            torch = expect_from_torch(config, weights, stored, "adamw_losses" in stored)
            report.compare(f"{name} (torch)", stored, torch, fp32_inside.get(name, 0.0))
            report.unknown(name, stored, {"input_ids", "labels", *torch, *on_grid})

    folder = root / "predecessor"
    tensors = dat.read(folder / "model-nvfp4.dat")
    stored = load_file(folder / "expected.safetensors")
    original = load_file(root / "qwen3_tied" / "model.safetensors")
    for key, (_, array) in predecessor_file(read_config(folder), original).items():
        report.compare("predecessor .dat", {key: tensors[key][1]}, {key: array})
    expected = expect_of_predecessor(read_config(folder), tensors, stored["input_ids"])
    report.compare("predecessor", stored, expected)
    report.unknown("predecessor", stored, {"input_ids", *expected})

    for rule in ("absmax", "four_over_six"):
        stored = load_file(root / "nvfp4" / f"{rule}.safetensors")
        expected = expect_of_nvfp4(stored, rule)
        report.compare(f"nvfp4 {rule}", stored, expected)
        report.unknown("nvfp4", stored, {"x0", "x1", "x2", "e4m3_in", *expected})
    if not use_torch:
        print("not checked without torch: grad.*, adamw_losses, adamw5.*")
    print(f"{report.bad} wrong (bound {BOUND:g} where no other is said)")
    return 1 if report.bad else 0


def check_exact(root):
    """What fp32 inside transformers cost: the golden tests allow for it."""
    for name in MODELS:
        config, weights = read_config(root / name), load_file(root / name / "model.safetensors")
        stored = load_file(root / name / "expected.safetensors")
        for key in sorted(k for k in weights if k.endswith(("q_proj.bias", "k_proj.bias"))):
            exact = decoder_numpy.derivative(config, weights, stored["input_ids"],
                                             stored["labels"], key)
            print(f"{name:24} {key:55} {relative_l2(stored['grad.' + key], exact):.2e}")
    return 0


# --- make ---

def make_config(settings, theta):
    settings = {"model_type": "qwen3", "rope": {"rope_type": "default"}, **settings}
    family, rope = settings["model_type"], settings.pop("rope")
    of_family = {"llama": {"attention_bias": False, "mlp_bias": False}}.get(family, {
        "layer_types": ["full_attention"] * settings["num_hidden_layers"], "max_window_layers": 28,
        "sliding_window": None, "use_sliding_window": False})
    if family == "qwen3":
        of_family["attention_bias"] = False
    return dict(sorted({
        "architectures": [f"{family.capitalize()}ForCausalLM"], "attention_dropout": 0.0,
        "bos_token_id": 1, "dtype": "float32", "eos_token_id": 2, "hidden_act": "silu",
        "initializer_range": 0.02, "max_position_embeddings": 4096, "num_key_value_heads": 2,
        "pad_token_id": None, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": theta, **rope},
        "use_cache": True, **of_family, **settings}.items()))


def make_weights(config, random):
    """Larger than a fresh model's, so that every part of the forward shows in the logits."""
    c, f, family = config["hidden_size"], config["intermediate_size"], config["model_type"]
    d = decoder_numpy.head_dim(config)
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes = {"self_attn.q_proj": (q, c), "self_attn.k_proj": (kv, c), "self_attn.v_proj": (kv, c),
              "self_attn.o_proj": (c, q), "mlp.gate_proj": (f, c), "mlp.up_proj": (f, c),
              "mlp.down_proj": (c, f), "input_layernorm": (c,), "post_attention_layernorm": (c,)}
    if family == "qwen3":
        shapes |= {"self_attn.q_norm": (d,), "self_attn.k_norm": (d,)}
    all_shapes = {"model.embed_tokens.weight": (config["vocab_size"], c), "model.norm.weight": (c,)}
    for layer in range(config["num_hidden_layers"]):
        all_shapes |= {f"model.layers.{layer}.{n}.weight": s for n, s in shapes.items()}
        if family == "qwen2":
            all_shapes |= {f"model.layers.{layer}.self_attn.{n}_proj.bias": (rows,)
                           for n, rows in (("q", q), ("k", kv), ("v", kv))}
    if not config["tie_word_embeddings"]:
        all_shapes["lm_head.weight"] = (config["vocab_size"], c)

    def values(name, shape):
        if name.endswith("k_proj.bias"):
            return random.normal(0, 20, shape)  # those of real models are large
        if name.endswith(".bias"):
            return random.normal(0, 0.5, shape)
        return random.normal(1, 0.2, shape) if len(shape) == 1 else random.normal(0, 0.06, shape)
    return {name: values(name, s).astype(np.float32) for name, s in sorted(all_shapes.items())}


def make_batch(config, shape, random):
    """The first third of each row is a prompt, which is not scored."""
    ids = random.integers(3, config["vocab_size"], shape)
    labels = ids.copy()
    labels[:, :shape[1] // 3] = -100
    return {"input_ids": ids.astype(np.int64), "labels": labels.astype(np.int64)}


def make_model(folder, name, random):
    settings, theta, shape = MODELS[name]
    config = make_config(settings, theta)
    weights, stored = make_weights(config, random), make_batch(config, shape, random)
    on_grid = {}
    if name.endswith("nvfp4"):
        for key in projection_names(config):
            weights[key] = nvfp4.dequantize(*nvfp4.quantize(weights[key], "absmax"))
        on_grid = expect_on_grid(config, weights)
    expected = expect_from_torch(config, weights, stored, not on_grid)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    save_file(stored | expected | on_grid, folder / "expected.safetensors")


def make_predecessor(folder, tied):
    config, weights = read_config(tied), load_file(tied / "model.safetensors")
    tensors = predecessor_file(config, weights)
    ids = load_file(tied / "expected.safetensors")["input_ids"]
    write_json(folder / "config.json", config)
    (folder / "model-nvfp4.dat").write_bytes(dat.to_bytes(tensors))
    save_file({"input_ids": ids} | expect_of_predecessor(config, tensors, ids),
              folder / "expected.safetensors")


def make_nvfp4(folder, random):
    inputs = {}
    for i, (shape, scale) in enumerate([((8, 64), 0.05), ((16, 256), 1), ((12, 128), 30)]):
        x = random.normal(0, scale, shape)
        ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6]
        x[0, :16], x[1, :16], x[2, :16] = 0, 1e-9, ties + [-t for t in ties]
        x[3, :16], x[3, 3], x[4, :16], x[5, :16] = 6000, -1, -0.0, np.arange(16) * scale
        inputs[f"x{i}"] = x.astype(np.float32)
    rounding = np.concatenate([random.normal(0, s, 2000) for s in (1e-3, 1e-2, 1, 100)])
    for rule in ("absmax", "four_over_six"):
        stored = inputs | ({"e4m3_in": rounding.astype(np.float32)} if rule == "absmax" else {})
        save_file(stored | expect_of_nvfp4(stored, rule), folder / f"{rule}.safetensors")


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def make(root, seed):
    random = np.random.default_rng(seed)
    folders = [root / name for name in (*MODELS, "predecessor", "nvfp4")]
    for folder in folders:
        if folder.exists():
            sys.exit(f"{folder} exists: make writes into a new folder, never over stored vectors")
    for folder in folders:
        folder.mkdir(parents=True)
    for name in MODELS:
        make_model(root / name, name, random)
    make_predecessor(root / "predecessor", root / "qwen3_tied")
    make_nvfp4(root / "nvfp4", random)
    return check(root, True, {})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["make", "check"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numpy", action="store_true", help="check only what needs no torch")
    parser.add_argument("--exact", action="store_true", help="derivatives by biases, exactly")
    a = parser.parse_args()
    if a.action == "check" and a.exact:
        return check_exact(a.folder)
    return make(a.folder, a.seed) if a.action == "make" else check(
        a.folder, not a.numpy, FP32_INSIDE)


if __name__ == "__main__":
    sys.exit(main())
