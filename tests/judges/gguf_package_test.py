#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GGUF files of nibble read by the Python package `gguf`, tensor by tensor, bit for bit; blocks that
nibble makes against those the package makes; and files the package writes, read by nibble. Skipped
(77) where the package is not installed."""
import unittest

from judge import GOLDEN, MINI, need, nibble, scratch

np, gguf, st = need(("numpy", "numpy"), ("gguf", "gguf"), ("safetensors.numpy", "safetensors"))

MODELS = ["qwen3_tied", "qwen3_untied", "qwen2_tied", "qwen2_untied", "llama_tied", "llama3_rope",
          "yarn_rope", "qwen3_tied_nvfp4", "predecessor"]
Q = gguf.GGMLQuantizationType
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}


def source_of(name):
    return GOLDEN / name / "model-nvfp4.dat" if name == "predecessor" else GOLDEN / name


def gguf_name(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    stem, kind = part.rsplit(".", 1)
    return f"blk.{layer}.{PARTS[stem]}.{kind}"


def in_order(name, x, reader):
    """Rows of q and k of a llama as the format has them: as llama.cpp's converter permutes them."""
    arch = reader.fields["general.architecture"].contents()
    if arch != "llama" or not name.endswith((".q_proj.weight", ".k_proj.weight")):
        return x
    which = "head_count" if ".q_proj." in name else "head_count_kv"
    heads = reader.fields[f"llama.attention.{which}"].contents()
    return x.reshape(heads, 2, x.shape[0] // heads // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


def values_of(path):
    """Every tensor of a GGUF as fp32, with its own scale, by the package alone."""
    reader = gguf.GGUFReader(path)
    raw = {t.name: t for t in reader.tensors}
    out = {}
    for name, t in raw.items():
        x = gguf.dequantize(t.data, t.tensor_type).reshape([int(d) for d in reversed(t.shape)])
        scale = raw.get(name.removesuffix(".weight") + ".scale")
        if name.endswith(".weight") and scale is not None:
            x = x * scale.data.view(np.float32)[0]
        out[name] = x
    return reader, raw, out


class GgufPackage(unittest.TestCase):
    def setUp(self):
        self.dir = scratch()

    def dense(self, source, dtype="fp32"):
        """The model as nibble reads it, expanded."""
        out = self.dir / "dense.safetensors"
        nibble("convert", source, out, "--quant", "none", "--dtype", dtype, "--force")
        return st.load_file(out)

    def test_every_type_has_the_bits_of_the_package(self):
        types = {("none", "fp32"): Q.F32, ("none", "fp16"): Q.F16, ("none", "bf16"): Q.BF16,
                 ("q8_0", None): Q.Q8_0, ("q4_0", None): Q.Q4_0, ("mxfp4", None): Q.MXFP4}
        for model in MODELS:
            exact = self.dense(source_of(model))
            for (quant, dtype), wanted in types.items():
                out = self.dir / "x.gguf"
                nibble("convert", source_of(model), out, "--quant", quant, "--force",
                       *(["--dtype", dtype] if dtype else []))
                reader, raw, _ = values_of(out)
                seen = set()
                for name, x in exact.items():
                    there = gguf_name(name)
                    if name == "lm_head.weight" and there not in raw:
                        continue  # tied
                    t = raw.pop(there)
                    want = wanted
                    if quant != "none" and (name in OUTSIDE or x.shape[-1] % 32):
                        want = Q.Q8_0 if x.shape[-1] % 32 == 0 else Q.BF16
                    if x.ndim == 1:
                        want = Q.F32
                    with self.subTest(model=model, quant=quant, dtype=dtype, tensor=there):
                        self.assertEqual(t.tensor_type, want)
                        made = gguf.quantize(in_order(name, x, reader).astype(np.float32), want)
                        self.assertEqual(np.ascontiguousarray(t.data).tobytes(),
                                         np.ascontiguousarray(made).tobytes())
                    seen.add(want)
                if quant == "none" or any(x.ndim == 2 and x.shape[-1] % 32 == 0 and "_proj" in name
                                          for name, x in exact.items()):
                    self.assertIn(wanted, seen)
                self.assertEqual(set(raw) - {"rope_freqs.weight"}, set())

    def test_nvfp4_has_the_same_values(self):
        for model in MODELS:
            for levels in ("single-level", "two-level"):
                out = self.dir / "x.gguf"
                nibble("convert", source_of(model), out, "--quant", "nvfp4", "--scales", levels, "--force")
                reader, raw, values = values_of(out)
                mine = self.dense(out)
                packed = 0
                for name, x in mine.items():
                    with self.subTest(model=model, levels=levels, tensor=name):
                        theirs = values[gguf_name(name)]
                        self.assertTrue(np.array_equal(in_order(name, x, reader), theirs))
                    packed += raw[gguf_name(name)].tensor_type == Q.NVFP4
                if model in ("qwen3_tied_nvfp4", "predecessor"):
                    self.assertGreater(packed, 5)

    def test_what_was_packed_keeps_its_values(self):
        for model in ("qwen3_tied_nvfp4", "predecessor"):
            exact = self.dense(source_of(model))
            nibble("convert", source_of(model), self.dir / "x.gguf", "--force")
            _, raw, values = values_of(self.dir / "x.gguf")
            for name, x in exact.items():
                if raw.get(gguf_name(name)) is None:
                    continue
                with self.subTest(model=model, tensor=name):
                    if raw[gguf_name(name)].tensor_type == Q.NVFP4:
                        self.assertTrue(np.array_equal(values[gguf_name(name)], x))

    def test_mini_has_its_tokenizer(self):
        out = self.dir / "mini.gguf"
        nibble("convert", MINI / "mini.dat", out)
        fields = gguf.GGUFReader(out).fields
        value = lambda key: fields[key].contents()
        self.assertEqual(value("tokenizer.ggml.model"), "gpt2")
        self.assertEqual(value("tokenizer.ggml.pre"), "qwen2")
        tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
        self.assertEqual(len(tokens), 3072)
        self.assertEqual(tokens[3047], "<|im_start|>")
        self.assertEqual(types[3047], gguf.TokenType.CONTROL)
        self.assertEqual(types[0], gguf.TokenType.NORMAL)
        self.assertEqual(value("tokenizer.ggml.eos_token_id"), 3048)
        self.assertIn("<|im_start|>", value("tokenizer.chat_template"))
        self.assertIn("nibble", value("general.quantized_by"))

    def test_files_of_the_package_are_read(self):
        rng = np.random.default_rng(5)
        for model in ("qwen3_untied", "llama_tied", "qwen2_tied"):
            original = st.load_file(GOLDEN / model / "model.safetensors")
            nibble("convert", GOLDEN / model, self.dir / "f.gguf", "--quant", "none", "--dtype", "fp32", "--force")
            base = gguf.GGUFReader(self.dir / "f.gguf")
            arch = base.fields["general.architecture"].contents()
            writer = gguf.GGUFWriter(self.dir / "p.gguf", arch)
            for key, field in base.fields.items():
                if key.startswith(arch + "."):
                    writer.add_key_value(key, field.contents(), field.types[0])
            wanted = {}
            for name, x in original.items():
                x = in_order(name, x.astype(np.float32), base)
                choices = [Q.F32] if x.ndim == 1 else [Q.F16, Q.BF16] + [
                    q for q in (Q.Q8_0, Q.Q4_0, Q.MXFP4) if x.shape[-1] % 32 == 0]
                q = choices[rng.integers(len(choices))]
                data = gguf.quantize(x, q)
                writer.add_tensor(gguf_name(name), data, raw_dtype=None if q in (Q.F32, Q.F16) else q)
                wanted[name] = gguf.dequantize(data, q).reshape(x.shape)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            read = self.dense(self.dir / "p.gguf")
            for name, x in wanted.items():
                with self.subTest(model=model, tensor=name):
                    self.assertTrue(np.array_equal(in_order(name, read[name], base), x))


if __name__ == "__main__":
    unittest.main(verbosity=2)
