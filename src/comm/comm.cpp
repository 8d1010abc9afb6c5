// SPDX-License-Identifier: MIT
#include "comm/comm.h"

#include <unistd.h>

#include <cstring>

#include "core/error.h"
#include "core/half.h"

namespace nibble {
namespace {

ConstBytes bytes_of(const Tensor& t) { return {t.data, t.bytes()}; }
Bytes writable(const Tensor& t) { return {t.data, t.bytes()}; }

void require_contiguous(const char* op, const Tensor& t) {
  if (!t.contiguous()) throw_internal("{} of a strided tensor {}", op, t.describe());
}

void require_floats(const char* op, const Tensor& t) {
  require_contiguous(op, t);
  if (t.dtype != DType::f32 && t.dtype != DType::f64) {
    throw_internal("{} of {}: only f32 and f64 can be summed", op, t.describe());
  }
}

class Alone final : public Comm {
 public:
  Alone() : Comm(0, 1) {}
  std::string name() const override { return "alone"; }
  std::string host(int) const override {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "this machine";
  }

 private:
  std::unique_ptr<Comm> make_beside(size_t) override { return make_alone(); }
  void do_exchange(std::span<const ConstBytes>, std::span<const Bytes>) override {}
};

}  // namespace

void add_in_order(Tensor sum, Tensor x) {
  require_floats("a sum", sum);
  const int64_t n = sum.numel();
  if (x.numel() != n) throw_internal("a sum of {} and {}", sum.describe(), x.describe());
  if (sum.dtype == DType::f64) {
    double* const s = sum.as<double>();
    const double* const y = x.as<double>();
    for (int64_t i = 0; i < n; ++i) s[i] += y[i];
  } else if (x.dtype == DType::bf16) {
    float* const s = sum.as<float>();
    const bf16_t* const y = x.as<bf16_t>();
    for (int64_t i = 0; i < n; ++i) s[i] += to_float(y[i]);
  } else {
    float* const s = sum.as<float>();
    const float* const y = x.as<float>();
    for (int64_t i = 0; i < n; ++i) s[i] += y[i];
  }
}

Comm& Comm::beside(size_t which) {
  if (beside_.size() <= which) beside_.resize(which + 1);
  if (!beside_[which]) beside_[which] = make_beside(which);
  return *beside_[which];
}

void Comm::exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) {
  begin_exchange(to, from)->end();
}

std::unique_ptr<Comm::UnderWay> Comm::begin_exchange(std::span<const ConstBytes> to,
                                                     std::span<const Bytes> from) {
  if (to.size() != size_t(size_) || from.size() != size_t(size_)) {
    throw_internal("an exchange of {} and {} parts between {} ranks", to.size(), from.size(),
                   size_);
  }
  const size_t me = size_t(rank_);
  if (to[me].size() != from[me].size()) {
    throw_internal("an exchange of {} bytes with itself, {} expected", to[me].size(),
                   from[me].size());
  }
  if (!to[me].empty() && to[me].data() != from[me].data()) do_copy(from[me], to[me]);
  for (size_t r = 0; r < to.size(); ++r) count(r == me ? 0 : to[r].size());
  return size_ > 1 ? do_begin_exchange(to, from) : std::make_unique<UnderWay>();
}

std::unique_ptr<Comm::UnderWay> Comm::do_begin_exchange(std::span<const ConstBytes> to,
                                                        std::span<const Bytes> from) {
  do_exchange(to, from);
  return std::make_unique<UnderWay>();
}

void Comm::exchange_host(std::span<const ConstBytes> to, std::span<const Bytes> from) {
  for (size_t r = 0; r < to.size(); ++r) count(r == size_t(rank_) ? 0 : to[r].size());
  if (size_ > 1) do_exchange_host(to, from);
}

void Comm::barrier() {
  std::vector<std::byte> said(size_t(size_), std::byte(1)), heard(said);
  std::vector<ConstBytes> to;
  std::vector<Bytes> from;
  for (size_t r = 0; r < said.size(); ++r) {
    to.emplace_back(&said[r], 1);
    from.emplace_back(&heard[r], 1);
  }
  exchange_host(to, from);
}

void Comm::broadcast(Tensor t, int root) {
  require_contiguous("a broadcast", t);
  if (root < 0 || root >= size_) throw_internal("a broadcast of rank {} of {}", root, size_);
  if (size_ > 1) do_broadcast(t, root);
}

void Comm::all_gather(std::span<const Tensor> parts) {
  if (parts.size() != size_t(size_)) {
    throw_internal("{} parts gathered from {} ranks", parts.size(), size_);
  }
  for (const Tensor& t : parts) require_contiguous("a gathering", t);
  if (size_ > 1) do_all_gather(parts);
}

void Comm::all_reduce(Tensor t) {
  require_floats("all_reduce", t);
  if (size_ > 1) do_all_reduce(t);
}

void Comm::reduce_scatter(Tensor mine, Tensor all) {
  require_floats("reduce_scatter", mine);
  require_floats("reduce_scatter", all);
  if (mine.dtype != all.dtype || all.numel() != mine.numel() * size_) {
    throw_internal("reduce_scatter of {} to {} on {} ranks", all.describe(), mine.describe(),
                   size_);
  }
  if (size_ == 1) return do_copy(writable(mine), bytes_of(all));
  do_reduce_scatter(mine, all);
}

void Comm::do_copy(Bytes to, ConstBytes from) { std::memcpy(to.data(), from.data(), to.size()); }

void Comm::do_broadcast(Tensor t, int root) {
  std::vector<ConstBytes> to(static_cast<size_t>(size_));
  std::vector<Bytes> from(static_cast<size_t>(size_));
  if (rank_ == root) {
    for (int r = 0; r < size_; ++r) {
      if (r != root) to[size_t(r)] = bytes_of(t);
    }
  } else {
    from[size_t(root)] = writable(t);
  }
  exchange(to, from);
}

void Comm::do_all_gather(std::span<const Tensor> parts) {
  const Tensor& mine = parts[size_t(rank_)];
  std::vector<ConstBytes> to(parts.size(), bytes_of(mine));
  std::vector<Bytes> from;
  for (const Tensor& t : parts) from.push_back(writable(t));
  exchange(to, from);
}

void Comm::do_reduce_scatter(Tensor mine, Tensor all) {
  const size_t n = mine.bytes();
  std::vector<std::byte> heard(n * size_t(size_));
  std::vector<ConstBytes> to;
  std::vector<Bytes> from;
  for (size_t r = 0; r < size_t(size_); ++r) {
    to.emplace_back(all.data + r * n, n);
    from.emplace_back(heard.data() + r * n, n);
  }
  exchange(to, from);
  std::memcpy(mine.data, heard.data(), n);
  for (size_t r = 1; r < size_t(size_); ++r) {
    add_in_order(mine.view({mine.numel()}),
                 make_tensor(heard.data() + r * n, mine.dtype, {mine.numel()}));
  }
}

// Few numbers: everybody adds them all.
void Comm::do_all_reduce(Tensor t) {
  const size_t n = t.bytes();
  std::vector<std::byte> heard(n * size_t(size_));
  std::vector<ConstBytes> to(size_t(size_), bytes_of(t));
  std::vector<Bytes> from;
  for (size_t r = 0; r < size_t(size_); ++r) from.emplace_back(heard.data() + r * n, n);
  exchange(to, from);
  std::memcpy(t.data, heard.data(), n);
  for (size_t r = 1; r < size_t(size_); ++r) {
    add_in_order(t.view({t.numel()}), make_tensor(heard.data() + r * n, t.dtype, {t.numel()}));
  }
}

std::vector<std::byte> Comm::broadcast_bytes(std::vector<std::byte> bytes, int root) {
  const auto send = [&](Bytes all) {
    std::vector<ConstBytes> to(static_cast<size_t>(size_));
    std::vector<Bytes> from(static_cast<size_t>(size_));
    for (int r = 0; r < size_ && rank_ == root; ++r) {
      if (r != root) to[size_t(r)] = all;
    }
    if (rank_ != root) from[size_t(root)] = all;
    exchange_host(to, from);
  };
  uint64_t n = bytes.size();
  send(std::as_writable_bytes(std::span(&n, 1)));
  bytes.resize(n);
  if (n > 0) send(bytes);
  return bytes;
}

std::string Comm::broadcast_text(std::string text, int root) {
  const ConstBytes bytes = std::as_bytes(std::span(text));
  const std::vector<std::byte> heard =
      broadcast_bytes(std::vector<std::byte>(bytes.begin(), bytes.end()), root);
  return {reinterpret_cast<const char*>(heard.data()), heard.size()};
}

std::vector<std::string> Comm::gather_texts(const std::string& mine) {
  std::vector<std::string> all;
  for (int r = 0; r < size_; ++r) all.push_back(broadcast_text(mine, r));
  return all;
}

std::unique_ptr<Comm> make_alone() { return std::make_unique<Alone>(); }

}  // namespace nibble
