// SPDX-License-Identifier: MIT
// Loading: what a file lacks is listed, mixed precisions work, global scales reach the product.
#include "model/load.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/download.h"
#include "backend/forwarding_backend.h"
#include "convert/tied_head.h"
#include "core/memory_info.h"
#include "formats/dat.h"
#include "model/evaluate.h"
#include "model/param_reader.h"
#include "support/backends.h"
#include "support/golden.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

const std::vector<int64_t> kIds{3, 1, 4, 1, 5, 9, 2, 6};

std::vector<float> logits_of(Backend& backend, const Model& model) {
  return evaluate(backend, model, kIds, {}, 1, int64_t(kIds.size()), {}).logits;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const FormatError& e) {
    return e.what();
  }
  ADD_FAILURE() << "no FormatError";
  return "";
}

TEST(Load, ListsEverythingThatDoesNotFit) {
  const auto backend = make_cpu_backend(1);
  TemporaryDirectory dir("load");
  write_toy_weights(toy_config(), dir.path() / "model.safetensors");
  const auto source = open_tensor_source(dir.path() / "model.safetensors");
  Config deeper = toy_config();
  deeper.L = 4;
  const std::string missing = error_of([&] { load_model(*backend, deeper, *source, {}); });
  EXPECT_NE(missing.find("model.layers.3.self_attn.q_proj.weight [64, 64] is missing"),
            std::string::npos)
      << missing;
  EXPECT_NE(missing.find("model.layers.3.mlp.down_proj.weight"), std::string::npos) << missing;
  Config wider = toy_config();
  wider.F = 112;
  const std::string shape = error_of([&] { load_model(*backend, wider, *source, {}); });
  EXPECT_NE(shape.find("down_proj.weight has shape [64, 96], the config wants [64, 112]"),
            std::string::npos)
      << shape;
  Config untied = toy_config();
  untied.tied = false;
  EXPECT_NE(error_of([&] { load_model(*backend, untied, *source, {}); }).find("lm_head.weight"),
            std::string::npos);
  EXPECT_THROW(weight_bytes(*backend, deeper, *source, {}), FormatError);
}

// Doubles are held as floats; types without a rule are refused with the file, not deep inside.
TEST(Load, UnusualStoredTypes) {
  const auto backend = make_cpu_backend(1);
  const Config c = toy_config();
  TemporaryDirectory dir("load");
  write_toy_weights(c, dir.path() / "f32.safetensors");
  const auto source = open_tensor_source(dir.path() / "f32.safetensors");
  const auto with_embedding = [&](DType dtype) {
    std::vector<TensorInfo> infos = source->tensors();
    for (TensorInfo& t : infos) {
      if (t.name == kEmbedName) t.dtype = dtype;
    }
    const auto file = dir.path() / (std::string(dtype_name(dtype)) + ".safetensors");
    SafetensorsWriter writer(file, infos);
    for (const TensorInfo& t : source->tensors()) {
      const auto x = read_all<float>(*source, t.name);
      if (t.name != kEmbedName) {
        writer.append(std::as_bytes(std::span(x)));
      } else if (dtype == DType::f64) {
        const std::vector<double> wide(x.begin(), x.end());
        writer.append(std::as_bytes(std::span(wide)));
      } else {
        writer.append(std::vector<std::byte>(x.size()));
      }
    }
    writer.finish();
    return open_tensor_source(file);
  };
  const Model plain = load_model(*backend, c, *source, {});
  const Model wide = load_model(*backend, c, *with_embedding(DType::f64), {});
  EXPECT_EQ(logits_of(*backend, wide), logits_of(*backend, plain));
  const auto f8 = with_embedding(DType::f8_e4m3);
  EXPECT_NE(error_of([&] { load_model(*backend, c, *f8, {}); }).find("f8_e4m3"), std::string::npos);
}

TEST(Load, NanWeightsCannotBeQuantisedAndAreNamed) {
  const auto backend = make_cpu_backend(1);
  TemporaryDirectory dir("load");
  const auto file = dir.path() / "model.safetensors";
  write_toy_weights(toy_config(), file);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  std::string bytes = read_text_file(file);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + open_tensor_source(file)->at(name).file_offset, &nan, sizeof nan);
  replace_file(file, bytes);
  LoadOptions o;
  o.recipe = Recipe::nvfp4;
  const auto source = open_tensor_source(file);
  EXPECT_NE(error_of([&] { load_model(*backend, toy_config(), *source, o); }).find(name),
            std::string::npos);
}

// Notes the largest piece that a backend is given at once.
class PieceBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  size_t largest = 0, pieces = 0;

 private:
  void do_upload(Tensor dst, const void* host) override {
    largest = std::max(largest, dst.bytes());
    ++pieces;
    inner_.upload(dst, host);
  }
};

// A vocabulary of more than one piece: read ahead of the backend, in order, and never whole.
TEST(Load, LargeTensorsComeInPieces) {
  const auto cpu = make_cpu_backend(1);
  Config c = toy_config();
  c.V = 70001;
  c.L = 1;
  TemporaryDirectory dir("load");
  const auto file = dir.path() / "model.safetensors";
  write_toy_weights(c, file);
  const auto source = open_tensor_source(file);
  const std::vector<float> wanted = read_all<float>(*source, std::string(kEmbedName));
  ASSERT_GT(wanted.size() * 4, size_t(16) << 20);
  PieceBackend backend(*cpu);
  const Model model = load_model(backend, c, *source, {});
  EXPECT_LE(backend.largest, size_t(16) << 20);
  EXPECT_GT(backend.pieces, source->tensors().size());
  EXPECT_EQ(download_floats(backend, model.weights.embed), wanted);

  // What goes wrong while reading ahead is said as if it had been read in turn.
  const TensorInfo& embed = source->at(kEmbedName);
  std::string bytes = read_text_file(file);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + embed.file_offset + embed.n_bytes - sizeof nan, &nan, sizeof nan);
  replace_file(file, bytes);
  const auto damaged = open_tensor_source(file);
  LoadOptions o;
  o.head_recipe = Recipe::nvfp4;
  const std::string error = error_of([&] { load_model(backend, c, *damaged, o); });
  EXPECT_NE(error.find("in row 70000, element 63"), std::string::npos) << error;
}

// What progress is told adds up: the embedding is read twice where the head is made of it.
TEST(Load, PlannedBytesAreThoseThatAreRead) {
  const auto backend = make_cpu_backend(1);
  TemporaryDirectory dir("load");
  const Config c = toy_config();
  write_toy_weights(c, dir.path() / "model.safetensors");
  const auto source = open_tensor_source(dir.path() / "model.safetensors");
  const WeightIndex index(*source);
  ParameterReader reader(*backend, index, ScaleRule::four_over_six);
  const LogicalTensor& embed = index.at("model.embed_tokens.weight");
  Arena memory("test", backend->allocate(2 * size_t(c.V * c.C) * sizeof(float) + 4096, "test"));
  const Tensor to = memory.take(DType::f32, {c.V, c.C});
  reader.add_tensor(to, embed);
  reader.add_tensor(to, embed);
  const uint64_t planned = reader.planned_bytes();
  uint64_t told = 0;
  reader.run([&](uint64_t n) { told += n; });
  EXPECT_EQ(planned, 2 * embed.payload_bytes());
  EXPECT_EQ(told, planned);
}

TEST(Load, MoreMemoryThanTheMachineHasIsADeviceError) {
  const auto backend = make_cpu_backend(1);
  const uint64_t total = system_memory().total_bytes;
  ASSERT_GT(total, 0u);
  try {
    backend->allocate(total, "weights");  // some of it is always in use
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("available"), std::string::npos) << e.what();
  }
}

TEST(Load, WeightBytesArePredicted) {
  const auto backend = make_cpu_backend(1);
  TemporaryDirectory dir("load");
  write_toy_weights(toy_config(), dir.path() / "model.safetensors");
  const auto source = open_tensor_source(dir.path() / "model.safetensors");
  for (const auto recipe : {std::optional<Recipe>{}, std::optional(Recipe::nvfp4)}) {
    LoadOptions o;
    o.recipe = recipe;
    const Model m = load_model(*backend, toy_config(), *source, o);
    EXPECT_EQ(weight_bytes(*backend, toy_config(), *source, o), m.memory.capacity());
  }
}

// q_proj packed, k_proj and v_proj dense: the stacked weight becomes dense and nothing is lost.
TEST(Load, PartlyQuantisedSlotsAreHeldDense) {
  const auto backend = make_cpu_backend(1);
  const Config c = toy_config();
  TemporaryDirectory dir("load");
  write_toy_weights(c, dir.path() / "model.safetensors");
  const auto source = open_tensor_source(dir.path() / "model.safetensors");
  const WeightIndex index(*source);
  std::vector<TensorInfo> infos;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<float> expected_q;
  const auto add = [&](const std::string& name, int code, std::vector<int64_t> shape, const void* p,
                       size_t n) {
    TensorInfo info;
    info.name = name;
    info.dtype = *dat_code_dtype(uint64_t(code));
    info.dat_code = code;
    info.shape = std::move(shape);
    infos.push_back(info);
    payloads.emplace_back(static_cast<const std::byte*>(p), static_cast<const std::byte*>(p) + n);
  };
  for (const LogicalTensor& t : index.tensors()) {
    std::vector<float> x(size_t(t.numel()));
    read_rows_f32(*source, t, 0, t.rows, x.data());
    if (t.name != "model.layers.0.self_attn.q_proj.weight") {
      add(t.name, 6, t.shape, x.data(), x.size() * 4);
      continue;
    }
    const float g = 3.7f;  // any global scale
    std::vector<uint8_t> codes(x.size() / 2), scales(x.size() / 16);
    quantize_rows(x.data(), t.rows, t.cols, ScaleRule::absmax, g, codes.data(), scales.data());
    expected_q.resize(x.size());
    dequantize_rows(codes.data(), scales.data(), t.rows, t.cols, g, expected_q.data());
    add(t.name + ".qdata", 0, {t.rows, t.cols / 2}, codes.data(), codes.size());
    add(t.name + ".scale", 101, {t.rows, t.cols / 16}, scales.data(), scales.size());
    add(t.name + ".global_scale", 6, {1}, &g, sizeof g);
  }
  DatWriter writer(dir.path() / "mixed.dat", infos);
  for (const auto& p : payloads) writer.append(p);
  writer.finish();

  const auto mixed = open_tensor_source(dir.path() / "mixed.dat");
  const Model m = load_model(*backend, c, *mixed, {});
  const LinearWeight& qkv = m.weights.block[0].qkv;
  ASSERT_FALSE(qkv.is_packed());
  ASSERT_EQ(qkv.dense.dtype, DType::f32);
  EXPECT_EQ(std::vector<float>(qkv.dense.as<float>(), qkv.dense.as<float>() + expected_q.size()),
            expected_q);
  EXPECT_FALSE(qkv.row_scale);
}

// Two-level files: packed weights keep their codes, the global scale comes back in the epilogue.
TEST(Load, GlobalScalesReachTheProduct) {
  const Config c = toy_config();
  TemporaryDirectory dir("load");
  write_toy_weights(c, dir.path() / "model.safetensors");
  const auto source = open_tensor_source(dir.path() / "model.safetensors");
  const WeightIndex index(*source);
  std::vector<TensorInfo> infos;
  std::vector<std::vector<std::byte>> payloads;
  const auto add = [&](const std::string& name, DType dtype, std::vector<int64_t> shape,
                       std::span<const std::byte> p) {
    TensorInfo info;
    info.name = name;
    info.dtype = dtype;
    info.shape = std::move(shape);
    infos.push_back(info);
    payloads.emplace_back(p.begin(), p.end());
  };
  for (const LogicalTensor& t : index.tensors()) {
    std::vector<float> x(size_t(t.numel()));
    read_rows_f32(*source, t, 0, t.rows, x.data());
    if (t.shape.size() != 2 || t.name == kEmbedName) {
      add(t.name, DType::f32, t.shape, std::as_bytes(std::span(x)));
      continue;
    }
    const float g = two_level_scale(absolute_maximum(x.data(), t.numel()));
    std::vector<uint8_t> codes(x.size() / 2), scales(x.size() / 16);
    quantize_rows(x.data(), t.rows, t.cols, ScaleRule::four_over_six, g, codes.data(),
                  scales.data());
    add(t.name + ".qdata", DType::u8, {t.rows, t.cols / 2}, std::as_bytes(std::span(codes)));
    add(t.name + ".scale", DType::f8_e4m3, {t.rows, t.cols / 16}, std::as_bytes(std::span(scales)));
    add(t.name + ".global_scale", DType::f32, {1}, std::as_bytes(std::span(&g, 1)));
  }
  DatWriter writer(dir.path() / "two.dat", infos);
  for (const auto& p : payloads) writer.append(p);
  writer.finish();

  const auto two = open_tensor_source(dir.path() / "two.dat");
  const auto backend = make_cpu_backend(1);
  const Model packed = load_model(*backend, c, *two, {});
  ASSERT_TRUE(packed.weights.block[1].down.is_packed());
  ASSERT_TRUE(packed.weights.block[1].down.row_scale);
  LoadOptions dense_options;
  dense_options.recipe = Recipe::bf16;
  const Model dense = load_model(*backend, c, *two, dense_options);
  ASSERT_EQ(dense.weights.block[1].down.dense.dtype, DType::f32);
  // The same numbers, multiplied in another order: fp32 rounding apart, over three layers.
  EXPECT_LT(relative_l2(logits_of(*backend, packed), logits_of(*backend, dense)), 5e-6);
}

TEST(Load, PredecessorFileIsRecognisedAsTied) {
  const auto source = open_tensor_source(golden_dir() / "predecessor" / "model-nvfp4.dat");
  ThreadPool pool(1);
  const HeadCheck head = check_head(WeightIndex(*source), pool);
  EXPECT_EQ(head.relation, HeadCheck::Relation::tied);
  EXPECT_GE(head.share, kTiedShare);
}

TEST(Load, PredecessorTensorsDequantiseToTheGolden) {
  const auto dir = golden_dir() / "predecessor";
  const auto source = open_tensor_source(dir / "model-nvfp4.dat");
  const auto expected = open_tensor_source(dir / "expected.safetensors");
  const WeightIndex index(*source);
  int compared = 0;
  for (const LogicalTensor& t : index.tensors()) {
    std::vector<float> x(size_t(t.numel()));
    if (t.packed()) {
      std::vector<uint8_t> codes(x.size() / 2), scales(x.size() / 16);
      read_nvfp4_rows(*source, t, 0, t.rows, codes.data(), scales.data());
      dequantize_rows(codes.data(), scales.data(), t.rows, t.cols, 1.0f, x.data());
    } else {
      read_rows_f32(*source, t, 0, t.rows, x.data());
    }
    EXPECT_EQ(x, read_all<float>(*expected, "dequant." + t.name)) << t.name;
    ++compared;
  }
  EXPECT_EQ(compared, 25);
}

// Pages of a file that the system keeps in memory.
size_t cached_pages(const std::filesystem::path& path) {
  const size_t bytes = std::filesystem::file_size(path), page = size_t(sysconf(_SC_PAGESIZE));
  const int fd = open(path.c_str(), O_RDONLY);
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  std::vector<unsigned char> there((bytes + page - 1) / page);
  const int failed = mincore(map, bytes, there.data());
  munmap(map, bytes);
  EXPECT_EQ(failed, 0);
  return size_t(std::count_if(there.begin(), there.end(), [](auto c) { return c & 1; }));
}

// A GPU whose memory is the host's.
class SharingGpu final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  BackendTraits traits() const override {
    BackendTraits t = ForwardingBackend::traits();
    t.device = DeviceKind::cuda;
    return t;
  }
  bool memory_is_host() const override { return true; }
};

TEST(Load, TheFileLeavesThePageCacheWhereAGpuSharesTheHostsMemory) {
  TemporaryDirectory dir("load");
  const auto file = dir.path() / "model.safetensors";
  write_toy_weights(toy_config(), file);
  const auto source = open_tensor_source(file);
  const auto fetch = [&] { read_text_file(file); };
  fetch();
  source->forget_cached();
  if (cached_pages(file) > 0) GTEST_SKIP() << "this file system keeps what it is told to forget";
  fetch();
  const auto cpu = make_cpu_backend(1);
  load_model(*cpu, toy_config(), *source, {});
  EXPECT_GT(cached_pages(file), 0u) << "the next start of a program on the CPU reads it again";
  SharingGpu gpu(*cpu);
  load_model(gpu, toy_config(), *source, {});
  EXPECT_EQ(cached_pages(file), 0u);
}

}  // namespace
}  // namespace nibble::test
