// SPDX-License-Identifier: MIT
#include "train/inference_view.h"

namespace nibble {
namespace {

// Whether the state has the head's NVFP4 rows piece by piece only.
bool head_is_remade(const LinearWeight& head) { return !head.dense && !head.packed; }

}  // namespace

size_t InferenceView::bytes(const Backend& be, const Config& c, const TrainSettings& s) {
  if (s.memory != MemoryMode::remake || s.head() != Recipe::nvfp4) return 0;
  Arena measure("head");
  measure.take(DType::u8, {int64_t(be.packed_bytes(c.V, c.C))});
  return measure.peak();
}

InferenceView::InferenceView(TrainState& state) : state_(state) {
  Backend& be = state.backend();
  model_.config = state.config();
  model_.weights = state.tensors().forward;
  const MemoryMode mode = state.settings().memory;
  if (mode == MemoryMode::remake || mode == MemoryMode::gathered) {
    model_.weights_needed = [&state](int64_t layer) { state.need_weights(layer); };
  }
  LinearWeight& head = model_.weights.head;
  if (head_is_remade(head)) {
    const size_t n = bytes(be, state.config(), state.settings());
    model_.memory = Arena("head of the probes", be.allocate(n, "the head the probes are asked"));
    head.packed = model_.memory.take(DType::u8, {int64_t(be.packed_bytes(head.out, head.in))});
  }
  refresh();
}

void InferenceView::refresh() {
  state_.settle();
  if (!head_is_remade(state_.tensors().forward.head)) return;
  state_.backend().quantize_rows(model_.weights.head, 0, state_.tensors().master.head.dense,
                                 state_.settings().rule);
}

}  // namespace nibble
