# SPDX-License-Identifier: MIT
"""The forward of the families Qwen3, Qwen2 and Llama in fp64, as plain as it can be: logits, loss and
greedy continuation. What a family has is what its weights have: norms of heads, biases, or neither."""
import math

import numpy as np


def rms_norm(x, w, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w


def llama3_frequencies(rope, plain):
    """Slow pairs divided by the factor, fast ones as they are, between them a ramp over rounds."""
    rounds = rope["original_max_position_embeddings"] * plain / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    fast = np.clip((rounds - low) / (high - low), 0, 1)
    return (1 - fast) * plain / rope["factor"] + fast * plain


def yarn_frequencies(rope, plain, d):
    """The same with a ramp over the numbers of pairs."""
    def pair(rounds):
        span = rope["original_max_position_embeddings"] / (rounds * 2 * np.pi)
        return d * math.log(span) / (2 * math.log(rope["rope_theta"]))
    begin = max(math.floor(pair(rope.get("beta_fast") or 32)), 0)
    end = min(math.ceil(pair(rope.get("beta_slow") or 1)), d - 1)
    slow = np.clip((np.arange(d // 2) - begin) / max(end - begin, 0.001), 0, 1)
    return slow * plain / rope["factor"] + (1 - slow) * plain


def rope_frequencies(config):
    """Radians a position of each pair, and the factor of cosines and sines."""
    rope, d = config.get("rope_parameters") or config, head_dim(config)
    plain = rope["rope_theta"] ** (-np.arange(0, d, 2) / d)
    kind = rope.get("rope_type", "default")
    if kind == "llama3":
        return llama3_frequencies(rope, plain), 1.0
    if kind == "yarn":
        factor = rope.get("attention_factor") or 0.1 * math.log(rope["factor"]) + 1
        return yarn_frequencies(rope, plain, d), factor
    return plain / (rope["factor"] if kind == "linear" else 1), 1.0


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rotate(x, frequencies, factor):
    """Half-split rotation of x [batch, T, H, D]."""
    t, d = x.shape[1], x.shape[-1]
    angle = np.arange(t)[:, None] * frequencies
    cos, sin = factor * np.cos(angle)[:, None], factor * np.sin(angle)[:, None]
    a, b = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v):
    """Causal; q [B, T, Hq, D], k and v [B, T, Hkv, D]."""
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    score = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    t = q.shape[1]
    seen = np.tril(np.ones((t, t), bool))
    top = np.where(seen, score.real, -np.inf).max(-1, keepdims=True)
    weight = np.where(seen, np.exp(np.where(seen, score - top, 0)), 0)
    weight /= weight.sum(-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", weight, v)


def logits(config, weights, ids):
    """fp64 [B, T, V] of ids [B, T]; a tied model has no lm_head.weight, or one that is used."""
    # Complex weights carry a derivative along.
    w = {name: x if np.iscomplexobj(x) else np.asarray(x, np.float64)
         for name, x in weights.items()}
    eps, d, rope = config["rms_norm_eps"], head_dim(config), rope_frequencies(config)
    batch, t = ids.shape
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        p = {name.removeprefix(prefix).removesuffix(".weight"): value
             for name, value in w.items() if name.startswith(prefix)}
        h = rms_norm(x, p["input_layernorm"], eps)
        q, k, v = ((h @ p[f"self_attn.{n}_proj"].T + p.get(f"self_attn.{n}_proj.bias", 0))
                   .reshape(batch, t, -1, d) for n in "qkv")
        if "self_attn.q_norm" in p:
            q, k = (rms_norm(y, p[f"self_attn.{n}_norm"], eps) for y, n in ((q, "q"), (k, "k")))
        q, k = rotate(q, *rope), rotate(k, *rope)
        x = x + attention(q, k, v).reshape(batch, t, -1) @ p["self_attn.o_proj"].T
        h = rms_norm(x, p["post_attention_layernorm"], eps)
        gate = h @ p["mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ p["mlp.up_proj"].T)) @ p["mlp.down_proj"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T


def loss(values, labels):
    """Mean over labels >= 0; logits at t are scored against labels at t + 1."""
    values, labels = values[:, :-1], labels[:, 1:]
    top = values.real.max(-1, keepdims=True)
    log_sum = np.log(np.exp(values - top).sum(-1)) + top[..., 0]
    target = np.take_along_axis(values, np.maximum(labels, 0)[..., None], -1)[..., 0]
    return (log_sum - target)[labels >= 0].mean()


def derivative(config, weights, ids, labels, name, step=1e-30):
    """Of the loss by one parameter, exact to fp64: a step along the imaginary axis for each element."""
    w = weights | {name: weights[name].astype(np.complex128)}
    gradient = np.empty(w[name].shape)
    for i, kept in enumerate(w[name].flat):
        w[name].flat[i] = kept + step * 1j
        gradient.flat[i] = loss(logits(config, w, ids), labels).imag / step
        w[name].flat[i] = kept
    return gradient


def greedy(config, weights, start, count):
    """ids [1, len(start) + count]; end tokens are ids like others."""
    ids = np.array(start)[None]
    for _ in range(count):
        best = logits(config, weights, ids)[0, -1].argmax()
        ids = np.append(ids, [[best]], 1)
    return ids
