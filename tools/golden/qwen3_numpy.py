# SPDX-License-Identifier: MIT
"""The forward of Qwen3 in fp64, as plain as it can be: logits, loss and greedy continuation."""
import numpy as np


def rms_norm(x, w, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w


def rope(x, theta):
    """Half-split rotation of x [batch, T, H, D]."""
    t, d = x.shape[1], x.shape[-1]
    angle = np.arange(t)[:, None] * theta ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v):
    """Causal; q [B, T, Hq, D], k and v [B, T, Hkv, D]."""
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    score = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    t = q.shape[1]
    score = np.where(np.tril(np.ones((t, t), bool)), score, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", weight, v)


def rope_theta(config):
    return (config.get("rope_parameters") or config)["rope_theta"]


def logits(config, weights, ids):
    """fp64 [B, T, V] of ids [B, T]; a tied model has no lm_head.weight, or one that is used."""
    w = {name: np.asarray(x, np.float64) for name, x in weights.items()}
    eps, theta, d = config["rms_norm_eps"], rope_theta(config), config["head_dim"]
    batch, t = ids.shape
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        p = {name: w[f"model.layers.{layer}.{name}.weight"] for name in (
            "input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm",
            *(f"self_attn.{n}_proj" for n in "qkvo"),
            *(f"mlp.{n}_proj" for n in ("gate", "up", "down")))}
        h = rms_norm(x, p["input_layernorm"], eps)
        q, k, v = ((h @ p[f"self_attn.{n}_proj"].T).reshape(batch, t, -1, d) for n in "qkv")
        q = rope(rms_norm(q, p["self_attn.q_norm"], eps), theta)
        k = rope(rms_norm(k, p["self_attn.k_norm"], eps), theta)
        x = x + attention(q, k, v).reshape(batch, t, -1) @ p["self_attn.o_proj"].T
        h = rms_norm(x, p["post_attention_layernorm"], eps)
        gate = h @ p["mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ p["mlp.up_proj"].T)) @ p["mlp.down_proj"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T


def loss(values, labels):
    """Mean over labels >= 0; logits at t are scored against labels at t + 1."""
    values, labels = values[:, :-1], labels[:, 1:]
    top = values.max(-1, keepdims=True)
    log_sum = np.log(np.exp(values - top).sum(-1)) + top[..., 0]
    target = np.take_along_axis(values, np.maximum(labels, 0)[..., None], -1)[..., 0]
    return float((log_sum - target)[labels >= 0].mean())


def greedy(config, weights, start, count):
    """ids [1, len(start) + count]; end tokens are ids like others."""
    ids = np.array(start)[None]
    for _ in range(count):
        best = logits(config, weights, ids)[0, -1].argmax()
        ids = np.append(ids, [[best]], 1)
    return ids
