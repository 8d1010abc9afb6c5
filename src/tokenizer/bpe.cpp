// SPDX-License-Identifier: MIT
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace nibble {
namespace {

// Up to here rescanning a small array for the best pair beats keeping a heap.
constexpr size_t kShort = 96;

}  // namespace

MergeTable::MergeTable(size_t expected) {
  const size_t slots = std::bit_ceil(std::max<size_t>(expected + expected / 2, 64));
  slots_.assign(slots, Merge{0, 0, kFree, 0});
  mask_ = slots - 1;
  const size_t bits = slots * 8;
  filter_.assign(bits / 64, 0);
  filter_shift_ = 64 - std::countr_zero(bits);
}

bool MergeTable::insert(const Merge& merge) {
  const uint64_t h = hash(merge.left, merge.right);
  size_t at = h & mask_;
  for (; slots_[at].rank != kFree; at = (at + 1) & mask_) {
    if (slots_[at].left == merge.left && slots_[at].right == merge.right) return false;
  }
  slots_[at] = merge;
  const uint64_t bit = h >> filter_shift_;
  filter_[bit >> 6] |= uint64_t(1) << (bit & 63);
  return true;
}

Bpe::Bpe(std::array<uint32_t, 256> byte_ids, const std::vector<Merge>& merges, MergeTable table,
         WholeWord whole_word, const Vocabulary& vocabulary,
         const std::vector<uint32_t>& never_whole)
    : byte_ids_(byte_ids), table_(std::move(table)), byte_pairs_(size_t(256) * 256) {
  std::vector<int16_t> byte_of(vocabulary.size(), int16_t(-1));
  for (uint32_t b = 0; b < 256; ++b) {
    if (byte_ids_[b] == kNoToken) {
      lacks_bytes_ = true;
    } else {
      byte_of[byte_ids_[b]] = int16_t(b);
    }
  }
  for (const Merge& m : merges) {
    const int left = byte_of[m.left], right = byte_of[m.right];
    if (left >= 0 && right >= 0) byte_pairs_[size_t(left * 256 + right)] = {m.rank, m.result};
  }
  proofs_ = std::make_unique<std::atomic<uint8_t>[]>(vocabulary.size());
  const uint8_t initial = whole_word == WholeWord::always ? whole : unknown;
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    proofs_[id].store(initial, std::memory_order_relaxed);
  }
  for (const uint32_t id : never_whole) proofs_[id].store(parts, std::memory_order_relaxed);
}

void Bpe::encode(std::string_view word, const Vocabulary& vocabulary,
                 std::vector<int32_t>& out) const {
  const auto lacking = [this](char c) { return byte_ids_[uint8_t(c)] == kNoToken; };
  if (!lacks_bytes_ || std::ranges::none_of(word, lacking)) {
    return encode_known(word, vocabulary, out);
  }
  std::string rest(word);
  std::erase_if(rest, lacking);
  if (!rest.empty()) encode_known(rest, vocabulary, out);
}

void Bpe::encode_known(std::string_view word, const Vocabulary& vocabulary,
                       std::vector<int32_t>& out) const {
  if (word.size() == 1) {
    out.push_back(int32_t(byte_ids_[uint8_t(word[0])]));
    return;
  }
  if (word.size() <= vocabulary.longest()) {
    if (const auto id = vocabulary.find_bytes(word)) {
      uint8_t proof = proofs_[*id].load(std::memory_order_relaxed);
      if (proof == unknown) {
        const size_t before = out.size();
        merge(word, out);
        proof = out.size() == before + 1 && out.back() == int32_t(*id) ? whole : parts;
        proofs_[*id].store(proof, std::memory_order_relaxed);
        return;
      }
      if (proof == whole) {
        out.push_back(int32_t(*id));
        return;
      }
    }
  }
  merge(word, out);
}

void Bpe::merge(std::string_view word, std::vector<int32_t>& out) const {
  if (word.size() <= kShort) {
    merge_short(word, out);
  } else {
    merge_long(word, out);
  }
}

void Bpe::merge_short(std::string_view word, std::vector<int32_t>& out) const {
  // best[i] is the pair (ids[i], ids[i + 1]) as rank << 32 | result; the last one never merges.
  uint32_t ids[kShort + 1];
  uint64_t best[kShort + 1];
  constexpr uint64_t kNever = UINT64_MAX;
  size_t n = word.size();
  for (size_t i = 0; i < n; ++i) ids[i] = byte_ids_[uint8_t(word[i])];
  const auto packed = [](Pair p) { return uint64_t(p.rank) << 32 | p.result; };
  for (size_t i = 0; i + 1 < n; ++i) {
    best[i] = packed(byte_pairs_[size_t(uint8_t(word[i])) * 256 + uint8_t(word[i + 1])]);
  }
  best[n - 1] = kNever;
  while (n > 1) {
    size_t at = 0;
    uint64_t lowest = best[0];
    for (size_t i = 1; i + 1 < n; ++i) {
      if (best[i] < lowest) {
        lowest = best[i];
        at = i;
      }
    }
    if (lowest >> 32 == UINT32_MAX) break;
    ids[at] = uint32_t(lowest);
    std::copy(ids + at + 2, ids + n, ids + at + 1);
    std::copy(best + at + 2, best + n, best + at + 1);
    --n;
    best[at] = at + 1 < n ? packed(pair(ids[at], ids[at + 1])) : kNever;
    if (at > 0) best[at - 1] = packed(pair(ids[at - 1], ids[at]));
  }
  for (size_t i = 0; i < n; ++i) out.push_back(int32_t(ids[i]));
}

void Bpe::merge_long(std::string_view word, std::vector<int32_t>& out) const {
  // A list of symbols (dead ones have rank UINT32_MAX and are stepped over) and a heap of
  // candidates; a candidate is stale when the pair at its place has another rank by now.
  struct Symbol {
    uint32_t id, previous, next;
    Pair with_next;
  };
  const uint32_t n = uint32_t(word.size());
  std::vector<Symbol> symbols(n);
  std::vector<uint64_t> first;
  for (uint32_t i = 0; i < n; ++i) {
    Pair p;
    if (i + 1 < n) p = byte_pairs_[size_t(uint8_t(word[i])) * 256 + uint8_t(word[i + 1])];
    symbols[i] = {byte_ids_[uint8_t(word[i])], i - 1, i + 1, p};
    if (p.rank != UINT32_MAX) first.push_back(uint64_t(p.rank) << 32 | i);
  }
  std::priority_queue heap(std::greater<uint64_t>(), std::move(first));
  while (!heap.empty()) {
    const uint32_t rank = uint32_t(heap.top() >> 32), at = uint32_t(heap.top());
    heap.pop();
    Symbol& s = symbols[at];
    if (s.with_next.rank != rank) continue;
    Symbol& gone = symbols[s.next];
    s.id = s.with_next.result;
    s.next = gone.next;
    gone.with_next = Pair{};
    const auto renew = [&](uint32_t left) {
      Symbol& l = symbols[left];
      l.with_next = l.next < n ? pair(l.id, symbols[l.next].id) : Pair{};
      if (l.with_next.rank != UINT32_MAX) heap.push(uint64_t(l.with_next.rank) << 32 | left);
    };
    if (s.next < n) symbols[s.next].previous = at;
    renew(at);
    if (at > 0) renew(s.previous);
  }
  for (uint32_t i = 0; i < n; i = symbols[i].next) out.push_back(int32_t(symbols[i].id));
}

}  // namespace nibble
