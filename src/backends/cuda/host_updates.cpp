// SPDX-License-Identifier: MIT
#include "backends/cuda/host_updates.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/kernels/optimizer/adamw.h"

namespace nibble::cuda {
namespace {

cudaStream_t make_stream() {
  cudaStream_t s = nullptr;
  NIBBLE_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}
cudaEvent_t make_event() {
  cudaEvent_t e = nullptr;
  NIBBLE_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  return e;
}

// Launches go to another stream for a while, also when one of them fails.
class OnStream {
 public:
  OnStream(Context& c, cudaStream_t stream) : c_(c), main_(std::exchange(c.stream, stream)) {}
  ~OnStream() { c_.stream = main_; }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Context& c_;
  cudaStream_t main_;
};

constexpr size_t aligned_to_256(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Bytes of the codes of `n` elements from the start of a block on.
size_t code_bytes(MomentFormat format, int64_t n) {
  const size_t padded = size_t((n + kMomentBlock - 1) / kMomentBlock * kMomentBlock);
  switch (format) {
    case MomentFormat::f32: return size_t(n) * 4;
    case MomentFormat::bf16: return size_t(n) * 2;
    case MomentFormat::int8:
    case MomentFormat::int8_linear: return padded;
    case MomentFormat::nvfp4: break;
  }
  return padded / 2;
}

}  // namespace

// One run of bytes of a piece: where it is in host memory, and in its window.
struct HostUpdates::Piece {
  struct Part {
    std::byte *host, *device;
    size_t bytes;
  };
  std::array<Part, 7> parts;
  size_t count = 0, used = 0;
  std::byte* memory;

  // Returns where the part is on the device.
  std::byte* add(void* host, size_t bytes) {
    std::byte* device = memory + used;
    parts[count++] = {static_cast<std::byte*>(host), device, bytes};
    used += aligned_to_256(bytes);
    return device;
  }
};

HostUpdates::HostUpdates(Context& c) : c_(c) {
  memory_ = c.memory->allocate_device(kWindows * kWindowBytes, "pieces of masters and moments");
  in_ = make_stream(), update_ = make_stream(), out_ = make_stream();
  gradient_ready_ = make_event();
  for (size_t i = 0; i < kWindows; ++i) {
    windows_[i] = {memory_.data() + i * kWindowBytes, make_event(), make_event(), make_event()};
  }
  for (cudaEvent_t& e : marks_) e = make_event();
}

HostUpdates::~HostUpdates() {
  cudaStreamSynchronize(out_);
  for (const cudaStream_t s : {in_, update_, out_}) cudaStreamDestroy(s);
  for (const Window& w : windows_) {
    for (const cudaEvent_t e : {w.loaded, w.updated, w.stored}) cudaEventDestroy(e);
  }
  for (const cudaEvent_t e : marks_) cudaEventDestroy(e);
  cudaEventDestroy(gradient_ready_);
}

void HostUpdates::copy(const Piece& piece, Way way, cudaStream_t stream) {
  for (size_t i = 0; i < piece.count; ++i) {
    const Piece::Part& p = piece.parts[i];
    if (way == Way::to_device) {
      NIBBLE_CUDA(cudaMemcpyAsync(p.device, p.host, p.bytes, cudaMemcpyHostToDevice, stream));
    } else {
      NIBBLE_CUDA(cudaMemcpyAsync(p.host, p.device, p.bytes, cudaMemcpyDeviceToHost, stream));
    }
  }
}

void HostUpdates::step(const AdamwUpdate& u) {
  // What is copied was written by the step before, which the main stream has waited for.
  NIBBLE_CUDA(cudaEventRecord(gradient_ready_, c_.stream));
  NIBBLE_CUDA(cudaStreamWaitEvent(in_, gradient_ready_));
  const MomentFormat format = u.format;
  const int64_t n = u.master.numel(), end = u.begin + u.count;
  const size_t element = dtype_bytes(u.master.dtype);
  // Of one block, with room for the alignment of every part.
  const size_t block_bytes =
      kMomentBlock * element + 2 * (code_bytes(format, kMomentBlock) + 16 + 4);
  // A multiple of eight: then scales of blocks keep their alignment (adamw_fast.cu).
  const int64_t blocks_at_once = int64_t((kWindowBytes - 7 * 256) / block_bytes) / 8 * 8;
  for (int64_t at = u.begin; at < end; at += blocks_at_once * kMomentBlock) {
    const int64_t elements = std::min(blocks_at_once * kMomentBlock, end - at);
    const int64_t block = at / kMomentBlock, blocks = (elements + kMomentBlock - 1) / kMomentBlock;
    Window& w = windows_[pieces_++ % kWindows];
    Piece piece{{}, 0, 0, w.memory};
    std::byte* const weights = piece.add(
        static_cast<std::byte*>(u.master.data) + size_t(at) * element, size_t(elements) * element);
    const auto moment = [&](void* memory) {
      MomentView view(format, memory, n);
      const size_t skip = code_bytes(format, at);
      view.codes =
          reinterpret_cast<uint8_t*>(piece.add(view.codes + skip, code_bytes(format, elements))) -
          skip;
      if (view.small_scales) {
        const size_t of_block = kMomentBlock / 16;
        view.small_scales =
            reinterpret_cast<uint8_t*>(piece.add(view.small_scales + size_t(block) * of_block,
                                                 size_t(blocks) * of_block)) -
            size_t(block) * of_block;
      }
      if (view.scales) {
        view.scales =
            reinterpret_cast<float*>(piece.add(view.scales + block, size_t(blocks) * 4)) - block;
      }
      return view;
    };
    const MomentView first = moment(u.m.data), second = moment(u.v.data);
    // As if they lay at their places in the whole.
    const AdamwPlaces places{weights - size_t(at) * element, first, second};

    NIBBLE_CUDA(cudaStreamWaitEvent(in_, w.stored));  // at first: at once
    copy(piece, Way::to_device, in_);
    NIBBLE_CUDA(cudaEventRecord(w.loaded, in_));
    NIBBLE_CUDA(cudaStreamWaitEvent(update_, w.loaded));
    {
      const OnStream aside(c_, update_);
      AdamwUpdate part = u;
      part.begin = at, part.count = elements;
      adamw_at(c_, places, part);
    }
    NIBBLE_CUDA(cudaEventRecord(w.updated, update_));
    NIBBLE_CUDA(cudaStreamWaitEvent(out_, w.updated));
    copy(piece, Way::to_host, out_);
    NIBBLE_CUDA(cudaEventRecord(w.stored, out_));
  }
}

uint64_t HostUpdates::mark() {
  NIBBLE_CUDA(cudaEventRecord(marks_[++issued_ % kMarks], out_));
  return issued_;
}

void HostUpdates::await(uint64_t mark) {
  if (mark == 0) return;
  NIBBLE_CUDA(cudaStreamWaitEvent(c_.stream, marks_[mark % kMarks]));
}

}  // namespace nibble::cuda
