// SPDX-License-Identifier: MIT
// One small kernel instead of a download and an upload: it changes the tables where they are and
// writes the chosen token to host memory itself. So it can be the last of a recorded step, and
// between two tokens of one sequence the device waits for its own launches alone.
#include "backends/cuda/step_hand_over.h"

#include "backend/sampling.h"
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

struct Tables {
  int32_t *ids, *positions, *slots, *sequence;
  SampleRow* row;
  const int32_t* chosen;
  int32_t* host;
};

__global__ void advance_kernel(Tables t) {
  pdl_enter();
  if (threadIdx.x > 0) return;
  const int32_t id = *t.chosen, position = *t.positions;
  t.host[position % 2] = id;
  *t.ids = max(id, 0);
  *t.positions = position + 1;
  *t.slots += 1;
  t.sequence[3] += 1;  // its length
  t.row->draw += 1;
}

}  // namespace

StepHandOver::StepHandOver(const Context& c) : c_(c) {
  static_assert(kPlaces == 2);
  host_ = c.memory->allocate_pinned(kPlaces * sizeof(int32_t), "chosen tokens");
  NIBBLE_CUDA(cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming));
}

StepHandOver::~StepHandOver() {
  cudaStreamSynchronize(c_.stream);  // a step that nobody waited for may still write to the host
  cudaEventDestroy(mark_);
}

void StepHandOver::advance(const StepTables& t) const {
  const Tables tables = {ptr<int32_t>(t.ids),
                         ptr<int32_t>(t.positions),
                         ptr<int32_t>(t.slots),
                         ptr<int32_t>(t.sequences),
                         ptr<SampleRow>(t.rows),
                         ptr<const int32_t>(t.chosen),
                         reinterpret_cast<int32_t*>(host_.data())};
  launch(c_, {dim3(1), dim3(32)}, advance_kernel, tables);
}

void StepHandOver::mark() const { NIBBLE_CUDA(cudaEventRecord(mark_, c_.stream)); }

int32_t StepHandOver::chosen_at(int64_t position) const {
  NIBBLE_CUDA(cudaEventSynchronize(mark_));
  return reinterpret_cast<const volatile int32_t*>(host_.data())[position % 2];
}

}  // namespace nibble::cuda
