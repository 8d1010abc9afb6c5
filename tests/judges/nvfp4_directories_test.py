#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NVFP4 directories for other programs. compressed-tensors' own code expands what nibble writes to the
same bf16 weights, alone and inside of transformers; what it packs is read by nibble and says the same as
in transformers. ModelOpt's rules, as its readers apply them (vLLM's modelopt.py: codes x weight_scale x
weight_scale_2, the low nibble first), give the same values, too. Skipped (77) where torch, transformers
or compressed-tensors is not installed."""
import json
import unittest

from judge import GOLDEN, MINI, far, logits_of, need, nibble, scratch

np, torch, transformers, ct, st = need(
    ("numpy", "numpy"), ("torch", "torch"), ("transformers", "transformers"),
    ("compressed_tensors", "compressed-tensors"), ("safetensors.torch", "safetensors"))
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor  # noqa: E402
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8  # noqa: E402
from compressed_tensors.quantization import QuantizationConfig  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import dequantize  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam  # noqa: E402

transformers.logging.set_verbosity_error()
MODELS = ["qwen3_tied_nvfp4", "qwen3_untied", "qwen2_tied", "llama_tied", "predecessor"]
FUSED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def source_of(name):
    return {"predecessor": GOLDEN / "predecessor" / "model-nvfp4.dat", "mini": MINI / "mini.dat"}.get(
        name, GOLDEN / name)


def tensors_of(folder):
    return st.load_file(folder / "model.safetensors")


def quantization_of(folder):
    return json.loads((folder / "config.json").read_text())["quantization_config"]


def expanded_by_package(folder):
    """Layer -> bf16 weight, by compressed-tensors alone."""
    config = QuantizationConfig.model_validate(quantization_of(folder))
    scheme = config.config_groups["group_0"]
    parts = {}
    for name, t in tensors_of(folder).items():
        layer, _, part = name.rpartition(".")
        if part.startswith(("weight_", "input_")):
            parts.setdefault(layer, {})[part] = t
    return {layer: NVFP4PackedCompressor.decompress(state, scheme)["weight"] for layer, state in parts.items()}


class Nvfp4Directories(unittest.TestCase):
    def setUp(self):
        self.dir = scratch()

    def dense(self, source, dtype):
        out = self.dir / f"dense-{dtype}.safetensors"
        nibble("convert", source, out, "--quant", "none", "--dtype", dtype, "--force")
        return st.load_file(out)

    def make(self, name, form, *more):
        out = self.dir / f"{name}-{form}"
        said = nibble("convert", source_of(name), out, "--to", form, "--force", *more)
        return out, said

    def test_the_package_expands_to_the_same_weights(self):
        for name in MODELS + ["mini"]:
            out, said = self.make(name, "compressed-tensors")
            mine = self.dense(out, "bf16")
            theirs = expanded_by_package(out)
            self.assertGreater(len(theirs), 10)
            for layer, weight in theirs.items():
                with self.subTest(model=name, layer=layer):
                    self.assertEqual(weight.dtype, torch.bfloat16)
                    self.assertTrue(torch.equal(weight, mine[layer + ".weight"]))
            if name in ("qwen3_tied_nvfp4", "predecessor", "mini"):
                # What was packed has its values, none of them rounded.
                self.assertIn("0 codes changed, 0 scales", said)
                exact = self.dense(source_of(name), "bf16")
                for layer in theirs:
                    self.assertTrue(torch.equal(mine[layer + ".weight"], exact[layer + ".weight"]), layer)

    def test_one_global_scale_for_what_runs_as_one(self):
        for name in MODELS:
            for form, key in (("compressed-tensors", "weight_global_scale"), ("modelopt", "weight_scale_2")):
                out, _ = self.make(name, form)
                seen = {}
                for tensor, t in tensors_of(out).items():
                    layer, _, part = tensor.rpartition(".")
                    if part != key:
                        continue
                    parent, _, module = layer.rpartition(".")
                    seen.setdefault((parent, FUSED.get(module, module)), set()).add(float(t))
                self.assertTrue(seen)
                for group, scales in seen.items():
                    self.assertEqual(len(scales), 1, group)
                # Scales reach high into the range: readers that drop small ones find none.
                for tensor, t in tensors_of(out).items():
                    if tensor.endswith(".weight_scale"):
                        self.assertLessEqual(float(t.float().max()), 448)

    def test_transformers_runs_what_nibble_wrote(self):
        ids = torch.arange(1, 41).reshape(1, 40)
        for name in ("qwen3_tied_nvfp4", "qwen3_untied", "llama_tied"):
            out, _ = self.make(name, "compressed-tensors")
            config = transformers.CompressedTensorsConfig(run_compressed=False)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                out, quantization_config=config, dtype=torch.float32, attn_implementation="eager").eval()
            with torch.no_grad():
                theirs = model(ids).logits.float().numpy()
            mine = logits_of(out, ids.numpy())
            with self.subTest(model=name):
                distance = far(mine, theirs)
                print(f"{name}: logits {distance:.2e} from transformers'")
                self.assertLess(distance, 1e-5)

    def test_what_the_package_packed_is_read(self):
        config = json.loads(json.dumps(quantization_of(self.make("qwen3_tied", "compressed-tensors")[0])))
        scheme = QuantizationConfig.model_validate(config).config_groups["group_0"]
        for name in ("qwen3_untied", "llama_tied"):
            original = st.load_file(GOLDEN / name / "model.safetensors")
            out, plain = self.dir / f"package-{name}", self.dir / f"plain-{name}"
            packed, expanded = {}, {}
            for tensor, t in original.items():
                if t.ndim != 2 or "_proj" not in tensor:
                    packed[tensor] = expanded[tensor] = t.float()
                    continue
                layer = tensor.removesuffix(".weight")
                g = generate_gparam(t.amin(), t.amax())
                groups = t.float().reshape(t.shape[0], -1, 16)
                scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, global_scale=g)
                state = NVFP4PackedCompressor.compress(
                    {"weight": t.float(), "weight_scale": scale, "weight_global_scale": g}, scheme)
                for part, value in state.items():
                    packed[f"{layer}.{part}"] = value.reshape(1) if part.endswith("global_scale") else value
                expanded[tensor] = None
            for folder in (out, plain):
                folder.mkdir()
                text = json.loads((GOLDEN / name / "config.json").read_text())
                if folder == out:
                    text["quantization_config"] = config
                (folder / "config.json").write_text(json.dumps(text))
            st.save_file(packed, out / "model.safetensors", {"format": "pt"})
            for tensor in expanded:
                if expanded[tensor] is None:  # as the package does it, in fp32
                    layer = tensor.removesuffix(".weight")
                    codes, scale = packed[layer + ".weight_packed"], packed[layer + ".weight_scale"]
                    values = unpack_fp4_from_uint8(codes, codes.shape[0], codes.shape[1] * 2, torch.float32)
                    expanded[tensor] = dequantize(values, scale.float(), args=scheme.weights, dtype=torch.float32,
                                                  global_scale=packed[layer + ".weight_global_scale"])
            st.save_file(expanded, plain / "model.safetensors", {"format": "pt"})
            model = transformers.AutoModelForCausalLM.from_pretrained(
                plain, dtype=torch.float32, attn_implementation="eager").eval()
            ids = torch.arange(1, 41).reshape(1, 40)
            with torch.no_grad():
                wanted = model(ids).logits.numpy()
            with self.subTest(model=name):
                distance = far(logits_of(out, ids.numpy()), wanted)
                print(f"{name} as the package packed it: logits {distance:.2e} from transformers'")
                self.assertLess(distance, 1e-5)

    def test_modelopt_rules(self):
        for name in MODELS + ["mini"]:
            out, _ = self.make(name, "modelopt")
            t, mine = tensors_of(out), self.dense(out, "fp32")
            q = json.loads((out / "hf_quant_config.json").read_text())["quantization"]
            # What vLLM asks to be there.
            self.assertEqual(q["quant_algo"], "W4A16_NVFP4")
            self.assertEqual(q["group_size"], 16)
            self.assertIn("lm_head", q["exclude_modules"])
            self.assertIn("kv_cache_quant_algo", q)
            self.assertEqual(quantization_of(out)["quant_method"], "modelopt")
            packed = 0
            for tensor, scale in t.items():
                if not tensor.endswith(".weight_scale"):
                    continue
                layer, packed = tensor.removesuffix(".weight_scale"), packed + 1
                codes, second = t[layer + ".weight"], t[layer + ".weight_scale_2"]
                self.assertEqual((codes.dtype, scale.dtype, second.shape),
                                 (torch.uint8, torch.float8_e4m3fn, torch.Size([])))
                values = torch.stack([E2M1[(codes & 15).long()], E2M1[(codes >> 4).long()]], -1).flatten(1)
                wide = (scale.float() * second).repeat_interleave(16, 1)
                with self.subTest(model=name, layer=layer):
                    self.assertTrue(torch.equal(values * wide, mine[layer + ".weight"]))
            self.assertGreater(packed, 10)

    def modelopt(self):
        try:
            from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
        except ImportError:
            self.skipTest("the Python package nvidia-modelopt is not installed")
        return NVFP4QTensor

    def test_modelopt_itself_unpacks_the_same(self):
        tensor_type = self.modelopt()
        for name in MODELS + ["mini"]:
            out, _ = self.make(name, "modelopt")
            t, mine = tensors_of(out), self.dense(out, "fp32")
            for tensor, scale in t.items():
                if not tensor.endswith(".weight_scale"):
                    continue
                layer = tensor.removesuffix("_scale")
                codes = t[layer]
                q = tensor_type(torch.Size([codes.shape[0], codes.shape[1] * 2]), torch.float32, codes)
                values = q.dequantize(dtype=torch.float32, scale=scale, double_scale=t[layer + "_scale_2"],
                                      block_sizes={-1: 16})
                with self.subTest(model=name, layer=layer):
                    self.assertTrue(torch.equal(values, mine[layer]))

    def test_what_modelopt_packed_is_read(self):
        tensor_type = self.modelopt()
        original = st.load_file(GOLDEN / "qwen3_untied" / "model.safetensors")
        out = self.dir / "by-modelopt"
        out.mkdir()
        packed, wanted = {}, {}
        for tensor, t in original.items():
            if t.ndim != 2 or "_proj" not in tensor:
                packed[tensor] = t.float()
                continue
            q, scale, second = tensor_type.quantize(t.float(), 16)
            packed.update({tensor: q._quantized_data, tensor + "_scale": scale, tensor + "_scale_2": second})
            wanted[tensor] = q.dequantize(dtype=torch.float32, scale=scale, double_scale=second,
                                          block_sizes={-1: 16})
        text = json.loads((GOLDEN / "qwen3_untied" / "config.json").read_text())
        text["quantization_config"] = quantization_of(self.make("qwen3_untied", "modelopt")[0])
        (out / "config.json").write_text(json.dumps(text))
        st.save_file(packed, out / "model.safetensors", {"format": "pt"})
        mine = self.dense(out, "fp32")
        for tensor, values in wanted.items():
            # Three factors in another order: half a step of fp32 each.
            self.assertTrue(torch.allclose(values, mine[tensor], rtol=2.0**-22, atol=0), tensor)

    def test_calibrated_inputs(self):
        text = self.dir / "text.txt"
        text.write_text("hello, who are you?\n我是誰\n" * 40)
        amax = {}
        for form, key, ours in (("compressed-tensors", "input_global_scale", lambda x: 2688 / x),
                                ("modelopt", "input_scale", lambda x: x * 2688)):
            out, _ = self.make("mini", form, "--calibrate", text)
            for tensor, t in tensors_of(out).items():
                if tensor.endswith("." + key):
                    amax.setdefault(tensor.rpartition(".")[0], []).append(float(ours(t)))
            q = quantization_of(out)
            group = q["config_groups"]["group_0"]
            self.assertIsNotNone(group["input_activations"])
            if form == "modelopt":
                self.assertEqual(q["quant_algo"], "NVFP4")
            else:
                self.assertEqual(group["input_activations"]["dynamic"], "local")
        self.assertEqual(len(amax), 7 * 8)
        # The inputs as transformers sees them.
        dense = self.dir / "hf"
        nibble("convert", MINI / "mini.dat", dense, "--to", "hf")
        model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32).eval()
        seen = {}
        for module_name, module in model.named_modules():
            if module_name in amax:
                module.register_forward_pre_hook(
                    lambda m, args, n=module_name: seen.__setitem__(
                        n, max(seen.get(n, 0.0), float(args[0].abs().max()))))
        ids = transformers.AutoTokenizer.from_pretrained(dense)(text.read_text())["input_ids"]
        with torch.no_grad():
            for at in range(0, len(ids), 256):
                model(torch.tensor([ids[at:at + 256]]))
        shared = {}
        for layer, most in seen.items():
            parent, _, module = layer.rpartition(".")
            group = (parent, FUSED.get(module, module))
            shared[group] = max(shared.get(group, 0.0), most)
        for layer, both in amax.items():
            parent, _, module = layer.rpartition(".")
            for value in both:
                self.assertAlmostEqual(value / shared[(parent, FUSED.get(module, module))], 1, delta=1e-4)

    def test_there_and_back(self):
        for form in ("compressed-tensors", "modelopt"):
            out, _ = self.make("mini", form)
            nibble("convert", out, self.dir / "back.dat", "--quant", "nvfp4", "--force")
            a, b = (MINI / "mini.dat").read_bytes(), (self.dir / "back.dat").read_bytes()
            self.assertEqual(a == b, True, form)


if __name__ == "__main__":
    unittest.main(verbosity=2)
