// SPDX-License-Identifier: MIT
// nibble trace: logits, loss and intermediates of a run as safetensors; compares two of them.
#include <fmt/ranges.h>

#include <ostream>

#include "apps/command.h"
#include "apps/options/runtime_options.h"
#include "backend/recording_backend.h"
#include "core/log.h"
#include "generate/health.h"
#include "inspect/trace_compare.h"
#include "inspect/trace_grads.h"
#include "inspect/trace_io.h"
#include "model/evaluate.h"
#include "runtime/output_files.h"
#include "runtime/runtime.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct TraceOptions {
  RuntimeOptions runtime;
  fs::path input, out, compare, second;
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> input_ids;
  std::string dump;
  int64_t top = 0;
  double tolerance = 1e-5;
  bool force = false;

  void visit_fields(Fields& f) {
    nibble::visit_fields(runtime, f);
    f.section("Input");
    f.add(input, {.flag = "--input",
                  .help = "A .safetensors file with int64 input_ids [B, T] and, where there is a "
                          "loss, labels [B, T]: the logits at t are scored against the label at "
                          "t + 1, -100 is not scored",
                  .value = "FILE"});
    f.add(prompt, {.flag = "--prompt",
                   .help = "A text, encoded as it stands: no chat template; special tokens in it "
                           "become their ids"});
    f.add(input_ids, {.flag = "--input-ids", .help = "Token ids of one sequence"});
    f.section("Output");
    f.add(dump, {.flag = "--dump",
                 .help = "What to write, separated by commas: logits, loss, acts (every named "
                         "intermediate), grads (of every parameter); default logits, and loss "
                         "where there are labels",
                 .value = "LIST"});
    f.add(out, {.flag = "--out", .help = "The .safetensors file to write", .value = "FILE"});
    f.add(force, {.flag = "--force", .help = "Replace an --out that exists", .needs = "--out"});
    f.add(top, {.flag = "--top",
                .help = "Print the K likeliest next tokens after each sequence",
                .value = "K",
                .least = 0});
    f.section("Comparing");
    f.add(compare, {.flag = "--compare",
                    .help = "Compare this recording with the one named next, the reference",
                    .value = "FILE"});
    f.add(second, {.flag = "FILE", .help = "The second recording of --compare"});
    f.add(tolerance, {.flag = "--tolerance",
                      .help = "Relative L2 difference of a tensor that still counts as equal",
                      .value = "X",
                      .least = 0,
                      .needs = "--compare"});
  }
};

struct Dump {
  bool logits = false, loss = false, acts = false, grads = false;
};

Dump parse_dump(const std::string& list, const TraceInput& input) {
  if (list.empty()) return {true, !input.labels.empty(), false};
  Dump d;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    if (item == "logits") {
      d.logits = true;
    } else if (item == "loss") {
      d.loss = true;
    } else if (item == "acts") {
      d.acts = true;
    } else if (item == "grads") {
      d.grads = true;
    } else {
      throw_usage("--dump: '{}' is none of logits, loss, acts, grads", item);
    }
    begin = end + 1;
  }
  if ((d.loss || d.grads) && input.labels.empty()) {
    throw_usage("--dump {} needs labels: put int64 'labels' [B, T] into --input",
                d.loss ? "loss" : "grads");
  }
  return d;
}

TraceInput read_input(const TraceOptions& o, const Runtime& runtime) {
  if (!o.input.empty()) return read_trace_input(o.input);
  const std::vector<int32_t> ids =
      o.input_ids ? *o.input_ids : runtime.require_tokenizer().encode(*o.prompt);
  if (ids.empty()) throw_usage("the input has no tokens");
  TraceInput in;
  in.B = 1;
  in.T = int64_t(ids.size());
  in.ids.assign(ids.begin(), ids.end());
  return in;
}

void check_usage(const TraceOptions& o) {
  const int inputs =
      int(!o.input.empty()) + int(o.prompt.has_value()) + int(o.input_ids.has_value());
  if (inputs != 1) {
    throw_usage("trace needs one input: --input FILE, --prompt TEXT or --input-ids 1,2,3{}",
                inputs > 1 ? "; they exclude each other" : "");
  }
  if (o.out.empty() && o.top == 0) {
    throw_usage("nothing to do: name a file with --out, or print tokens with --top K");
  }
  if (o.out.empty() && !o.dump.empty()) throw_usage("--dump is about --out, which is not given");
  if (!o.second.empty()) throw_usage("'{}' is only read with --compare", o.second.string());
  check_output_file(o.out, o.force ? Overwrite::allow : Overwrite::refuse,
                    resolve_model(o.runtime.model, TokenizerNeed::optional), {o.input});
}

void print_top(const TraceOptions& o, const Runtime& runtime, const TraceInput& in,
               const Evaluation& e, std::ostream& out) {
  const int64_t V = runtime.model.config.V;
  for (int64_t b = 0; b < in.B; ++b) {
    const std::span<const float> row(e.logits.data() + ((b + 1) * in.T - 1) * V, size_t(V));
    if (in.B > 1) out << fmt::format("sequence {}:\n", b);
    if (const auto bad = find_bad_values("logits", row, V)) {
      out << fmt::format("  logits of the last position: {}\n", bad->problem);
    }
    for (const TopToken& t : top_tokens(row, o.top)) {
      std::string text;
      if (runtime.tokenizer) {
        text = "  " + quoted_text(runtime.tokenizer->decode(std::span(&t.id, 1)));
      }
      out << fmt::format("  {:>7}  logit {:>10.5f}  p {:.5f}{}\n", t.id, t.logit, t.probability,
                         text);
    }
  }
}

ExitCode run_compare(const TraceOptions& o, Io& io) {
  if (o.second.empty()) throw_usage("--compare A B: the second file is missing");
  const bool other = o.runtime.model.named() || !o.input.empty() || o.prompt || o.input_ids ||
                     !o.out.empty() || !o.dump.empty() || o.top > 0;
  if (other) throw_usage("--compare only reads two recordings; it runs no model");
  return print_comparison(o.compare, o.second, o.tolerance, io.out) ? ExitCode::ok
                                                                    : ExitCode::check_failed;
}

ExitCode run_trace(const TraceOptions& o, Io& io) {
  if (!o.compare.empty()) return run_compare(o, io);
  check_usage(o);
  RuntimeOptions options = o.runtime;
  // A trace is held against references, and those do not quantise activations.
  if (options.activations == ActivationsChoice::automatic) {
    options.activations = ActivationsChoice::bf16;
  }
  Runtime runtime = open_runtime(options, TokenizerNeed::optional);
  const TraceInput input = read_input(o, runtime);
  const Dump dump = o.out.empty() ? Dump{} : parse_dump(o.dump, input);
  if (dump.grads && runtime.activations != Activations::none) {
    throw_usage("--dump grads: training does not quantise activations; leave --activations out");
  }

  std::vector<Recorded> acts;
  RecordingBackend recording(*runtime.backend, [&](Recorded r) {
    if (r.name != "logits") acts.push_back(std::move(r));
  });
  Backend& backend = dump.acts ? static_cast<Backend&>(recording) : *runtime.backend;
  const Evaluation e = evaluate(backend, runtime.model, input.ids, input.labels, input.B, input.T,
                                {runtime.compute, DType::f32, runtime.activations});
  if (!input.labels.empty()) {
    io.out << fmt::format("loss {:.6f} over {} positions\n", e.loss, e.scored);
  }
  if (o.top > 0) print_top(o, runtime, input, e, io.out);
  if (o.out.empty()) return ExitCode::ok;

  std::vector<TraceTensor> tensors;
  for (const Recorded& r : acts) {
    std::vector<int64_t> shape = {input.B, input.T};
    shape.insert(shape.end(), r.shape.begin() + 1, r.shape.end());
    tensors.push_back({"acts." + r.name, std::move(shape), r.values});
  }
  if (dump.logits) {
    tensors.push_back({"logits", {input.B, input.T, runtime.model.config.V}, e.logits});
  }
  const float loss = float(e.loss);
  if (dump.loss) tensors.push_back({"loss", {1}, std::span(&loss, 1)});
  std::vector<NamedGradient> grads;
  if (dump.grads) grads = trace_gradients(runtime, options, input);
  for (const NamedGradient& g : grads) tensors.push_back({g.name, g.shape, g.values});
  write_trace(o.out, tensors,
              {{"backend", runtime.backend->name()},
               {"compute_dtype", std::string(dtype_name(runtime.compute))},
               {"activations", std::string(activations_name(runtime.activations))},
               {"weights", runtime.model.summary}});
  io.out << fmt::format("{}: {} tensors\n", o.out.string(), tensors.size());
  return ExitCode::ok;
}

}  // namespace

Command trace_command() {
  return make_command<TraceOptions>(
      "trace", "Write logits, loss and intermediates of a run, or compare two of them",
      "The output holds fp32 logits [B, T, V], loss [1] and, with acts, every named intermediate\n"
      "(acts.embed, acts.layers.0.attn_norm ... acts.final_norm), in the order of the run; with\n"
      "grads the gradient of the loss by every parameter (grad.model.norm.weight ...), straight\n"
      "through where weights are NVFP4. Here --activations auto means unquantised, whatever the\n"
      "weights are. An existing --out is replaced.\n\n"
      "nibble trace --compare A B prints, for each tensor, the relative L2 norm of the difference\n"
      "and more, names the first tensor of the run over the tolerance, and then exits with 1.",
      run_trace);
}

}  // namespace nibble
