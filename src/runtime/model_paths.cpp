// SPDX-License-Identifier: MIT
#include "runtime/model_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "convert/checkpoint_model.h"
#include "core/error.h"
#include "core/file.h"
#include "core/shipped_files.h"
#include "formats/gguf/gguf.h"
#include "runtime/model_texts.h"
#include "runtime/no_model.h"
#include "runtime/weights_named.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct Located {
  fs::path weights;    // file or directory
  fs::path directory;  // where config and tokenizer are looked for; a GGUF has them in itself
  fs::path config = {}, tokenizer = {};  // of a checkpoint, whose model may lie anywhere
};

// Files that are a model's weights by their name alone; of a split GGUF the first part.
std::vector<std::string> weight_files(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const fs::path& file = entry.path();
    const std::string name = file.filename().string();
    if (!entry.is_regular_file()) continue;
    const bool gguf = file.extension() == ".gguf" && is_first_gguf(file);
    if (gguf || file.extension() == ".dat") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

fs::path weights_in(const fs::path& directory) {
  const std::vector<std::string> dats = weight_files(directory);
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (!fs::exists(directory / name)) continue;
    if (dats.empty()) return directory;
    throw_usage(
        "{} holds {} and other weights ({}): name one of them, e.g. --model {} or --model {}",
        directory.string(), name, fmt::join(dats, ", "), (directory / name).string(),
        (directory / dats[0]).string());
  }
  if (dats.size() == 1) return directory / dats[0];
  if (dats.size() > 1) {
    throw_usage("{} holds several files of weights ({}): name one of them, e.g. --model {}",
                directory.string(), fmt::join(dats, ", "), (directory / dats[0]).string());
  }
  throw_format(
      "{}: no weights there; looked for model.safetensors, model.safetensors.index.json, "
      "*.dat and *.gguf",
      directory.string());
}

// What calls itself a GGUF and is none is told so by the reader, before a config.json is missed.
bool is_gguf(const fs::path& file) {
  if (looks_like_gguf(file)) return true;
  if (file.extension() == ".gguf" && !fs::is_directory(file)) open_gguf(file);
  return false;
}

// A folder of Hugging Face's cache (models--org--name) is the snapshot that refs/main names, or the
// only one; any other folder is itself.
fs::path cached_snapshot(const fs::path& folder) {
  const fs::path all = folder / "snapshots";
  if (!fs::is_directory(all) || fs::exists(folder / "config.json")) return folder;
  const fs::path ref = folder / "refs" / "main";
  if (fs::exists(ref)) {
    std::string commit = read_text_file(ref);
    commit.erase(std::min(commit.find_last_not_of(" \t\r\n") + 1, commit.size()));
    if (commit.find('/') == commit.npos && !commit.empty() && commit != ".." &&
        fs::is_directory(all / commit)) {
      return all / commit;
    }
    throw_format("{}: names the snapshot '{}', which is not in {}: download the model again",
                 ref.string(), commit.substr(0, 80), all.string());
  }
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(all)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    throw_format("{}: no snapshot of the model there: download it again", all.string());
  }
  throw_usage("{} holds {} snapshots of the model and no refs/main: name one, e.g. --model {}",
              folder.string(), found.size(), found[0].string());
}

// Where Hugging Face's programs keep what they download.
fs::path hugging_face_cache() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  if (const fs::path hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const fs::path home = variable("HF_HOME"); !home.empty()) return home / "hub";
  return variable("HOME") / ".cache" / "huggingface" / "hub";
}

// "org/name", as the hub calls a model, and how one comes by it; "" for another name.
std::string how_to_download(const std::string& named) {
  const size_t slash = named.find('/');
  if (slash == 0 || slash == named.npos || slash + 1 == named.size() || named[0] == '.' ||
      named.find('/', slash + 1) != named.npos || fs::exists(named.substr(0, slash))) {
    return "";
  }
  const std::string org = named.substr(0, slash), name = named.substr(slash + 1);
  const fs::path cached = hugging_face_cache() / fmt::format("models--{}--{}", org, name);
  if (fs::is_directory(cached)) {
    return fmt::format(". The model is in Hugging Face's cache: --model {}", cached.string());
  }
  return fmt::format(
      ". nibble downloads nothing; if this is a model of Hugging Face, `hf download {} --local-dir "
      "{}` gets it (pip install huggingface_hub), and --model {} takes it then",
      named, name, name);
}

Located locate_one(const fs::path& named) {
  const auto in_directory = [](const fs::path& d) {
    const fs::path weights = weights_in(d);
    return Located{weights, is_gguf(weights) ? weights : d};
  };
  if (const std::optional<ModelPaths> checkpoint = checkpoint_paths(named)) {
    const fs::path place = place_of(checkpoint->config);
    return {checkpoint->weights, place, checkpoint->config, checkpoint->tokenizer};
  }
  if (fs::is_directory(named)) return in_directory(cached_snapshot(named));
  if (!fs::exists(named)) {
    const fs::path shipped = find_shipped_model(named);
    if (!shipped.empty()) return in_directory(shipped);
    throw_format("{}: no such file or directory (the model){}{}", named.string(),
                 named == named.filename() ? ", nor a model that comes with nibble" : "",
                 how_to_download(named.string()));
  }
  if (const std::string why = why_no_model(named); !why.empty()) {
    throw_format("{}: this is {}", named.string(), why);
  }
  return {named, is_gguf(named) ? named : place_of(named)};
}

Located locate(const ModelOptions& o) {
  if (!o.named()) {
    throw_usage(
        "no model given: use --model DIR or --model FILE, or name one for all commands in the "
        "environment variable NIBBLE_MODEL");
  }
  if (!o.model.empty()) {
    if (!o.weight.empty() || !o.model_dir.empty()) {
      throw_usage("--model names the model already: {} is one too many",
                  o.weight.empty() ? "--model-dir" : "--weight");
    }
    return locate_one(o.model);
  }
  if (o.weight.empty()) return locate_one(o.model_dir);
  if (o.model_dir.empty()) return locate_one(o.weight);
  // Both: the predecessor's way. The weight file is looked for in the directory first.
  if (!fs::is_directory(o.model_dir)) {
    throw_format("{}: --model-dir is not a directory", o.model_dir.string());
  }
  for (const fs::path& candidate : {o.model_dir / o.weight, o.weight}) {
    if (!fs::exists(candidate)) continue;
    return {candidate, is_gguf(candidate) ? candidate : o.model_dir};
  }
  throw_format("--weight {}: no such file; looked for {} and {}", o.weight.string(),
               (o.model_dir / o.weight).string(), o.weight.string());
}

fs::path companion(const fs::path& given, const fs::path& directory, const char* name,
                   const char* flag, TokenizerNeed need) {
  if (!given.empty()) {
    // A directory is a common slip, and unambiguous.
    const fs::path file = fs::is_directory(given) ? given / name : given;
    if (!fs::exists(file)) throw_format("{} {}: no such file", flag, file.string());
    return file;
  }
  if (looks_like_gguf(directory)) {
    const bool there = need == TokenizerNeed::required || companion_text(directory, name);
    return there ? directory : fs::path();
  }
  const fs::path file = directory / name;
  if (fs::exists(file)) return file;
  if (need == TokenizerNeed::optional) return {};
  throw_format("no {} beside the weights: looked for {}; give it with {} FILE", name, file.string(),
               flag);
}

}  // namespace

ModelPaths resolve_model(const ModelOptions& o, TokenizerNeed need) {
  const Located at = locate(o);
  ModelPaths paths;
  paths.weights = at.weights;
  paths.config = companion(o.config.empty() ? at.config : o.config, at.directory, "config.json",
                           "--config", TokenizerNeed::required);
  paths.tokenizer = companion(o.tokenizer.empty() ? at.tokenizer : o.tokenizer, at.directory,
                              "tokenizer.json", "--tokenizer", need);
  return paths;
}

fs::path weights_named(const fs::path& named) {
  if (!fs::exists(named)) {
    const fs::path shipped = find_shipped_model(named);
    if (!shipped.empty()) return weights_in(shipped);
    throw_format("{}: no such file or directory{}", named.string(),
                 how_to_download(named.string()));
  }
  if (!fs::is_directory(named)) return named;
  const fs::path directory = cached_snapshot(named);
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(directory / name)) return directory;
  }
  return weights_in(directory);
}

std::optional<ModelPaths> checkpoint_paths(const fs::path& named) {
  std::error_code ec;
  for (const char* weights : {"model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(named / weights, ec)) return std::nullopt;
  }
  std::optional<fs::path> file;
  try {
    file = find_checkpoint(named);
  } catch (const FormatError&) {
    // What cannot be read and is not called a checkpoint is told so as the model it was named for.
    if (fs::is_directory(named, ec) || is_checkpoint_name(named)) throw;
  }
  if (!file) return std::nullopt;
  const CheckpointBase base = checkpoint_base(*file);
  return ModelPaths{*file, base.config, base.tokenizer};
}

fs::path resolve_tokenizer(const ModelOptions& o) {
  if (o.tokenizer.empty() && !o.named()) {
    throw_usage("no tokenizer given: use --tokenizer FILE or --model DIR");
  }
  // The tokenizer of a directory needs no decision on which weights in it are meant.
  const bool own = fs::is_directory(o.model) && fs::exists(o.model / "tokenizer.json");
  const Located at = own ? Located{{}, o.model} : o.named() ? locate(o) : Located();
  return companion(o.tokenizer.empty() ? at.tokenizer : o.tokenizer, at.directory, "tokenizer.json",
                   "--tokenizer", TokenizerNeed::required);
}

}  // namespace nibble
