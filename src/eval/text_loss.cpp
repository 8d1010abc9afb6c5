// SPDX-License-Identifier: MIT
#include "eval/text_loss.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "core/progress.h"
#include "core/threads/share_out.h"
#include "eval/damage/text_compare.h"
#include "eval/damage/text_passes.h"
#include "formats/tensor_source.h"

namespace nibble {
namespace {

constexpr uint64_t kMaxText = uint64_t(1) << 30;

std::vector<TextWindows> windows_of_tensors(const std::filesystem::path& file) {
  const auto source = open_tensor_source(file);
  std::vector<TextWindows> out;
  for (const TensorInfo& t : source->tensors()) {
    if (t.dtype != DType::i64 || t.shape.size() != 2 || t.shape[1] < 2) continue;
    std::vector<int64_t> all(size_t(t.shape[0] * t.shape[1]));
    source->read(t, 0, std::as_writable_bytes(std::span(all)));
    TextWindows w{file.filename().string() + ":" + t.name, {}};
    for (int64_t b = 0; b < t.shape[0]; ++b) {
      const auto begin = all.begin() + std::ptrdiff_t(b * t.shape[1]);
      w.ids.emplace_back(begin, begin + std::ptrdiff_t(t.shape[1]));
    }
    if (!w.ids.empty()) out.push_back(std::move(w));
  }
  if (out.empty()) {
    throw_format("{}: no int64 tensor [windows, tokens] to measure the loss of", file.string());
  }
  return out;
}

}  // namespace

std::vector<TextWindows> read_text_windows(const std::filesystem::path& file,
                                           const Tokenizer* tokenizer, int64_t window,
                                           int64_t most) {
  if (file.extension() == ".safetensors") return windows_of_tensors(file);
  if (!tokenizer) {
    throw_usage("{}: a text needs a tokenizer; name one with --tokenizer", file.string());
  }
  const std::vector<int32_t> ids =
      tokenizer->encode(read_text_file(file, kMaxText), SpecialTokens::plain);
  TextWindows w{file.filename().string(), {}};
  for (size_t at = 0; at + 1 < ids.size(); at += size_t(window)) {
    if (most > 0 && int64_t(w.ids.size()) == most) break;
    const size_t n = std::min(size_t(window), ids.size() - at);
    // A shorter rest would weigh as much as a window in the standard error.
    if (n < size_t(window) && !w.ids.empty()) break;
    w.ids.emplace_back(ids.begin() + std::ptrdiff_t(at), ids.begin() + std::ptrdiff_t(at + n));
  }
  if (w.ids.empty()) {
    throw_format("{}: {} tokens; a loss needs two at least", file.string(), ids.size());
  }
  return {w};
}

TextLoss text_loss(TextReaders readers, const TextWindows& windows) {
  WindowSums sums(windows);
  Progress progress("loss of " + windows.name, windows.ids.size(), "windows");
  std::mutex one_draws;
  share_out(int64_t(windows.ids.size()), readers.size(), [&](size_t r, int64_t first, int64_t end) {
    TextPasses passes(readers[r], windows, first, end);
    for (int64_t told = 0; passes.next(); told = passes.done()) {
      passes.each_piece([&](int64_t begin, std::span<const PredictedToken> predicted) {
        const std::vector<RowFigures> rows = passes.figures(begin, predicted);
        for (size_t i = 0; i < predicted.size(); ++i) sums.add(predicted[i].window, rows[i].loss);
      });
      const std::lock_guard lock(one_draws);
      progress.advance(uint64_t(passes.done() - told));
    }
  });
  return sums.result();
}

}  // namespace nibble
