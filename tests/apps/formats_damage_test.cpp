// SPDX-License-Identifier: MIT
// Damaged files of the forms that other programs write: exit code 3, with the file, the tensor and
// what is wrong with it.
#include <cmath>
#include <cstring>

#include "apps/cli_run.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

class FormatsDamage : public testing::Test {
 protected:
  std::string to(const std::string& in, const std::string& name, std::vector<std::string> more) {
    const std::string out = dir_.file(name);
    more.insert(more.begin(), {"convert", in, out});
    cli_ok(more);
    return out;
  }
  // A directory again, with one entry changed, or left out where `change` says no.
  template <class Change>
  std::string with(const std::string& good, const std::string& name, Change&& change) {
    const auto source = open_tensor_source(good);
    const std::string out = dir_.file("bad");
    fs::remove_all(out);
    fs::create_directories(out);
    fs::copy(good + "/config.json", out + "/config.json");
    std::vector<TensorInfo> infos;
    std::vector<Bytes> bytes;
    for (TensorInfo t : source->tensors()) {
      Bytes b = entry_bytes(*source, t.name);
      if (t.name == name && !change(t, b)) continue;
      infos.push_back(t);
      bytes.push_back(std::move(b));
    }
    ShardedSafetensorsWriter w(out, infos, {}, 40'000);
    for (const Bytes& b : bytes) w.append(b);
    w.finish();
    return out;
  }
  // Every command says `part`, and where that is.
  void all_fail(const std::string& bad, const std::string& part, const std::string& where) {
    const fs::path never = dir_.path() / "never";
    for (const char* command : {"inspect", "generate", "convert"}) {
      std::vector<std::string> args = {command};
      if (args[0] == "generate") args.insert(args.end(), {"--input-ids", "1", "--model"});
      args.push_back(bad);
      if (args[0] == "convert") args.push_back(never.string());
      const CliResult r = cli(args);
      EXPECT_EQ(r.code, 3) << command << ": " << part << r.err;
      EXPECT_TRUE(contains(r.err + r.out, part)) << command << ": " << r.err << r.out;
      EXPECT_TRUE(contains(r.err + r.out, where)) << command << ": " << r.err << r.out;
    }
    EXPECT_FALSE(fs::exists(never));
  }
  TemporaryDirectory dir_{"damage"};
};

struct Form {
  const char *to, *codes, *scales, *global;
};
constexpr Form kForms[] = {
    {"compressed-tensors", ".weight_packed", ".weight_scale", ".weight_global_scale"},
    {"modelopt", ".weight", ".weight_scale", ".weight_scale_2"}};

TEST_F(FormatsDamage, EveryPartOfPackedWeights) {
  const std::string layer = "model.layers.1.mlp.up_proj";
  const auto drop = [](TensorInfo&, Bytes&) { return false; };
  const auto put = [](float x) {
    return [x](TensorInfo&, Bytes& b) {
      std::memcpy(b.data(), &x, sizeof x);
      return true;
    };
  };
  const auto shaped = [](DType type, std::vector<int64_t> shape) {
    return [=](TensorInfo& t, Bytes& b) {
      t.dtype = type;
      t.shape = shape;
      size_t n = dtype_bytes(type);
      for (const int64_t d : shape) n *= size_t(d);
      b.resize(n, std::byte(0x38));
      return true;
    };
  };
  for (const Form& form : kForms) {
    const std::string good =
        to(golden("qwen3_tied"), std::string("good-") + form.to, {"--to", form.to});
    const auto source = open_tensor_source(good);
    const TensorInfo codes = source->at(layer + form.codes);
    const int64_t rows = codes.shape[0], cols = codes.shape[1] * 2;
    const auto fails = [&](const char* part, auto&& change, const std::string& what) {
      SCOPED_TRACE(fmt::format("{} {}", form.to, part));
      const std::string bad = with(good, layer + part, change);
      // One of several files: it is the one with (the rest of) the matrix that is named.
      EXPECT_FALSE(fs::exists(bad + "/model.safetensors"));
      all_fail(bad, what, fmt::format("NVFP4 tensor '{}.weight'", layer));
      EXPECT_TRUE(contains(cli({"convert", bad, dir_.file("never")}).err, bad + "/model-0000"));
    };
    fails(form.codes, drop, fmt::format("the codes ({}) are missing", form.codes));
    fails(form.scales, drop, "the scales (.weight_scale) are missing");
    fails(form.global, drop, fmt::format("the global scale ({}) is missing", form.global));
    fails(form.codes, shaped(DType::u8, {rows, cols / 2 - 1}), "in a multiple of 16");
    fails(form.scales, shaped(DType::f8_e4m3, {rows, cols / 16 + 1}), "scales of shape");
    fails(form.scales, shaped(DType::u8, {rows, cols / 16}), "not f8_e4m3");
    fails(form.global, shaped(DType::f32, {2}), "the global scale is f32[2], not f32[1]");
    fails(form.global, shaped(DType::f16, {1}), "the global scale is f16[1], not f32[1]");
    fails(
        form.scales,
        [](TensorInfo&, Bytes& b) {
          b[0] = std::byte(0x7f);
          return true;
        },
        "is not a finite E4M3 value");
    for (const float x : {0.0f, -1.0f, NAN, INFINITY}) {
      fails(form.global, put(x), "is not a positive number");
    }
  }
}

TEST_F(FormatsDamage, WhatConfigSaysOfPackedWeights) {
  for (const Form& form : kForms) {
    const std::string good =
        to(golden("qwen3_tied"), std::string("good-") + form.to, {"--to", form.to});
    const std::string config = file_bytes(good + "/config.json");
    const auto fails = [&](const std::string& from, const std::string& to_text) {
      const std::string bad = with(good, "", [](TensorInfo&, Bytes&) { return true; });
      std::string text = config;
      const size_t at = text.find(from);
      ASSERT_NE(at, text.npos) << from;
      replace_file(bad + "/config.json", text.replace(at, from.size(), to_text));
      all_fail(bad, "quantization_config", bad);
    };
    if (form.to == kForms[0].to) {
      fails("nvfp4-pack-quantized", "pack-quantized");
      fails("\"compressed-tensors\"", "\"awq\"");
      fails("\"compressed-tensors\"", "[1, {}]");
    } else {
      fails("W4A16_NVFP4", "NVFP4_AWQ");
      fails("W4A16_NVFP4", "FP8");
      fails("\"W4A16_NVFP4\"", "null");
    }
  }
}

TEST_F(FormatsDamage, InputsScaledOneByOneAreRefused) {
  const std::string good = to(golden("qwen3_tied"), "good", {"--to", "modelopt"});
  const std::string norm = "model.layers.0.input_layernorm.weight";
  const std::string awq = "model.layers.0.self_attn.q_proj.pre_quant_scale";
  const std::string bad = with(good, norm, [&](TensorInfo& t, Bytes&) {
    t.name = awq;
    return true;
  });
  all_fail(bad, awq, "(AWQ)");
}

TEST_F(FormatsDamage, ShardsAndTheirIndex) {
  const std::string good =
      to(golden("qwen3_tied"), "good", {"--to", "hf", "--max-shard-size", "40KB"});
  const std::string index = "model.safetensors.index.json";
  const std::string first = "model-00001-of-00014.safetensors",
                    second = "model-00002-of-00014.safetensors";
  ASSERT_TRUE(fs::exists(good + "/" + first));
  const auto bad = [&] {
    const std::string out = dir_.file("bad");
    fs::remove_all(out);
    fs::copy(good, out, fs::copy_options::recursive);
    return out + "/";
  };
  std::string out = bad();
  fs::remove(out + first);
  all_fail(dir_.file("bad"), "is missing", out + first);
  out = bad();
  fs::resize_file(out + first, fs::file_size(out + first) - 1);
  all_fail(dir_.file("bad"), "model.embed_tokens.weight", out + first);
  out = bad();
  fs::resize_file(out + index, fs::file_size(out + index) / 2);
  all_fail(dir_.file("bad"), "parse error", out + index);
  out = bad();  // two that have changed places
  fs::rename(out + first, out + "x");
  fs::rename(out + second, out + first);
  fs::rename(out + "x", out + second);
  all_fail(dir_.file("bad"), "places in", out + first);
}

TEST_F(FormatsDamage, Nvfp4OfAGguf) {
  Config c = of_family(toy_chat_config(), ToyFamily::llama);
  c.F = 128;
  write_toy_directory(dir_.path() / "toy", c);
  const std::string good = to(dir_.file("toy"), "good.gguf", {"--quant", "nvfp4"});
  const std::string bytes = file_bytes(good);
  const auto source = open_gguf(good);
  const auto fails = [&](const std::string& tensor, const std::string& put,
                         const std::string& part) {
    std::string bad = bytes;
    bad.replace(source->at(tensor).file_offset, put.size(), put);
    replace_file(dir_.file("bad.gguf"), bad);
    cli_fails({"generate", "--model", dir_.file("bad.gguf"), "--input-ids", "1"}, 3, part);
    cli_fails({"convert", dir_.file("bad.gguf"), dir_.file("never")}, 3, part);
    EXPECT_FALSE(fs::exists(dir_.file("never")));
  };
  const auto number = [](float x) {
    return std::string(reinterpret_cast<const char*>(&x), sizeof x);
  };
  fails("blk.0.attn_q.weight", "\xff", "a scale byte of 0xff");
  for (const float x : {0.0f, -1.0f, NAN, INFINITY}) {
    fails("blk.1.ffn_up.scale", number(x), "is not a positive number");
  }
}

}  // namespace
}  // namespace nibble::test
