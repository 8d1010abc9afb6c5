// SPDX-License-Identifier: MIT
#include "measure/bench_random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "core/half.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "model/params.h"
#include "quant/codec.h"
#include "quant/nvfp4.h"

namespace nibble {
namespace {

constexpr size_t kBlock = 16;          // bytes of one Philox call
constexpr size_t kPiece = 256 * 1024;  // bytes a thread makes at a time

enum class Content { codes, scales, bf16_values, f32_norms };

struct Entry {
  Content content;
  uint8_t scale = 0;  // the smaller of the two a block may have
};

struct Layout {
  std::vector<TensorInfo> infos;
  std::vector<Entry> entries;
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape, Entry entry) {
    TensorInfo t;
    t.name = name;
    t.dtype = dtype;
    t.shape = std::move(shape);
    t.n_bytes = uint64_t(t.numel()) * dtype_bytes(dtype);
    infos.push_back(std::move(t));
    entries.push_back(entry);
  }
};

Layout layout_of(const Config& config, TiedHead head) {
  // The root mean square of sixteen equally likely E2M1 values is 2.93: with this scale a row of
  // products has the size of its inputs.
  constexpr double kCodeRms = 2.926;
  Layout l;
  for (const ParamSpec& p : parameter_table(config)) {
    if (config.tied && p.slot == ParamSlot::head && head == TiedHead::left_out) continue;
    if (p.is_linear() && p.shape[1] % kNvfp4Block == 0) {
      const int64_t out = p.shape[0], in = p.shape[1];
      const auto scale = e4m3_encode(float(1 / (kCodeRms * std::sqrt(double(in)))));
      l.add(p.name + ".qdata", DType::u8, {out, in / 2}, {Content::codes});
      l.add(p.name + ".scale", DType::f8_e4m3, {out, in / kNvfp4Block},
            {Content::scales, std::max<uint8_t>(scale, 1)});
    } else if (p.is_matrix()) {
      l.add(p.name, DType::bf16, p.shape, {Content::bf16_values});
    } else {
      l.add(p.name, DType::f32, p.shape, {Content::f32_norms});
    }
  }
  return l;
}

// Sixteen bytes from four random words.
void make_block(const Entry& e, const std::array<uint32_t, 4>& random, std::byte* out) {
  std::memcpy(out, random.data(), kBlock);
  if (e.content == Content::codes) return;
  if (e.content == Content::scales) {
    for (size_t i = 0; i < kBlock; ++i) out[i] = std::byte(e.scale + (uint8_t(out[i]) & 1));
    return;
  }
  if (e.content == Content::f32_norms) {
    for (size_t i = 0; i < 4; ++i) {  // uniform in [0.75, 1.25): no two norms, or biases, alike
      const float v = 0.75f + float(random[i] >> 8) * 0x1p-25f;
      std::memcpy(out + 4 * i, &v, 4);
    }
    return;
  }
  for (size_t i = 0; i < kBlock; i += 2) {  // uniform in +-0.035: standard deviation 0.02
    int16_t x = 0;
    std::memcpy(&x, out + i, 2);
    const bf16_t v = to_bf16(float(x) * (0.035f / 32768));
    std::memcpy(out + i, &v, 2);
  }
}

class RandomSource final : public TensorSource {
 public:
  RandomSource(Layout layout, uint64_t seed, int threads)
      : TensorSource(Virtual{}, "random weights", std::move(layout.infos), {}),
        entries_(std::move(layout.entries)),
        seed_(seed),
        pool_(threads) {}

  void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> out) const override {
    const size_t index = size_t(&at(tensor.name) - tensors().data());
    const std::lock_guard lock(mutex_);  // the pool serves one caller at a time
    const auto pieces = int64_t((out.size() + kPiece - 1) / kPiece);
    pool_.parallel_for(pieces, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t p = first; p < last; ++p) {
        const size_t at = size_t(p) * kPiece;
        fill(index, begin + at, out.subspan(at, std::min(kPiece, out.size() - at)));
      }
    });
  }

 private:
  void fill(size_t index, uint64_t begin, std::span<std::byte> out) const {
    const Entry& e = entries_[index];
    std::byte block[kBlock];
    for (size_t done = 0; done < out.size();) {
      const uint64_t at = begin + done;
      const size_t skip = size_t(at % kBlock), n = std::min(kBlock - skip, out.size() - done);
      make_block(e, philox(seed_, index, at / kBlock), block);
      std::memcpy(out.data() + done, block + skip, n);
      done += n;
    }
  }

  std::vector<Entry> entries_;  // of tensors(), in order
  uint64_t seed_;
  mutable std::mutex mutex_;
  mutable ThreadPool pool_;
};

}  // namespace

std::unique_ptr<TensorSource> make_random_source(const Config& config, uint64_t seed, int threads,
                                                 TiedHead head) {
  return std::make_unique<RandomSource>(layout_of(config, head), seed, threads);
}

}  // namespace nibble
