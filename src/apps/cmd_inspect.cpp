// SPDX-License-Identifier: MIT
// nibble inspect: lists and verifies a weight file.
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/command.h"
#include "apps/options/work_options.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/text/visible.h"
#include "inspect/inspect.h"
#include "model/gguf_model.h"
#include "runtime/model_texts.h"
#include "runtime/weights_named.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Basis = TensorReport::ErrorBasis;

struct InspectOptions {
  fs::path file, against, config;
  bool json = false, stats = false, headers_only = false;
  WorkOptions work;

  void visit_fields(Fields& f) {
    f.add(file, {.flag = "FILE",
                 .help = "A .dat, a .safetensors or a Hugging Face directory",
                 .required = true});
    f.add(json, {.flag = "--json", .help = "One JSON object instead of text, statistics included"});
    f.add(stats, {.flag = "--stats",
                  .help = "Also min, max, mean, RMS, share of zero codes and range of scales"});
    f.add(against, {.flag = "--against",
                    .help = "The unquantised source: prints the exact error of every tensor",
                    .value = "DIR|FILE"});
    f.add(config, {.flag = "--config",
                   .help = "Check names and shapes against this config.json; a directory is always "
                           "checked against its own",
                   .value = "FILE"});
    f.add(headers_only, {.flag = "--headers-only",
                         .help = "List names, types and shapes without reading the values"});
    work.visit_fields(f);
  }
};

const char* basis_name(Basis basis) {
  switch (basis) {
    case Basis::none: return "none";
    case Basis::estimate: return "estimate";
    case Basis::embedding: return "embedding";
    case Basis::reference: return "reference";
  }
  return "";
}

ordered_json to_json(const TensorReport& t) {
  ordered_json j = {
      {"name", t.name}, {"stored", t.stored}, {"shape", t.shape}, {"bytes", t.n_bytes}};
  if (t.has_values) {
    j["min"] = t.min;
    j["max"] = t.max;
    j["mean"] = t.mean;
    j["rms"] = t.rms;
  }
  if (t.has_values && t.packed) {
    j["zero_codes"] = t.zero_codes;
    j["scale_min"] = t.scale_min;
    j["scale_max"] = t.scale_max;
    j["global_scale"] = t.global_scale;
  }
  if (t.basis != Basis::none) {
    j["error_basis"] = basis_name(t.basis);
    j["error_relative_rms"] = t.relative_rms;
    if (t.basis != Basis::estimate) j["error_max_abs"] = t.max_abs;
  }
  if (!t.problems.empty()) j["problems"] = t.problems;
  return j;
}

void print_json(const TensorSource& source, const InspectReport& report, std::ostream& out) {
  ordered_json j = {{"format", source.format()},
                    {"entries", source.tensors().size()},
                    {"payload_bytes", source.payload_bytes()},
                    {"tensors", ordered_json::array()}};
  for (const TensorReport& t : report.tensors) j["tensors"].push_back(to_json(t));
  j["notes"] = report.notes;
  j["problems"] = report.problems;
  j["damaged"] = report.damaged();
  out << j.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

std::string error_text(const TensorReport& t) {
  switch (t.basis) {
    case Basis::none: return "";
    case Basis::estimate: return fmt::format("  error ~{:.2f} %", t.relative_rms * 100);
    case Basis::embedding:
    case Basis::reference:
      return fmt::format("  error {:.4f} %, largest {:.4g}", t.relative_rms * 100, t.max_abs);
  }
  return "";
}

void print_text(const InspectOptions& o, const TensorSource& source, const InspectReport& report,
                std::ostream& out) {
  size_t width = 0;
  for (const TensorReport& t : report.tensors) width = std::max(width, visible_line(t.name).size());
  int64_t estimates = 0;
  for (const TensorReport& t : report.tensors) {
    out << fmt::format("{:<{}}  {:<38}  {:<16}  {:>12}{}\n", visible_line(t.name), width, t.stored,
                       fmt::format("[{}]", fmt::join(t.shape, ", ")), t.n_bytes, error_text(t));
    if (o.stats && t.has_values) {
      out << fmt::format("    min {:.5g}  max {:.5g}  mean {:.5g}  rms {:.5g}", t.min, t.max,
                         t.mean, t.rms);
      if (t.packed) {
        out << fmt::format("  zero codes {:.2f} %  scales {:.5g}..{:.5g}", t.zero_codes * 100,
                           t.scale_min, t.scale_max);
        if (t.global_scale != 1) out << fmt::format("  global scale {:.6g}", t.global_scale);
      }
      out << "\n";
    }
    for (const std::string& p : t.problems) out << "    PROBLEM: " << visible_line(p) << "\n";
    estimates += t.basis == Basis::estimate;
  }
  for (const std::string& n : report.notes) out << "note: " << visible_line(n) << "\n";
  if (estimates > 0) {
    out << "note: errors with ~ are estimates from codes and scales; --against SOURCE gives exact "
           "ones\n";
  }
  for (const std::string& p : report.problems) out << "PROBLEM: " << visible_line(p) << "\n";
  int64_t packed = 0;
  for (const TensorReport& t : report.tensors) packed += t.packed;
  out << fmt::format("{}: {}, {} entries, {} tensors ({} NVFP4), {} payload bytes ({}): {}\n",
                     visible_line(o.file.string()), source.format(), source.tensors().size(),
                     report.tensors.size(), packed, source.stored_bytes(),
                     format_bytes(source.stored_bytes()),
                     report.damaged() ? "DAMAGED"
                     : o.headers_only ? "headers are sound"
                                      : "sound");
}

ExitCode run_inspect(const InspectOptions& o, Io& io) {
  if (o.headers_only && (o.stats || !o.against.empty())) {
    throw_usage("--headers-only reads no values: {} needs them", o.stats ? "--stats" : "--against");
  }
  const fs::path file = weights_named(o.file);
  const auto source = open_model_source(file);
  std::optional<Config> config;
  if (!o.config.empty()) {
    config = load_config(o.config);
  } else if (const auto own = companion_text(file, "config.json")) {
    config = parse_config(*own, file.string());
  }
  std::unique_ptr<TensorSource> other;
  std::optional<WeightIndex> reference;
  if (!o.against.empty()) {
    other = open_model_source(weights_named(o.against));
    reference.emplace(*other);
  }
  InspectSettings settings;
  settings.payload = !o.headers_only;
  settings.config = config ? &*config : nullptr;
  settings.reference = reference ? &*reference : nullptr;
  ThreadPool pool(o.work.thread_count());
  log_debug("inspect: {} threads", pool.size());
  const InspectReport report = inspect_weights(*source, settings, pool);
  if (o.json) {
    print_json(*source, report, io.out);
  } else {
    print_text(o, *source, report, io.out);
  }
  return report.damaged() ? ExitCode::file : ExitCode::ok;
}

}  // namespace

Command inspect_command() {
  return make_command<InspectOptions>(
      "inspect", "List and verify a weight file",
      "Lists every tensor with its type, shape and bytes, and checks pairs, scales, NaN and\n"
      "infinities. NVFP4 tensors get their quantisation error: exact with --against, or for the\n"
      "head of a tied model, else an estimate (~) that takes the original values as evenly spread\n"
      "over the interval each code stands for. Exit code 3 when anything is wrong.",
      run_inspect);
}

}  // namespace nibble
