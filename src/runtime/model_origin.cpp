// SPDX-License-Identifier: MIT
#include "runtime/model_origin.h"

#include "core/json.h"
#include "core/version.h"
#include "formats/gguf/gguf.h"
#include "model/config.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

// A cell of a table, or a line: nothing of it can end it.
std::string plain(std::string text) {
  for (char& c : text) {
    if (c == '|' || c == '\n' || c == '\r' || c == '`') c = ' ';
  }
  return text;
}

// A snapshot in Hugging Face's cache (models--org--name/snapshots/commit) has the model's name.
std::string name_of_directory(const fs::path& directory) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(directory));
  const std::string cached = whole.parent_path().parent_path().filename().string();
  const size_t at = cached.rfind("--");
  const bool is_cached = whole.parent_path().filename() == "snapshots" &&
                         cached.starts_with("models--") && at + 2 < cached.size();
  return is_cached ? cached.substr(at + 2) : name_of_output(directory);
}

}  // namespace

std::string name_of_output(const fs::path& out) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(out));
  const fs::path last = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  for (const char* ending : {".gguf", ".dat", ".safetensors"}) {
    if (last.extension() == ending) return last.stem().string();
  }
  return last.string();
}

std::string model_name(const fs::path& weights, const fs::path& config) {
  if (weights.extension() == ".dat") return name_of_output(weights);
  if (looks_like_gguf(config)) {
    const auto source = open_gguf(config);
    const std::string* name = source->values().find_text("general.name");
    return name && !name->empty() ? *name : name_of_output(config);
  }
  const auto json = parse_json_or_discard<nlohmann::json>(config_text(config));
  if (json.is_object() && json.contains("_name_or_path") && json["_name_or_path"].is_string()) {
    const auto name = json["_name_or_path"].get<std::string>();
    // A folder of the machine it was saved on is nobody's business, its name is.
    if (name.starts_with('/') || name.starts_with('.')) return name_of_output(name);
    if (!name.empty()) return name;
  }
  return name_of_directory(place_of(config));
}

std::string model_card(const ModelOrigin& o) {
  std::string s =
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- nibble\n---\n\n";
  s += fmt::format("# {}\n\n", plain(o.name));
  s += fmt::format("{} {} by {}.\n", o.trained ? "Trained from" : "Converted from",
                   o.parent.empty() ? "weights of its own" : plain(o.parent), version_line());
  if (!o.facts.empty()) s += "\n";
  for (const std::string& fact : o.facts) s += fmt::format("- {}\n", plain(fact));
  if (!o.files.empty()) s += "\n## Made of\n\n| what | file | SHA-256 |\n|---|---|---|\n";
  for (const OriginFile& f : o.files) {
    s += fmt::format("| {} | `{}` | `{}` |\n", plain(f.role), plain(f.name),
                     f.sha256.empty() ? "not known" : f.sha256);
  }
  if (!o.scores.empty()) s += "\n## Scores\n\n";
  for (const std::string& score : o.scores) s += fmt::format("- {}\n", plain(score));
  s += "\n## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
       "tokenizer = AutoTokenizer.from_pretrained(\".\")\n"
       "model = AutoModelForCausalLM.from_pretrained(\".\", dtype=\"auto\")\n```\n";
  return s;
}

}  // namespace nibble
