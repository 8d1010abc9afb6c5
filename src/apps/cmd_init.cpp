// SPDX-License-Identifier: MIT
// nibble init: a model with random weights.
#include <chrono>
#include <ostream>

#include "apps/command.h"
#include "apps/options/dtype_option.h"
#include "apps/options/work_options.h"
#include "convert/init.h"
#include "core/file.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "runtime/staged_output.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct InitOptions {
  fs::path config, out, tokenizer;
  uint64_t seed = 0;
  std::optional<DType> dtype;
  std::optional<Container> format;
  bool force = false;
  WorkOptions work;

  void visit_fields(Fields& f) {
    f.add(
        config,
        {.flag = "--config", .help = "The model's config.json", .value = "FILE", .required = true});
    f.add(out, {.flag = "--out",
                .help = "What to write: a directory, or a .dat or .safetensors file",
                .value = "DIR|FILE",
                .required = true});
    f.add(seed, {.flag = "--seed", .help = "Equal seeds give equal weights, in every format"});
    f.add_choice(dtype,
                 {.flag = "--dtype", .help = "Element type; by default fp16 in a .dat, else bf16"},
                 dtype_names());
    f.add_choice<std::optional<Container>>(
        format, {.flag = "--format", .help = "What to write; by default as the name of --out says"},
        {{"dat", Container::dat},
         {"safetensors", Container::safetensors},
         {"hf", Container::directory}});
    f.add(tokenizer, {.flag = "--tokenizer",
                      .help = "tokenizer.json to put beside the weights, when it does not lie "
                              "beside the config",
                      .value = "FILE"});
    f.add(force, {.flag = "--force", .help = "Replace what exists"});
    work.visit_fields(f);
  }
};

ExitCode run_init(const InitOptions& o, Io& io) {
  const auto start = std::chrono::steady_clock::now();
  const Config config = load_config(o.config);
  if (!o.tokenizer.empty() && !fs::is_regular_file(o.tokenizer)) {
    throw_format("--tokenizer {}: no such file", o.tokenizer.string());
  }
  const Container container = o.format ? *o.format : container_for(o.out);
  if (container == Container::gguf) {
    throw_usage("init writes no GGUF: make a directory, and `nibble convert` makes a GGUF of it");
  }
  const Overwrite overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
  check_output(o.out, container, overwrite);
  const FileLock lock = lock_output(o.out);
  StagedOutput staged(o.out, container, overwrite);
  ThreadPool pool(o.work.thread_count());
  log_debug("init: {} threads", pool.size());

  const InitSummary summary =
      init_weights(config, staged.weights(), container, o.dtype, o.seed, pool);
  const fs::path from = o.config.has_parent_path() ? o.config.parent_path() : fs::path(".");
  staged.companion("config.json", read_text_file(o.config), overwrite);
  if (!o.tokenizer.empty()) {
    staged.companion("tokenizer.json", read_text_file(o.tokenizer), overwrite);
  }
  copy_companions(from, staged, Overwrite::refuse);
  staged.publish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  io.out << fmt::format("{}: {} entries, {} parameters, {} payload bytes ({}), seed {}, {:.1f} s\n",
                        o.out.string(), summary.entries, summary.parameters, summary.payload_bytes,
                        format_bytes(summary.payload_bytes), o.seed, seconds.count());
  return ExitCode::ok;
}

}  // namespace

Command init_command() {
  return make_command<InitOptions>(
      "init", "Make a model with random weights for a config.json",
      "Matrices are drawn from a normal distribution with the config's initializer_range, norms\n"
      "are 1. Every value is exact in bf16 and fp16. The config and the tokenizer's files that "
      "lie\n"
      "beside it are copied beside the weights; files that are there already are kept.",
      run_init);
}

}  // namespace nibble
