# SPDX-License-Identifier: MIT
"""What Hugging Face transformers (4.5x or 5.x, eager attention) says of a model: logits, loss,
gradients, and five steps of AdamW. transformers forms norms, softmax and rotation angles in fp32,
whatever the model's type, and how those round depends on the machine; here it is made to compute
in fp64 throughout."""
import functools

import numpy as np
import torch
import transformers
from torch.overrides import TorchFunctionMode

from golden.decoder_numpy import head_dim, logits, rope_frequencies

ADAMW = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
CLIP, STEPS = 1.0, 5
KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
        "max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias",
        "hidden_act", "bos_token_id", "eos_token_id")


class Fp64(TorchFunctionMode):
    """Whoever asks torch for fp32 gets fp64."""
    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wider(x):
            return torch.float64 if x is torch.float32 else x
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wider, args), **{k: wider(v) for k, v in (kwargs or {}).items()})


def in_fp64(function):
    @functools.wraps(function)
    def inside(*arguments):
        with Fp64():
            return function(*arguments)
    return inside


def make_model(config, weights):
    settings = {key: config[key] for key in KEYS if key in config}
    rope = config["rope_parameters"]
    if int(transformers.__version__.split(".")[0]) >= 5:
        settings["rope_parameters"] = rope
    else:
        settings["rope_theta"] = rope["rope_theta"]
        if rope["rope_type"] != "default":
            settings["rope_scaling"] = rope
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config["model_type"], **settings),
        attn_implementation="eager").double().eval()

    # Neither may go wrong silently in some other version.
    if model.config._attn_implementation != "eager":
        raise SystemExit(f"attention is {model.config._attn_implementation}, not eager")
    inverse = model.model.rotary_emb.inv_freq.double().numpy()
    wanted, _ = rope_frequencies(config)
    if len(inverse) != head_dim(config) // 2 or not np.allclose(inverse, wanted, rtol=1e-12):
        raise SystemExit(f"transformers {transformers.__version__} does not rotate by {rope}")

    state = {name: torch.tensor(np.asarray(x, np.float64)) for name, x in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if settings["tie_word_embeddings"] else set()
    if unexpected or set(missing) - tied:
        raise SystemExit(f"missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def logits_of(model, ids):
    return model(input_ids=torch.tensor(ids), use_cache=False).logits


def loss_of(model, ids, labels):
    values = logits_of(model, ids)[:, :-1]
    wanted = torch.tensor(labels)[:, 1:]
    return torch.nn.functional.cross_entropy(
        values.reshape(-1, values.shape[-1]), wanted.reshape(-1), ignore_index=-100)


def named(model, what):
    """fp32 arrays by name; a tied head is the embedding and not listed again."""
    return {name: what(p).detach().numpy().astype(np.float32)
            for name, p in model.named_parameters()}


@in_fp64
def forward_and_gradients(config, weights, ids, labels):
    model = make_model(config, weights)
    loss = loss_of(model, ids, labels)
    loss.backward()
    values = logits_of(model, ids).detach().numpy()
    if not np.allclose(values, logits(config, weights, ids), rtol=0, atol=1e-12 * abs(values).max()):
        raise SystemExit(f"transformers {transformers.__version__} does not compute in fp64, or "
                         "something else than decoder_numpy.py")
    expected = {"logits": values.astype(np.float32),
                "loss": np.array([loss.item()], np.float32)}
    for name, gradient in named(model, lambda p: p.grad).items():
        expected[f"grad.{name}"] = gradient
    return expected


@in_fp64
def greedy(config, weights, start, count):
    model, ids = make_model(config, weights), np.array(start)[None]
    with torch.no_grad():
        for _ in range(count):
            best = logits_of(model, ids)[0, -1].argmax().item()
            ids = np.append(ids, [[best]], 1)
    return ids


@in_fp64
def adamw(config, weights, ids, labels):
    """Steps on one batch: decay on every parameter, clipping by the norm of all."""
    model = make_model(config, weights)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, ids, labels)
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    expected = {"adamw_losses": np.array(losses, np.float64)}
    for name, value in named(model, lambda p: p).items():
        expected[f"adamw{STEPS}.{name}"] = value
    return expected
