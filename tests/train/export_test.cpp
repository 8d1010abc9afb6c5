// SPDX-License-Identifier: MIT
// What is trained is what is exported is what runs: the input's bytes where nothing changed, the
// trainer's own NVFP4 codes where something did.
#include <gtest/gtest.h>

#include "backend/download.h"
#include "convert/convert.h"
#include "core/file.h"
#include "generate/generator.h"
#include "support/golden.h"
#include "support/tested_backend.h"
#include "support/train_toy.h"
#include "train/export_weights.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

TrainSettings export_settings(double lr) {
  TrainSettings s;
  s.schedule.lr = lr;
  s.schedule.steps = 100;
  set_capacity(s, 64, 8);
  return s;
}

struct Trained {
  std::unique_ptr<Backend> backend = make_model_backend(2);
  std::unique_ptr<TensorSource> source;
  Config config;
  std::unique_ptr<TrainState> state;

  Trained(const fs::path& weights, const Config& c, const TrainSettings& s, int64_t steps)
      : source(open_tensor_source(weights)), config(c) {
    state = std::make_unique<TrainState>(*backend, c, *source, s);
    Trainer trainer(*state);
    for (int64_t i = 0; i < steps; ++i) {
      const PackedBatch b = random_batch({9, 17, 5}, c.V, uint64_t(i + 1));
      EXPECT_FALSE(trainer.step(std::span(&b, 1)).skipped);
    }
  }
  ExportSummary write(const fs::path& out) {
    ThreadPool pool(2);
    return export_weights(*source, *state, config, out, pool);
  }
};

fs::path predecessor() { return golden_dir() / "predecessor" / "model-nvfp4.dat"; }
Config predecessor_config() { return load_config(golden_dir() / "predecessor" / "config.json"); }

// The logits of the next token after a few prompts, by the trainer's own forward.
std::vector<int32_t> greedy(Backend& be, const Model& model, DType compute, int64_t tokens) {
  EngineOptions o{128, 0, compute, DType::f32, compute, Activations::none};
  Engine engine(be, model, o);
  GenerateOptions g;
  g.max_tokens = tokens;
  g.check_collapse = false;
  return generate(engine, std::vector<int32_t>{1, 2, 3, 4}, g).ids;
}

class LrZero : public testing::TestWithParam<std::tuple<MemoryMode, Recipe, bool>> {};

TEST_P(LrZero, ExportsTheFileItRead) {
  const auto [memory, recipe, untie] = GetParam();
  if (memory == MemoryMode::host && recipe != Recipe::nvfp4) GTEST_SKIP() << "not a way to train";
  TrainSettings s = export_settings(0);
  s.memory = memory;
  s.recipe = recipe;
  s.untie = untie;
  Trained t(predecessor(), predecessor_config(), s, 2);
  TemporaryDirectory dir("export");
  t.write(dir.path() / "out.dat");
  EXPECT_TRUE(read_text_file(dir.path() / "out.dat") == read_text_file(predecessor()));
}

INSTANTIATE_TEST_SUITE_P(All, LrZero,
                         testing::Combine(testing::ValuesIn(kMemoryModes),
                                          testing::Values(Recipe::nvfp4, Recipe::bf16),
                                          testing::Bool()));

TEST(Export, EveryTrainedTensorChangesAndTheRestStays) {
  TrainSettings s = export_settings(1e-2);
  s.lr_scale = {{"k_proj", 0}, {"layers.0.input_layernorm", 0}};
  Trained t(predecessor(), predecessor_config(), s, 3);
  TemporaryDirectory dir("export");
  const fs::path out = dir.path() / "out.dat";
  t.write(out);
  const auto written = open_tensor_source(out);
  ASSERT_EQ(written->tensors().size(), t.source->tensors().size());
  for (size_t i = 0; i < written->tensors().size(); ++i) {
    const TensorInfo &a = t.source->tensors()[i], &b = written->tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.shape, b.shape) << a.name;
    std::vector<std::byte> old(a.n_bytes), now(b.n_bytes);
    t.source->read(a, 0, old);
    written->read(b, 0, now);
    const bool frozen = a.name.find("k_proj") != std::string::npos ||
                        a.name == "model.layers.0.input_layernorm.weight";
    // What 16 bits cannot hold of a norm is kept in 32.
    const bool widened = a.shape.size() == 1 && !frozen;
    EXPECT_EQ(b.dat_code, widened ? 6 : a.dat_code) << a.name;
    if (frozen) {
      EXPECT_TRUE(old == now) << a.name;
    } else if (!a.name.ends_with(".scale")) {  // scales may happen to stay
      EXPECT_TRUE(old != now) << a.name;
    }
  }
}

// A rate that moves a norm by less than half a step of 16 bits, from a file of each form to each.
TEST(Export, NormsKeepWhatTheyLearned) {
  TemporaryDirectory dir("export");
  Trained t(predecessor(), predecessor_config(), export_settings(1e-5), 3);
  for (const char* name : {"out.dat", "out.safetensors"}) {
    const fs::path out = dir.path() / name;
    t.write(out);
    const auto written = open_tensor_source(out);
    for (const ParamSpec& p : t.state->groups().table) {
      if (p.is_matrix()) continue;
      const std::vector<float> master = download_floats(*t.backend, t.state->master_of(p));
      std::vector<float> file(master.size());
      read_rows_f32(*written, WeightIndex(*written).at(p.name), 0, 1, file.data());
      EXPECT_TRUE(master == file) << name << " " << p.name;
    }
  }
}

// The exported codes are the ones the trainer computes with.
TEST(Export, CodesAreTheForwardsOwn) {
  Trained t(predecessor(), predecessor_config(), export_settings(1e-3), 3);
  TemporaryDirectory dir("export");
  const fs::path out = dir.path() / "out.dat";
  t.write(out);
  const auto written = open_tensor_source(out);
  const WeightIndex index(*written);
  for (const ParamSpec& p : t.state->groups().table) {
    const LinearWeight* w = t.state->packed_of(p);
    if (!w) continue;
    std::vector<uint8_t> codes(size_t(p.numel() / 2)), scales(size_t(p.numel() / 16));
    auto file_codes = codes, file_scales = scales;
    t.backend->unpack_rows(*w, p.row_offset, p.shape[0], codes, scales);
    read_nvfp4_rows(*written, index.at(p.name), 0, p.shape[0], file_codes.data(),
                    file_scales.data());
    EXPECT_TRUE(codes == file_codes) << p.name;
    EXPECT_TRUE(scales == file_scales) << p.name;
  }
}

// Through the inference path the file says, token by token, what the trainer's forward predicts.
TEST(Export, GeneratesWhatTheTrainerPredicts) {
  for (const MemoryMode memory : {MemoryMode::resident, MemoryMode::release}) {
    TrainSettings s = export_settings(1e-3);
    s.memory = memory;
    Trained t(predecessor(), predecessor_config(), s, 5);
    Model trainer_view;
    trainer_view.config = t.state->config();
    trainer_view.weights = t.state->tensors().forward;
    const auto want = greedy(*t.backend, trainer_view, DType::f32, 40);
    TemporaryDirectory dir("export");
    const fs::path out = dir.path() / "out.dat";
    t.write(out);
    const auto written = open_tensor_source(out);
    const Model model = load_model(*t.backend, t.config, *written, {});
    EXPECT_EQ(greedy(*t.backend, model, DType::f32, 40), want);
    Engine a(*t.backend, trainer_view, {128, 0, DType::f32, DType::f32, DType::f32});
    Engine b(*t.backend, model, {128, 0, DType::f32, DType::f32, DType::f32});
    const auto la = a.extend_all(want), lb = b.extend_all(want);
    // Embedding and norms are fp16 in the file, bf16 and fp32 in training: 4 L + 2 roundings on the
    // way to a logit, each of at most 2^-11, independent of each other.
    EXPECT_LT(relative_l2(lb, la), std::sqrt(double(4 * t.config.L + 2)) * 0x1p-11);
  }
}

// A dense model becomes an NVFP4 .dat with the codes of the training forward, and a directory.
class ExportOf : public testing::TestWithParam<Config> {};
INSTANTIATE_TEST_SUITE_P(Families, ExportOf,
                         testing::Values(toy_config(), toy_qwen2_config(), toy_llama_config()));

TEST_P(ExportOf, DenseModelToDatAndDirectory) {
  TemporaryDirectory dir("export");
  const Config c = GetParam();
  write_toy_directory(dir.path() / "in", c);
  for (const bool untie : {false, true}) {
    TrainSettings s = export_settings(1e-3);
    s.untie = untie;
    Trained t(dir.path() / "in", c, s, 3);
    const fs::path dat = dir.path() / (untie ? "untied.dat" : "tied.dat");
    t.write(dat);
    const auto written = open_tensor_source(dat);
    const WeightIndex index(*written);
    for (const ParamSpec& p : t.state->groups().table) {
      EXPECT_EQ(index.at(p.name).packed(), p.is_linear()) << p.name;
      if (!p.is_linear()) continue;
      std::vector<uint8_t> codes(size_t(p.numel() / 2)), scales(size_t(p.numel() / 16));
      auto file_codes = codes, file_scales = scales;
      t.backend->unpack_rows(*t.state->packed_of(p), p.row_offset, p.shape[0], codes, scales);
      read_nvfp4_rows(*written, index.at(p.name), 0, p.shape[0], file_codes.data(),
                      file_scales.data());
      EXPECT_TRUE(codes == file_codes) << p.name;
    }
    const fs::path hf = dir.path() / (untie ? "untied" : "tied");
    fs::create_directories(hf);
    t.write(hf);
    const auto directory = open_tensor_source(hf);
    EXPECT_EQ(bool(directory->find(kHeadName)), untie);
    Config stored = c;
    stored.tied = !untie;
    const Model model = load_model(*t.backend, stored, *directory, {Recipe::nvfp4, {}, {}, {}});
    EXPECT_EQ(model.config.V, c.V);
  }
}

TEST(Export, RefusesItsInput) {
  TemporaryDirectory dir("export");
  const fs::path in = dir.path() / "in.dat";
  fs::copy_file(predecessor(), in);
  Trained t(in, predecessor_config(), export_settings(0), 1);
  EXPECT_THROW(t.write(in), UsageError);
  fs::create_symlink(in, dir.path() / "link.dat");
  EXPECT_THROW(t.write(dir.path() / "link.dat"), UsageError);
  EXPECT_TRUE(read_text_file(in) == read_text_file(predecessor()));
}

// A value fp16 cannot hold is an error that names the tensor, and no file appears.
TEST(Export, ValueTheFileCannotHold) {
  Trained t(predecessor(), predecessor_config(), export_settings(0), 1);
  const Tensor embed = t.state->tensors().master.embed;
  ASSERT_EQ(embed.dtype, DType::bf16);
  const std::vector<bf16_t> huge(size_t(embed.numel()), to_bf16(1e5f));
  t.backend->upload(embed, huge.data());
  TemporaryDirectory dir("export");
  const fs::path out = dir.path() / "out.dat";
  try {
    t.write(out);
    FAIL() << "no error";
  } catch (const FormatError& e) {
    EXPECT_NE(std::string(e.what()).find("model.embed_tokens.weight"), std::string::npos);
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

}  // namespace
}  // namespace nibble::test
