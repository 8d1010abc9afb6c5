// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <optional>

#include "comm/nccl.h"
#include "comm/wait_limit.h"
#include "core/error.h"

namespace nibble {
namespace {

void require(ncclResult_t code, const char* what) {
  if (code != ncclSuccess && code != ncclInProgress) {
    throw_device("NCCL: {}: {}", what, ncclGetErrorString(code));
  }
}
void require(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw_device("CUDA: {}: {}", what, cudaGetErrorString(code));
}

ncclDataType_t type_of(DType t) { return t == DType::f64 ? ncclFloat64 : ncclFloat32; }

class NcclComm final : public Comm {
 public:
  NcclComm(Comm& host, cudaStream_t stream, double limit)
      : Comm(host.rank(), host.size()), host_(host), stream_(stream), limit_(limit) {
    ncclUniqueId id = {};
    if (host.rank() == 0) require(ncclGetUniqueId(&id), "making an id");
    std::vector<std::byte> bytes(sizeof id);
    std::memcpy(bytes.data(), &id, sizeof id);
    bytes = host.broadcast_bytes(std::move(bytes));
    std::memcpy(&id, bytes.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // so that a rank that never comes can be told
    require(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "joining the ranks");
    at("joining the ranks over NCCL");
    ready();
  }
  ~NcclComm() override {
    // Destroying waits for the others, which may be gone.
    if (comm_) ncclCommAbort(comm_);
  }
  std::string name() const override { return "NCCL " + nccl_library(); }
  std::string host(int rank) const override { return host_.host(rank); }

 private:
  // On a stream of its own; both live as long as the process does.
  std::unique_ptr<Comm> make_beside(size_t which) override {
    cudaStream_t other = nullptr;
    require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "another stream");
    return std::make_unique<NcclComm>(host_.beside(which), other, limit_);
  }
  // Until NCCL has taken the calls.
  void ready() {
    Patience patience(limit_);
    for (;;) {
      ncclResult_t state = ncclSuccess;
      require(ncclCommGetAsyncError(comm_, &state), "asking for its state");
      require(state, where().c_str());
      if (state == ncclSuccess) return;
      if (!patience.wait()) give_up(patience);
    }
  }
  // Until the stream has done them.
  void finish() {
    ready();
    Patience patience(limit_);
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) require(state, where().c_str());
      ncclResult_t nccl = ncclSuccess;
      require(ncclCommGetAsyncError(comm_, &nccl), "asking for its state");
      require(nccl, where().c_str());
      if (!patience.wait()) give_up(patience);
    }
  }
  // NCCL does not say who is missing.
  [[noreturn]] void give_up(const Patience& patience) {
    std::vector<int> others;
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) others.push_back(r);
    }
    throw_missing(*this, others, patience.seconds());
  }

  void do_exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    require(ncclGroupStart(), "a group");
    for (int r = 0; r < size(); ++r) {
      const ConstBytes t = to[size_t(r)];
      const Bytes f = from[size_t(r)];
      if (r == rank()) continue;
      if (!t.empty()) {
        require(ncclSend(t.data(), t.size(), ncclUint8, r, comm_, stream_), "sending");
      }
      if (!f.empty()) {
        require(ncclRecv(f.data(), f.size(), ncclUint8, r, comm_, stream_), "receiving");
      }
    }
    require(ncclGroupEnd(), "a group");
    finish();
  }
  void do_exchange_host(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    host_.at(where());
    std::optional<LongWait> unlimited;
    if (!limited()) unlimited.emplace(host_);
    host_.exchange(own_left_out(to), own_left_out(from));
  }
  // Parts of the own rank are no business of an exchange that is passed on.
  template <class T>
  std::vector<T> own_left_out(std::span<const T> parts) const {
    std::vector<T> others(parts.begin(), parts.end());
    others[size_t(rank())] = {};
    return others;
  }
  void do_copy(Bytes to, ConstBytes from) override {
    require(cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDeviceToDevice, stream_),
            "copying");
  }
  void do_broadcast(Tensor t, int root) override {
    if (rank() == root) count(t.bytes() * size_t(size() - 1));
    require(ncclBroadcast(t.data, t.data, t.bytes(), ncclUint8, root, comm_, stream_),
            "a broadcast");
    finish();
  }
  void do_all_reduce(Tensor t) override {
    count(t.bytes() * size_t(size() - 1));
    require(
        ncclAllReduce(t.data, t.data, size_t(t.numel()), type_of(t.dtype), ncclSum, comm_, stream_),
        "all_reduce");
    finish();
  }
  void do_reduce_scatter(Tensor mine, Tensor all) override {
    count(mine.bytes() * size_t(size() - 1));
    require(ncclReduceScatter(all.data, mine.data, size_t(mine.numel()), type_of(mine.dtype),
                              ncclSum, comm_, stream_),
            "reduce_scatter");
    finish();
  }

  Comm& host_;
  cudaStream_t stream_;
  double limit_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::string nccl_library() { return fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH); }

std::unique_ptr<Comm> make_nccl_comm(Comm& host, void* stream, double limit_seconds) {
  return std::make_unique<NcclComm>(host, static_cast<cudaStream_t>(stream), limit_seconds);
}

}  // namespace nibble
