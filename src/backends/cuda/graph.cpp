// SPDX-License-Identifier: MIT
#include "backends/cuda/graph.h"

namespace nibble::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  ~GraphRecording() override {
    if (executable_) cudaGraphExecDestroy(executable_);
  }

  bool ready() const { return executable_ != nullptr; }

  void record(Context& c, const std::function<void()>& ops) {
    cudaGraph_t graph = nullptr;
    NIBBLE_CUDA(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal));
    c.capturing = true;
    try {
      ops();
    } catch (...) {
      c.capturing = false;
      cudaStreamEndCapture(c.stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    c.capturing = false;
    NIBBLE_CUDA(cudaStreamEndCapture(c.stream, &graph));
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate", __FILE__, __LINE__);
  }

  void replay(const Context& c) const { NIBBLE_CUDA(cudaGraphLaunch(executable_, c.stream)); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

void repeat(Context& c, std::unique_ptr<Recording>& recording, const std::function<void()>& ops) {
  auto* graph = static_cast<GraphRecording*>(recording.get());
  if (c.sync_each_op || c.capturing) {  // faults are looked for, or a sequence inside another
    ops();
    return;
  }
  if (!graph) {
    ops();
    recording = std::make_unique<GraphRecording>();
    return;
  }
  if (!graph->ready()) graph->record(c, ops);
  graph->replay(c);
}

}  // namespace nibble::cuda
