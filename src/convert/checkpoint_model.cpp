// SPDX-License-Identifier: MIT
#include "convert/checkpoint_model.h"

#include <algorithm>

#include "convert/trained_source.h"
#include "core/error.h"
#include "core/half.h"
#include "core/json.h"
#include "core/log.h"
#include "formats/safetensors.h"
#include "model/config.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool is_checkpoint(const fs::path& file) {
  std::error_code ec;
  if (file.extension() != ".safetensors" || !fs::is_regular_file(file, ec)) return false;
  return open_safetensors(file)->metadata().contains(kCheckpointKey);
}

// The values of a checkpoint, read when they are asked for.
class CheckpointValues final : public TrainedValues {
 public:
  CheckpointValues(const TensorSource& file, Config config, bool tied, ScaleRule rule)
      : file_(file), tied_(tied), rule_(rule) {
    config.tied = tied;
    table_ = parameter_table(config);
  }

  const std::vector<ParamSpec>& table() const override { return table_; }
  bool trained(size_t i) const override {
    const bool tied_head = table_[i].slot == ParamSlot::head && tied_;
    return !tied_head && file_.find(kMasterPrefix + table_[i].name) != nullptr;
  }
  bool tied() const override { return tied_; }
  ScaleRule rule() const override { return rule_; }

  std::optional<DType> master_type(const ParamSpec& p) const override {
    const TensorInfo* t = master_of(p);
    if (!t) return std::nullopt;
    return t->dtype;
  }

  std::vector<float> master(const ParamSpec& p, int64_t begin, int64_t count) const override {
    const TensorInfo& t = *master_of(p);
    if (t.numel() != p.numel()) {
      throw_format("{}: '{}' is {}, the model's {} has {} values", file_.name(), t.name,
                   t.describe(), p.name, p.numel());
    }
    std::vector<float> values(static_cast<size_t>(count));
    if (t.dtype == DType::f32) {
      file_.read(t, uint64_t(begin) * 4, std::as_writable_bytes(std::span(values)));
      return values;
    }
    if (t.dtype != DType::bf16) {
      throw_format("{}: '{}' is {}, expected f32 or bf16", file_.name(), t.name, t.describe());
    }
    std::vector<bf16_t> halves(values.size());
    file_.read(t, uint64_t(begin) * 2, std::as_writable_bytes(std::span(halves)));
    std::ranges::transform(halves, values.begin(), [](bf16_t x) { return to_float(x); });
    return values;
  }

  bool packed(const ParamSpec& p, int64_t row, int64_t rows, std::span<uint8_t> codes,
              std::span<uint8_t> scales) const override {
    const TensorInfo* t = file_.find(kPackedPrefix + p.name);
    if (!t) return false;
    const size_t code_bytes = codes.size() / size_t(rows),
                 scale_bytes = scales.size() / size_t(rows);
    const size_t row_bytes = code_bytes + scale_bytes;
    if (t->dtype != DType::u8 || t->n_bytes != uint64_t(p.shape[0]) * row_bytes) {
      throw_format("{}: '{}' is {}, expected u8[{}, {}]", file_.name(), t->name, t->describe(),
                   p.shape[0], row_bytes);
    }
    std::vector<uint8_t> bytes(size_t(rows) * row_bytes);
    file_.read(*t, uint64_t(row) * row_bytes, std::as_writable_bytes(std::span(bytes)));
    for (size_t r = 0; r < size_t(rows); ++r) {
      const auto* from = bytes.data() + r * row_bytes;
      std::copy_n(from, code_bytes, codes.data() + r * code_bytes);
      std::copy_n(from + code_bytes, scale_bytes, scales.data() + r * scale_bytes);
    }
    return true;
  }

 private:
  const TensorInfo* master_of(const ParamSpec& p) const {
    const bool tied_head = p.slot == ParamSlot::head && tied_;
    return file_.find(kMasterPrefix + (tied_head ? std::string(kEmbedName) : p.name));
  }

  const TensorSource& file_;
  std::vector<ParamSpec> table_;
  bool tied_;
  ScaleRule rule_;
};

// Everything a checkpoint's model is made of, in one piece.
struct CheckpointParts {
  std::unique_ptr<TensorSource> base, file;
  std::unique_ptr<CheckpointValues> values;
  std::unique_ptr<TrainedSource> trained;
};

class CheckpointSource final : public TensorSource {
 public:
  explicit CheckpointSource(CheckpointParts parts)
      : TensorSource(Virtual{}, parts.base->format(), parts.trained->tensors(),
                     parts.base->metadata()),
        parts_(std::move(parts)) {
    for (const auto& s : {parts_.file.get(), parts_.base.get()}) {
      for (const InputFile& f : s->files()) files_.push_back(f.again());
    }
  }
  void read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const override {
    check_range(tensor, offset, out.size());
    parts_.trained->read(tensor, offset, out);
  }
  const std::vector<InputFile>& files() const override { return files_; }

 private:
  CheckpointParts parts_;
  std::vector<InputFile> files_;
};

std::optional<ScaleRule> scale_rule_named(const std::string& name) {
  using enum ScaleRule;
  for (const ScaleRule rule : {four_over_six, absmax, search, torchao}) {
    if (scale_rule_name(rule) == name) return rule;
  }
  return std::nullopt;
}

Json description_of(const TensorSource& file) {
  const auto text = file.metadata().find(kCheckpointKey);
  if (text == file.metadata().end()) {
    throw_format("{} is not a checkpoint of nibble: it lacks the entry '{}'", file.name(),
                 kCheckpointKey);
  }
  return parse_json<Json>(text->second);
}

CheckpointBase base_of(const Json& description, const std::string& where) {
  if (!description.contains("model")) {
    throw_format(
        "{} does not say which model its run began with: it is of an earlier version of nibble, or "
        "of a model with random weights; go on with its run (--resume), which exports a model",
        where);
  }
  const Json& m = description.at("model");
  const auto path = [&](const char* key) { return fs::path(m.at(key).get<std::string>()); };
  return {path("weights"), path("config"), path("tokenizer"), m.at("tied").get<bool>()};
}

std::unique_ptr<TensorSource> open_checkpoint(const fs::path& path) {
  CheckpointParts parts;
  parts.file = open_safetensors(path);
  if (const std::string damage = find_damage(path); !damage.empty()) {
    throw_format("{} is damaged: {}", path.string(), damage);
  }
  try {
    const Json description = description_of(*parts.file);
    const CheckpointBase base = base_of(description, path.string());
    const std::string name = description.at("identity").at("scale-rule");
    const auto rule = scale_rule_named(name);
    if (!rule) throw_format("{}: '{}' is no rule of scales", path.string(), name);
    if (!fs::exists(base.weights)) {
      throw_format("{} holds what was trained; the rest is read from {}, which is not there",
                   path.string(), base.weights.string());
    }
    parts.base = open_weights(base.weights, TiedMatrix::once);
    parts.values =
        std::make_unique<CheckpointValues>(*parts.file, load_config(base.config), base.tied, *rule);
  } catch (const Json::exception& e) {
    throw_format("{}: the checkpoint's description is damaged: {}", path.string(), e.what());
  }
  const RawTypes types = parts.base->format() == "gguf" ? RawTypes::of_master : RawTypes::of_file;
  parts.trained = std::make_unique<TrainedSource>(*parts.base, *parts.values, types);
  return std::make_unique<CheckpointSource>(std::move(parts));
}

}  // namespace

std::optional<fs::path> find_checkpoint(const fs::path& named) {
  std::error_code ec;
  if (!fs::is_directory(named, ec)) {
    if (!is_checkpoint(named)) return std::nullopt;
    return named;
  }
  // A run that goes on removes older ones: what is gone by now has a newer one beside it.
  std::string problems;
  for (int look = 0; look < 3; ++look) {
    std::vector<CheckpointFile> found = list_checkpoints(named);
    if (found.empty()) return std::nullopt;
    problems.clear();
    for (; !found.empty(); found.pop_back()) {
      const fs::path& file = found.back().path;
      try {
        const std::string damage = find_damage(file);
        if (damage.empty() && is_checkpoint(file)) return file;
        log_warning("{} is damaged ({}): an older one is taken", file.string(), damage);
        problems += fmt::format("{}: {}\n", file.string(), damage);
      } catch (const FormatError& e) {
        problems += std::string(e.what()) + "\n";
      }
    }
  }
  throw_format("{}no checkpoint in {} can be read", problems, named.string());
}

CheckpointBase checkpoint_base(const fs::path& checkpoint) {
  try {
    return base_of(description_of(*open_safetensors(checkpoint)), checkpoint.string());
  } catch (const Json::exception& e) {
    throw_format("{}: the checkpoint's description is damaged: {}", checkpoint.string(), e.what());
  }
}

std::unique_ptr<TensorSource> open_weights(const fs::path& path, TiedMatrix tied) {
  if (is_checkpoint(path)) return open_checkpoint(path);
  return open_model_source(path, tied);
}

}  // namespace nibble
