// SPDX-License-Identifier: MIT
// Online autotuning of cuBLASLt algorithms: calls of a shape take the candidates in turn, each
// timed by events, until every one has its samples. Nothing is computed twice and the host never
// waits. Candidates must give the same bits, so that the choice does not show.
//
// Why: cuBLASLt's first choice is up to 12 % slower than the best of its eight (9728 x 2560 weights
// with 4096 tokens on an H200; over all products of a layer 2-3 %), by no rule that could be found
// from the sizes of their tiles.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "backends/cuda/blas_lt.h"

namespace nibble::cuda {

class GemmAutotuner {
 public:
  using Algorithm = cublasLtMatmulAlgo_t;
  // The first candidate is the one to beat.
  explicit GemmAutotuner(std::vector<Algorithm> candidates) : candidates_(std::move(candidates)) {
    samples_.resize(candidates_.size() * kSamples);
  }
  ~GemmAutotuner() { reset(); }
  GemmAutotuner(const GemmAutotuner&) = delete;
  GemmAutotuner& operator=(const GemmAutotuner&) = delete;

  // One call: multiply(algorithm) enqueues it and returns a status. When all samples are in,
  // `chosen` becomes the best; a candidate that fails ends the tuning without a choice.
  template <class Multiply>
  auto run(cudaStream_t stream, Algorithm& chosen, Multiply&& multiply) {
    if (taken_ == samples_.size()) {
      if (!samples_.empty() && all_timed()) {
        chosen = candidates_[best()];
        reset();
      }
      return multiply(chosen);
    }
    Sample& s = samples_[taken_];
    for (cudaEvent_t* e : {&s.begin, &s.end}) {
      if (!*e) NIBBLE_CUDA(cudaEventCreate(e));
    }
    NIBBLE_CUDA(cudaEventRecord(s.begin, stream));
    const auto status = multiply(candidates_[taken_ % candidates_.size()]);
    if (status != CUBLAS_STATUS_SUCCESS) {
      reset();
      return multiply(chosen);
    }
    NIBBLE_CUDA(cudaEventRecord(s.end, stream));
    ++taken_;
    return status;
  }

 private:
  static constexpr size_t kSamples = 3;       // of each, the one in the middle counts
  static constexpr float kLeastGain = 0.01f;  // noise is no reason
  struct Sample {
    cudaEvent_t begin = nullptr, end = nullptr;
  };

  bool all_timed() const {
    const cudaError_t error = cudaEventQuery(samples_.back().end);
    if (error != cudaErrorNotReady) {
      NIBBLE_CUDA(error);
      return true;
    }
    cudaGetLastError();  // it is not one
    return false;
  }
  float time_of(size_t candidate) const {
    std::array<float, kSamples> ms;
    for (size_t i = 0; i < kSamples; ++i) {
      const Sample& s = samples_[i * candidates_.size() + candidate];
      NIBBLE_CUDA(cudaEventElapsedTime(&ms[i], s.begin, s.end));
    }
    std::sort(ms.begin(), ms.end());
    return ms[kSamples / 2];
  }
  size_t best() const {
    size_t best = 0;
    float least = time_of(0) * (1 - kLeastGain);
    for (size_t i = 1; i < candidates_.size(); ++i) {
      const float ms = time_of(i);
      if (ms < least) least = ms, best = i;
    }
    return best;
  }
  void reset() {
    for (Sample& s : samples_) {
      if (s.begin) cudaEventDestroy(s.begin);
      if (s.end) cudaEventDestroy(s.end);
    }
    samples_.clear();
    taken_ = 0;
  }

  std::vector<Algorithm> candidates_;
  std::vector<Sample> samples_;  // round after round of all candidates; empty: decided
  size_t taken_ = 0;
};

}  // namespace nibble::cuda
