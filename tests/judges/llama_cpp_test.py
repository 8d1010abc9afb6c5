#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GGUF files of nibble run by llama.cpp (package llama-cpp-python): the tokens of a text, the loss of
the golden windows, the greedy reply. Skipped (77) where the package is not installed.

llama.cpp rounds the inputs of quantised products to 8 bits, and nibble is asked for none of that
(--activations bf16 leaves them in fp32), so the losses agree to half a percent and replies up to the
first step where the best two tokens lie closer together than that rounding."""
import json
import unittest

from judge import GOLDEN, MINI, SHARED, loss_of, need, nibble, real_models, scratch

np, llama_cpp, st = need(("numpy", "numpy"), ("llama_cpp", "llama-cpp-python"),
                         ("safetensors.numpy", "safetensors"))

FORMS = {"bf16": ["--quant", "none", "--dtype", "bf16"], "q8_0": ["--quant", "q8_0"],
         "q4_0": ["--quant", "q4_0"], "nvfp4": ["--quant", "nvfp4"]}
# Of logits, where the two may choose differently: none of the inputs is rounded, or all are.
SMALL_GAP = {"bf16": 0.1, "q8_0": 0.3, "q4_0": 0.5, "nvfp4": 0.5}
TEXT = "The quick brown fox — «naïve» 12345 don't\n\n  我是誰？ été\tx = [i for i in range(10)]"


def log_softmax(x):
    x = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class LlamaCpp(unittest.TestCase):
    def judge(self, name, source, windows, prompts, folder, forms=tuple(FORMS)):
        for form in forms:
            flags = FORMS[form]
            out = folder / f"{name}-{form}.gguf"
            summary = nibble("convert", source, out, *flags)
            llm = llama_cpp.Llama(str(out), n_ctx=1024, n_batch=1024, n_ubatch=1024, logits_all=True,
                                  n_threads=2, n_threads_batch=2, verbose=False, flash_attn=False,
                                  type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
            with self.subTest(model=name, form=form):
                if name == "mini-two-level":
                    self.assertIn("two-level", summary)
                mine = loss_of(out, windows)["windows"]
                theirs = []
                for ids in windows:
                    llm.reset()
                    llm.eval([int(i) for i in ids])
                    p = log_softmax(llm.scores[:len(ids) - 1])
                    theirs.append(float(-p[np.arange(len(ids) - 1), ids[1:]].mean()))
                worst = max(abs(a - b) / b for a, b in zip(mine, theirs))
                replies = [self.greedy(llm, out, ids, SMALL_GAP[form]) for ids in prompts]
                print(f"{name} {form}: loss of nibble {np.mean(mine):.5f}, of llama.cpp {np.mean(theirs):.5f}, "
                      f"furthest apart {worst * 100:.3f} %; equal ids (and the gap there): "
                      f"{', '.join(f'{steps} ({gap:.2f})' for steps, gap in replies)}; "
                      f"{[l for l in summary.splitlines() if l.startswith('note:')]}", flush=True)
                self.assertLess(worst, 0.005)
                self.assertEqual(llm.tokenize(TEXT.encode(), add_bos=False, special=True), self.tokens(out))
            del llm
            out.unlink()

    def tokens(self, model):
        return [int(i) for i in nibble("tokenize", "--model", model, "--text", TEXT).strip().split(",")]

    def greedy(self, llm, model, prompt_ids, small):
        """Steps that agree, and the gap of the first small one (or of the last step)."""
        out = nibble("generate", "--model", model, "--input-ids", ",".join(map(str, prompt_ids)),
                     "--max-tokens", 20, "--temp", 0, "--activations", "bf16", "--kv-dtype", "fp32",
                     "--repetition-penalty", "1.0", "--print-ids")
        mine = [int(i) for i in out.strip().splitlines()[-1].split(":")[-1].replace("ids", "").split(",")]
        llm.reset()
        llm.eval([int(i) for i in prompt_ids])
        gap = 0.0
        for step, token in enumerate(mine):
            logits = llm.scores[llm.n_tokens - 1]
            best = int(np.argmax(logits))
            second, first = np.sort(logits)[-2:]
            gap = float(first - second)
            if gap < small:
                return step, gap
            self.assertEqual(token, best, f"step {step}, gap {gap}")
            llm.eval([token])
        return len(mine), gap

    def test_two_levels(self):
        """Global scales of a qwen3, which the mini model's own codes do not need."""
        folder = scratch()
        nibble("convert", MINI / "mini.dat", folder / "dense.safetensors", "--quant", "none")
        ids = self.prompt(MINI, "hello")
        text = [int(i) for i in nibble("tokenize", "--model", MINI, "--text", "who are you? 我是誰 " * 60)
                .strip().split(",")]
        windows = np.array(text[:256], dtype=np.int64).reshape(1, 256)
        self.judge("mini-two-level", folder / "dense.safetensors", windows, [ids], folder, forms=["nvfp4"])

    def test_mini(self):
        folder = scratch()
        text = "\n".join(["hello, who are you?", "我是誰", "what is 12 and 30?"] * 30)
        ids = [int(i) for i in nibble("tokenize", "--model", MINI, "--text", text).strip().split(",")]
        windows = np.array(ids[:512], dtype=np.int64).reshape(2, 256)
        prompts = [self.prompt(MINI, text) for text in ("hello", "我是誰", "who are you?")]
        self.judge("mini", MINI / "mini.dat", windows, prompts, folder)

    def prompt(self, model, text):
        chat = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return [int(i) for i in nibble("tokenize", "--model", model, "--text", chat).strip().split(",")]

    def test_what_was_trained_in_nvfp4(self):
        """The mini model's own codes: no form asked for."""
        folder = scratch()
        nibble("convert", MINI / "mini.dat", folder / "kept.gguf")
        ids = self.prompt(MINI, "who are you?")
        llm = llama_cpp.Llama(str(folder / "kept.gguf"), n_ctx=512, logits_all=True, n_threads=2, verbose=False)
        steps, gap = self.greedy(llm, folder / "kept.gguf", ids, SMALL_GAP["nvfp4"])
        print(f"mini as it is: {steps} equal ids (gap there {gap:.3f})")
        self.assertGreater(steps, 3)

    def test_real_models(self):
        folder = scratch()
        for name, source, golden in real_models():
            g = st.load_file(golden)
            windows = np.stack([g["text0"].reshape(-1)[:512], g["text1"].reshape(-1)[:512]]).astype(np.int64)
            prompts = [[int(i) for i in g[f"ids{n}"].reshape(-1)] for n in range(4)]
            self.judge(name, source, windows, prompts, folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
