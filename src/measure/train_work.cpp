// SPDX-License-Identifier: MIT
#include "measure/train_work.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "optim/adamw.h"

namespace nibble {
namespace {

// Queries times keys and weights times values, each half masked: 2 D operations a pair of tokens
// and head in all.
double attention_flops(const Config& c, const PackedBatch& b) {
  double pairs = 0;
  for (const Sequence& s : b.sequences) pairs += double(s.q_len) * double(s.q_len);
  return 2 * pairs * double(c.Hq * c.D * c.L);
}

// Gradient, master, moments and the NVFP4 copy, and the gradient once more for its norm.
double optimizer_bytes(const TrainState& state) {
  const ParamGroups& g = state.groups();
  const TrainSettings& s = state.settings();
  double bytes = 0;
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (!g.trained[i]) continue;
    const double n = double(g.table[i].numel());
    const Moments& m = state.tensors().moments[i];
    bytes += n * (2 * double(dtype_bytes(s.grad)) + 2 * double(dtype_bytes(s.master)));
    bytes += 4 * double(moment_bytes(m.format, g.table[i].numel()));
    // The embedding of a tied model is the head's NVFP4, too.
    const bool packed =
        state.has_packed(g.table[i]) ||
        (g.table[i].slot == ParamSlot::embed && state.config().tied && s.head() == Recipe::nvfp4);
    if (packed) bytes += n * 0.5625;
  }
  return bytes;
}

// Weights that products read, and gradients that they write: of the layers, or of the head.
struct WeightBytes {
  double weights = 0, gradients = 0;
};
WeightBytes weight_bytes(const TrainState& state, bool of_head) {
  const ParamGroups& g = state.groups();
  const TrainSettings& s = state.settings();
  WeightBytes sum;
  for (size_t i = 0; i < g.table.size(); ++i) {
    const ParamSpec& p = g.table[i];
    const bool head =
        p.slot == ParamSlot::head || (p.slot == ParamSlot::embed && state.config().tied);
    if (head != of_head || !(head || p.is_linear())) continue;
    const double n = double(p.numel());
    const bool packed = head ? s.head() == Recipe::nvfp4 : state.has_packed(p);
    sum.weights += n * (packed ? 0.5625 : double(dtype_bytes(s.compute)));
    if (g.trained[i]) sum.gradients += n * double(dtype_bytes(s.grad));
  }
  return sum;
}

}  // namespace

std::vector<PartWork> work_of_step(const TrainState& state, const PackedBatch& b) {
  const Config& c = state.config();
  const TrainSettings& s = state.settings();
  const double tokens = double(b.tokens()), attention = attention_flops(c, b);
  const auto weights_of = [&](ParamSlot slot) {
    const std::vector<int64_t> shape = slot_shape(c, slot);
    return double(c.L * shape[0] * shape[1]);
  };
  double layers = 0;
  for (const auto& m : BlockWeights::linears()) layers += weights_of(m.slot);
  const WeightBytes of_layers = weight_bytes(state, false), of_head = weight_bytes(state, true);
  PartWork forward{"forward", 2 * tokens * layers + attention, of_layers.weights};
  // Logits, and their gradient times the head and times its input.
  PartWork head{"head", 6 * double(b.outputs()) * double(c.V * c.C),
                2 * of_head.weights + of_head.gradients};
  PartWork backward{"backward", 4 * tokens * layers + 2.5 * attention,
                    of_layers.weights + of_layers.gradients};
  // What is computed again reads its weights again.
  const auto again = [&](double params) {
    backward.flops += 2 * tokens * params;
    backward.bytes += of_layers.weights * params / layers;
  };
  if (s.recompute == Recompute::mlp) again(weights_of(ParamSlot::gate_up));
  if (s.recompute == Recompute::block)
    again(layers - weights_of(ParamSlot::down)), backward.flops += attention;
  PartWork optimizer{"optimizer", 0, 0, optimizer_bytes(state)};
  if (s.memory == MemoryMode::resident) return {forward, head, backward, optimizer};
  return {forward,
          head,
          {"backward, optimizer", backward.flops, backward.bytes, optimizer.update_bytes}};
}

double total_flops(const std::vector<PartWork>& parts) {
  double sum = 0;
  for (const PartWork& p : parts) sum += p.flops;
  return sum;
}

void print_parts(Trainer& trainer, const PackedBatch& batch, int64_t steps,
                 const Ceilings& ceilings, std::ostream& out) {
  using Clock = std::chrono::steady_clock;
  std::map<std::string, std::vector<double>> times;
  Clock::time_point last;
  const auto reached = [&](const char* name) {
    trainer.state().backend().sync();
    const auto now = Clock::now();
    times[name].push_back(std::chrono::duration<double, std::milli>(now - last).count());
    last = now;
  };
  trainer.phase = trainer.part = reached;
  for (int64_t i = 0; i < steps; ++i) {
    trainer.state().backend().sync();
    last = Clock::now();
    trainer.step(std::span(&batch, 1));
  }
  trainer.phase = trainer.part = {};
  const auto median = [&](const char* name) {
    std::vector<double>& t = times[name];
    std::ranges::sort(t);
    return t.empty() ? 0.0 : t[t.size() / 2];
  };
  const char* const ends[] = {"forward_done", "head_done", "backward_done", "optimizer_step_done"};
  const std::vector<PartWork> parts = work_of_step(trainer.state(), batch);
  out << fmt::format("{:<22}{:>10}{:>12}{:>12}{:>10}{:>8}\n", "part", "ms", "TFLOP", "GB",
                     "at least", "share");
  for (size_t i = 0; i < parts.size(); ++i) {
    const double ms = median(ends[i]), least = parts[i].ideal_ms(ceilings);
    out << fmt::format("{:<22}{:>10.2f}{:>12.3f}{:>12.2f}{:>10.2f}{:>7.0f}%\n", parts[i].name, ms,
                       parts[i].flops * 1e-12, (parts[i].bytes + parts[i].update_bytes) * 1e-9,
                       least, 100 * least / ms);
  }
  out << fmt::format("ceilings: {}, both measured now\n", ceilings.description);
}

}  // namespace nibble
