// SPDX-License-Identifier: MIT
#include "runtime/output_files.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "formats/gguf/gguf.h"
#include "model/config.h"
#include "model/params.h"
#include "runtime/model_texts.h"
#include "runtime/staged_output.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "added_tokens.json",
                                       "special_tokens_map.json",
                                       "chat_template.jinja"};

bool is_empty_directory(const fs::path& p) { return fs::is_directory(p) && fs::is_empty(p); }

// Whether `file`, which lies in the model directory, belongs to its weights.
bool is_weights_name(const fs::path& directory, const std::string& name) {
  if (name == kShardIndex || name.ends_with(".dat")) return true;
  if (!name.ends_with(".safetensors")) return false;
  if (name.starts_with("model")) return true;
  // Shards may have any name: the index has it.
  return fs::is_regular_file(directory / kShardIndex) &&
         read_text_file(directory / kShardIndex).find("\"" + name + "\"") != std::string::npos;
}

// Every file the model may be read from, whether this command reads it or not.
std::vector<fs::path> files_of(const ModelPaths& model) {
  std::vector<fs::path> files = {model.weights, model.config, model.tokenizer};
  std::set<fs::path> directories;
  for (const fs::path& f : files) {
    if (!f.empty()) directories.insert(fs::is_directory(f) ? f : parent_directory(f));
  }
  for (const fs::path& d : directories) {
    files.push_back(d / "config.json");
    for (const char* name : kCompanions) files.push_back(d / name);
  }
  // The other parts of a split GGUF.
  if (model.weights.extension() == ".gguf" && fs::exists(model.weights)) {
    const auto parts = open_gguf(model.weights);
    for (const InputFile& f : parts->files()) files.push_back(f.path());
  }
  const bool sharded = model.weights.string().ends_with(".index.json");
  if (!sharded && !fs::is_directory(model.weights)) return files;
  // Shards may have any name: all that lie beside their index are taken for them.
  const fs::path directory = sharded ? parent_directory(model.weights) : model.weights;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_weights_name(directory, name) || (sharded && name.ends_with(".safetensors"))) {
      files.push_back(entry.path());
    }
  }
  return files;
}

}  // namespace

void refuse_replacing_weights(const TensorSource& source, const fs::path& out,
                              Container container) {
  refuse_overwrite_of_input(source, out);
  if (container != Container::directory || !fs::exists(out)) return;
  for (const InputFile& f : source.files()) {
    if (f.path().extension() == ".safetensors" && fs::equivalent(parent_directory(f.path()), out)) {
      throw_usage("the output directory {} holds the input {}: choose another name", out.string(),
                  f.path().string());
    }
  }
}

void refuse_replacing_input(const fs::path& output, const ModelPaths& model,
                            const std::vector<fs::path>& others) {
  if (output.empty() || !fs::exists(output)) return;
  std::vector<fs::path> inputs = files_of(model);
  inputs.insert(inputs.end(), others.begin(), others.end());
  for (const fs::path& input : inputs) {
    if (!input.empty() && fs::is_regular_file(input) && same_file(input, output)) {
      throw_usage("the output {} is an input ({}): choose another name", output.string(),
                  input.string());
    }
  }
}

void check_output_file(const fs::path& output, Overwrite overwrite, const ModelPaths& model,
                       const std::vector<fs::path>& inputs) {
  refuse_replacing_input(output, model, inputs);
  if (overwrite == Overwrite::refuse && fs::is_regular_file(output)) {
    throw_usage("{} exists: choose another name, or use --force", output.string());
  }
}

bool is_companion_name(const std::string& name) {
  return name == "config.json" || name == kModelCard || name == kModelOptConfig ||
         std::ranges::find(kCompanions, name) != std::end(kCompanions);
}

void refuse_same_output(const std::vector<std::pair<std::string, fs::path>>& outputs) {
  // Neither need exist yet, and one may be named through a link.
  const auto whole = [](const fs::path& p) { return fs::weakly_canonical(fs::absolute(p)); };
  for (auto a = outputs.begin(); a != outputs.end(); ++a) {
    for (auto b = a + 1; b != outputs.end(); ++b) {
      if (a->second.empty() || b->second.empty()) continue;
      if (same_file(a->second, b->second) || whole(a->second) == whole(b->second)) {
        throw_usage("{} and {} are the same file, {}: choose another name for one", a->first,
                    b->first, b->second.string());
      }
    }
  }
}

OutputPlace check_output(const fs::path& out, Container container, Overwrite overwrite) {
  if (container == Container::directory) {
    const bool fresh = !fs::exists(out) || is_empty_directory(out);
    if (fs::exists(out) && !fs::is_directory(out)) {
      throw_usage("{} is a file, and the output is a directory: choose another name", out.string());
    }
    if (!fresh && overwrite == Overwrite::refuse) {
      throw_usage("{} is not empty: choose another name, or use --force", out.string());
    }
    return {out, fresh};
  }
  if (fs::is_directory(out)) {
    throw_usage("{} is a directory, and the output is a file: choose another name", out.string());
  }
  if (fs::exists(out) && overwrite == Overwrite::refuse) {
    throw_usage("{} exists: choose another name, or use --force", out.string());
  }
  const fs::path parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  return {parent, !fs::exists(parent) || is_empty_directory(parent)};
}

void check_writable(const fs::path& directory) {
  fs::path existing = fs::absolute(directory);
  while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  const AtomicFile probe(existing / ".nibble-can-write");
}

void write_model_config(const fs::path& config, StagedOutput& output, bool untied,
                        Overwrite overwrite, const OutputQuantization* quantization) {
  const fs::path target = output.directory() / "config.json";
  std::string text = config_text(config);
  if (quantization) text = with_quantization(text, *quantization);
  if (quantization && quantization->names == Nvfp4Names::modelopt) {
    output.companion(kModelOptConfig, modelopt_quant_config(*quantization), overwrite);
  }
  if (untied) {
    auto json = parse_json<nlohmann::ordered_json>(text);
    json["tie_word_embeddings"] = false;
    text = json.dump(2) + "\n";
  }
  if (!same_file(target, config)) {
    output.companion("config.json", text, overwrite);
  } else if (untied) {
    log_warning("{} is the input's and is kept: set tie_word_embeddings to false for the output",
                target.string());
  }
}

void refuse_other_model(const fs::path& config, const fs::path& directory, Overwrite overwrite) {
  const fs::path there = directory / "config.json";
  if (overwrite == Overwrite::allow || !fs::exists(there) || same_file(there, config)) return;
  const auto shapes = [](const fs::path& file) {
    std::vector<std::pair<std::string, std::vector<int64_t>>> out;
    for (const ParamSpec& p : parameter_table(load_config(file))) out.push_back({p.name, p.shape});
    return out;
  };
  if (shapes(there) == shapes(config)) return;
  throw_usage(
      "{} belongs to another model than {}, whose weights are to be written beside it; name a "
      "folder of their own, or replace it with --force",
      there.string(), config.string());
}

void refuse_companions_from_elsewhere(const fs::path& directory) {
  std::error_code ec;
  const fs::path home = fs::canonical(directory, ec);
  if (ec || !fs::is_directory(home)) return;  // a GGUF has them in itself
  // models--x/snapshots/revision/config.json -> ../../blobs/hash
  const fs::path blobs = home.parent_path().filename() == "snapshots"
                             ? home.parent_path().parent_path() / "blobs"
                             : fs::path();
  std::vector<std::string> names = {"config.json"};
  names.insert(names.end(), std::begin(kCompanions), std::end(kCompanions));
  for (const std::string& name : names) {
    const fs::path file = home / name;
    if (!fs::is_symlink(file, ec)) continue;
    const fs::path target = fs::canonical(file, ec);
    if (ec) continue;  // it leads nowhere: not there
    const fs::path parent = target.parent_path();
    const bool inside =
        std::mismatch(home.begin(), home.end(), target.begin(), target.end()).first == home.end();
    if (inside || (!blobs.empty() && parent == blobs)) continue;
    throw_format(
        "{} is a link to {}, outside of the model's directory, and would be copied into the "
        "output: put the file itself there",
        (directory / name).string(), target.string());
  }
}

void copy_companions(const fs::path& from, StagedOutput& output, Overwrite overwrite,
                     const std::set<std::string>& except) {
  for (const char* name : kCompanions) {
    if (except.contains(name) || same_file(from / name, output.directory() / name)) continue;
    if (const auto text = companion_text(from, name)) output.companion(name, *text, overwrite);
  }
}

}  // namespace nibble
