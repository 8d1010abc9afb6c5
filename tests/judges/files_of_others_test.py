#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files that other programs' own tools wrote say in nibble what they say in Hugging Face's library:
directories of transformers in shards, GGUF files of the package gguf, compressed-tensors (W4A16 and W4A4),
ModelOpt's export. Skipped (77) where torch or transformers is not installed; each of the other packages'
tests where that one is not.

The models are small random ones of each family, the mini model, and SmolLM2 where it is here. Both sides
compute in fp32 with the same weights, so what is left is the order of sums: 1e-5 of the logits. Of W4A4,
nibble takes the weights and leaves inputs as they are, and so does the model it is compared with."""
import copy
import json
import unittest

from judge import MINI, far, logits_of, need, nibble, real_models, scratch

np, torch, transformers, st = need(("numpy", "numpy"), ("torch", "torch"), ("transformers", "transformers"),
                                   ("safetensors.torch", "safetensors"))
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

FAMILIES = {"qwen2": transformers.Qwen2Config, "llama": transformers.LlamaConfig,
            "qwen3": transformers.Qwen3Config}
SAME = 1e-5
IDS = torch.arange(1, 41).reshape(1, 40)


def tiny(family, tied):
    """A random model whose layers all matter to its logits."""
    torch.manual_seed(11)
    more = {"head_dim": 32} if family == "qwen3" else {}
    config = FAMILIES[family](
        vocab_size=256, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=tied, bos_token_id=1,
        eos_token_id=2, initializer_range=0.1, **more)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(std=0.3)
            elif "norm" in name:
                p.uniform_(0.5, 1.5)
    model.config.architectures = [type(model).__name__]
    return model.eval()


def loaded(folder, **more):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **more).eval()


def said_by(model, ids=IDS):
    with torch.no_grad():
        return model(ids).logits.float().numpy()


def linear_layers(model):
    return [(name, m) for name, m in model.named_modules() if "_proj" in name and hasattr(m, "weight")]


class FilesOfOthers(unittest.TestCase):
    def setUp(self):
        self.dir = scratch()

    def package(self, name, pip):
        try:
            return __import__(name, fromlist=["x"])
        except ImportError:
            self.skipTest(f"the Python package {pip} is not installed")

    def models(self, real=True):
        """(name, a fresh model, ids): small ones, mini, and SmolLM2 where it is."""
        for family in FAMILIES:
            for tied in (True, False):
                yield f"{family}-{'tied' if tied else 'untied'}", tiny(family, tied), IDS
        sources = [("mini", MINI / "mini.dat", None)]
        sources += [m for m in real_models() if real and m[0].startswith("smollm2")]
        for name, source, golden in sources:
            nibble("convert", source, self.dir / name, "--to", "hf", "--dtype", "fp32", "--force")
            model = loaded(self.dir / name)
            model.config.architectures = [type(model).__name__]
            ids = IDS if golden is None else torch.tensor(st.load_file(golden)["text0"]).reshape(1, -1)[:, :48].long()
            yield name, model, ids

    def same(self, what, path, wanted, ids):
        distance = far(logits_of(path, ids.numpy().astype(np.int64)), wanted)
        print(f"{what}: logits {distance:.2e} from transformers'", flush=True)
        with self.subTest(what):
            self.assertLess(distance, SAME)

    def test_directories_in_shards(self):
        for name, model, ids in self.models(real=False):
            out = self.dir / f"{name}-shards"
            model.save_pretrained(out, max_shard_size="150KB")
            shards = sorted(out.glob("model-*.safetensors"))
            self.assertGreater(len(shards), 1)
            self.assertTrue((out / "model.safetensors.index.json").exists())
            self.same(f"{name}, {len(shards)} shards", out, said_by(model, ids), ids)

    def test_modelopt(self):
        mtq = self.package("modelopt.torch.quantization", "nvidia-modelopt")
        export = self.package("modelopt.torch.export", "nvidia-modelopt")
        tensor_type = self.package("modelopt.torch.quantization.qtensor.nvfp4_tensor",
                                   "nvidia-modelopt").NVFP4QTensor
        for form, layers in (("W4A16_NVFP4_CFG", 7), ("NVFP4_DEFAULT_CFG", 7), ("NVFP4_MLP_ONLY_CFG", 3)):
            for name, model, ids in self.models(real=form == "NVFP4_DEFAULT_CFG"):
                plain = copy.deepcopy(model)
                mtq.quantize(model, getattr(mtq, form), lambda m: m(ids))
                out = self.dir / f"{name}-{form}"
                export.export_hf_checkpoint(model, dtype=torch.float32, export_dir=out)
                t, packed = st.load_file(out / "model.safetensors"), 0
                for layer, module in linear_layers(plain):  # as the package expands them
                    codes = t[layer + ".weight"]
                    if codes.dtype != torch.uint8:
                        continue
                    packed += 1
                    q = tensor_type(module.weight.shape, torch.float32, codes)
                    module.weight.data = q.dequantize(
                        dtype=torch.float32, scale=t[layer + ".weight_scale"],
                        double_scale=t[layer + ".weight_scale_2"], block_sizes={-1: 16})
                self.assertEqual(packed, layers * plain.config.num_hidden_layers)
                inputs = any(key.endswith("input_scale") for key in t)
                self.assertEqual(inputs, form != "W4A16_NVFP4_CFG")
                self.same(f"{name}, ModelOpt's {form}", out, said_by(plain, ids), ids)

    def test_compressed_tensors(self):
        self.package("compressed_tensors", "compressed-tensors")
        from compressed_tensors.compressors.model_compressors.model_compressor import ModelCompressor
        from compressed_tensors.quantization import (QuantizationConfig, QuantizationStatus,
                                                     apply_quantization_config, preset_name_to_scheme)
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        for form in ("NVFP4A16", "NVFP4"):
            for name, model, ids in self.models(real=form == "NVFP4"):
                apply_quantization_config(model, QuantizationConfig(
                    config_groups={"group_0": preset_name_to_scheme(form, ["Linear"])}, ignore=["lm_head"]))
                layers = [(n, m) for n, m in linear_layers(model) if hasattr(m, "weight_scale")]
                most = {}
                hooks = [m.register_forward_pre_hook(
                    lambda m, args, n=n: most.__setitem__(n, args[0].abs().max().reshape(1))) for n, m in layers]
                for _, m in layers:
                    m.quantization_enabled = False
                said_by(model, ids)
                for hook in hooks:
                    hook.remove()
                schemes = {}
                for n, m in layers:
                    w = m.weight.data
                    g = generate_gparam(w.amin().reshape(1), w.amax().reshape(1))
                    groups = w.reshape(w.shape[0], -1, 16)
                    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), m.quantization_scheme.weights,
                                                 global_scale=g)
                    m.weight_scale.data, m.weight_global_scale.data = scale, g
                    if form == "NVFP4":
                        m.input_global_scale.data = generate_gparam(-most[n], most[n])
                    m.quantization_enabled = True
                    m.quantization_status = QuantizationStatus.FROZEN
                    schemes[n] = m.quantization_scheme  # of the weights alone
                    m.quantization_scheme = schemes[n].model_copy(update={"input_activations": None})
                wanted = said_by(model, ids)
                for n, m in layers:
                    m.quantization_scheme = schemes[n]
                compressor = ModelCompressor.from_pretrained_model(model)
                compressor.compress_model(model)
                out = self.dir / f"{name}-{form}"
                model.save_pretrained(out)
                compressor.update_config(out)
                q = json.loads((out / "config.json").read_text())["quantization_config"]
                self.assertEqual(q["format"], "nvfp4-pack-quantized")
                self.assertEqual(q["config_groups"]["group_0"]["input_activations"] is None, form == "NVFP4A16")
                self.same(f"{name}, compressed-tensors' {form}", out, wanted, ids)

    def gguf_of(self, gguf, model, path, type_of):
        """Written with the package's own writer, names and blocks. Returns what each tensor became."""
        config, arch = model.config, model.config.model_type
        writer = gguf.GGUFWriter(path, arch)
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_block_count(config.num_hidden_layers)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_rope_dimension_count(head)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
        writer.add_rope_freq_base(rope["rope_theta"])
        writer.add_vocab_size(config.vocab_size)
        names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), config.num_hidden_layers)
        types = {}
        for name, p in model.state_dict().items():
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            x = p.float().numpy()
            if arch == "llama" and ("q_proj" in name or "k_proj" in name):  # as the format has them
                heads = x.shape[0] // head
                x = x.reshape(heads, 2, head // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            q = type_of(name, x)
            types[name] = q
            data = np.ascontiguousarray(gguf.quantize(x, q))
            plain = q in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data,
                              raw_dtype=None if plain else q)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return types

    def test_gguf(self):
        gguf = self.package("gguf", "gguf")
        kinds = gguf.GGMLQuantizationType
        for quant in (kinds.F32, kinds.F16, kinds.BF16, kinds.Q8_0, kinds.Q4_0):
            for name, model, ids in self.models(real=quant == kinds.Q8_0):
                out = self.dir / f"{name}-{quant.name}.gguf"
                types = self.gguf_of(gguf, model, out, lambda n, x: kinds.F32 if x.ndim == 1 else quant)
                self.assertIn(quant, types.values())
                # Expanded by the package. (The library reads no head_dim from these files.)
                theirs = loaded(self.dir, gguf_file=out.name, config=model.config)
                self.same(f"{name}, a GGUF in {quant.name}", out, said_by(theirs, ids), ids)


if __name__ == "__main__":
    unittest.main(verbosity=2)
