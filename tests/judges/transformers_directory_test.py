#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Directories of `convert --to hf` loaded by Hugging Face's library: the golden logits, the same
tokens, nothing missing. Skipped (77) where torch or transformers is not installed."""
import json
import unittest

from judge import GOLDEN, MINI, far, need, nibble, real_models, scratch

np, torch, transformers, st = need(("numpy", "numpy"), ("torch", "torch"),
                                   ("transformers", "transformers"), ("safetensors.numpy", "safetensors"))
transformers.logging.set_verbosity_error()
MODELS = ["qwen3_tied", "qwen3_untied", "qwen2_tied", "qwen2_untied", "llama_tied", "llama3_rope", "yarn_rope"]


def load(folder, dtype):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    return model.eval()


class TransformersDirectory(unittest.TestCase):
    def setUp(self):
        self.dir = scratch()

    def test_golden_logits(self):
        for name in MODELS:
            for way in ("direct", "through dat", "through gguf"):
                source = GOLDEN / name
                if way != "direct":
                    between = self.dir / ("x.dat" if way == "through dat" else "x.gguf")
                    nibble("convert", source, between, "--quant", "none", "--dtype", "fp32", "--force")
                    source = between
                out = self.dir / f"{name}-{way.replace(' ', '-')}"
                more = ["--config", GOLDEN / name / "config.json"] if way == "through dat" else []
                nibble("convert", source, out, "--to", "hf", "--quant", "none", "--dtype", "fp32", *more)
                g = st.load_file(GOLDEN / name / "expected.safetensors")
                model = load(out, torch.float64)
                with torch.no_grad():
                    logits = model(torch.tensor(g["input_ids"])).logits.numpy()
                with self.subTest(model=name, way=way):
                    # fp32 weights in both, computed in fp64: what is left is the order of sums.
                    self.assertLess(far(logits, g["logits"]), 1e-6)

    def test_mini_is_complete(self):
        out = self.dir / "mini"
        nibble("convert", MINI / "mini.dat", out, "--to", "hf")
        for file in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                     "model.safetensors", "README.md"):
            self.assertTrue((out / file).exists(), file)
        tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        text = "<|im_start|>user\nwho are you? 我是誰<|im_end|>\n"
        ids = [int(i) for i in nibble("tokenize", "--model", MINI, "--text", text).strip().split(",")]
        self.assertEqual(tokenizer(text)["input_ids"], ids)
        chat = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False,
                                             add_generation_prompt=True)
        self.assertEqual(chat, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
        model = load(out, torch.float32)
        prompt = tokenizer(chat, return_tensors="pt")
        reply = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt["input_ids"].shape[1]:]
        said = nibble("generate", "--model", out, "--prompt", "hello", "--max-tokens", 20, "--temp", 0).strip()
        self.assertEqual(tokenizer.decode(reply, skip_special_tokens=True).strip(), said)

    def test_real_models(self):
        for name, source, golden in real_models():
            out = self.dir / name
            nibble("convert", source, out, "--to", "hf", "--dtype", "fp32")
            g = st.load_file(golden)
            model = load(out, torch.float32)
            with torch.no_grad():
                logits = model(torch.tensor(g["ids0"]).reshape(1, -1)).logits[0, -1].numpy()
            distance = far(logits, g["logits0"].reshape(-1))
            print(f"{name}: logits {distance:.2e} from the golden ones")
            with self.subTest(model=name):
                self.assertLess(distance, 1e-4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
