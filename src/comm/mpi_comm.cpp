// SPDX-License-Identifier: MIT
#include <mpi.h>

#include <algorithm>

#include "comm/mpi.h"
#include "comm/wait_limit.h"
#include "core/error.h"

namespace nibble {
namespace {

constexpr int kTag = 1;
// What Open MPI sends over TCP without asking first is 64 KiB, less its own head. A longer message
// is announced, and asked for; the request waits behind whatever is on its way in its direction, so
// that messages both ways pass in turns, at half the speed of the wire (docs/scale.md).
constexpr size_t kMessage = size_t(60) << 10;

void require(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int n = 0;
  MPI_Error_string(code, text, &n);
  throw_device("MPI: {}: {}", what, text);
}

int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int size_of_world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// What is under way, and with whom.
class Requests {
 public:
  explicit Requests(MPI_Comm comm) : comm_(comm) {}
  ~Requests() {
    for (MPI_Request& r : requests_) {
      if (r != MPI_REQUEST_NULL) MPI_Cancel(&r), MPI_Request_free(&r);
    }
  }
  void receive(Bytes bytes, int from) {
    for (size_t at = 0; at < bytes.size(); at += kMessage) {
      const int n = int(std::min(kMessage, bytes.size() - at));
      require(MPI_Irecv(bytes.data() + at, n, MPI_BYTE, from, kTag, comm_, next(from)),
              "receiving");
    }
  }
  void send(ConstBytes bytes, int to) {
    for (size_t at = 0; at < bytes.size(); at += kMessage) {
      const int n = int(std::min(kMessage, bytes.size() - at));
      require(MPI_Isend(bytes.data() + at, n, MPI_BYTE, to, kTag, comm_, next(to)), "sending");
    }
  }
  bool done() {
    int all = 0;
    require(MPI_Testall(int(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE),
            "waiting");
    return all != 0;
  }
  // Whom it waits for.
  std::vector<int> missing() {
    std::vector<int> ranks;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int finished = 0;
      if (requests_[i] != MPI_REQUEST_NULL) {
        MPI_Request_get_status(requests_[i], &finished, MPI_STATUS_IGNORE);
      }
      if (!finished && requests_[i] != MPI_REQUEST_NULL) ranks.push_back(with_[i]);
    }
    std::ranges::sort(ranks);
    ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
    return ranks;
  }

 private:
  MPI_Request* next(int rank) {
    with_.push_back(rank);
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }
  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> with_;
};

class MpiComm final : public Comm {
 public:
  MpiComm(double limit, MPI_Comm comm)
      : Comm(rank_of_world(), size_of_world()), comm_(comm), limit_(limit) {
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int n = 0;
    MPI_Get_processor_name(name, &n);
    hosts_.assign(size_t(size()), "?");  // should one not come before it has said where it is
    at("joining the ranks");
    hosts_ = gather_texts(std::string(name, size_t(n)));
  }
  std::string name() const override { return "MPI (" + mpi_library() + ")"; }
  std::string host(int rank) const override { return hosts_[size_t(rank)]; }

 private:
  std::unique_ptr<Comm> make_beside(size_t) override {
    MPI_Comm other = MPI_COMM_NULL;  // as long as the process: freeing it would wait for others
    require(MPI_Comm_dup(comm_, &other), "another way to the ranks");
    MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
    return std::make_unique<MpiComm>(limit_, other);
  }
  // In MPI's order: what was sent first between two ranks is received first.
  class Messages final : public UnderWay {
   public:
    explicit Messages(MpiComm& comm) : comm_(comm), requests_(comm.comm_) {}
    Requests& requests() { return requests_; }
    void end() override {
      Patience patience(comm_.limit_);
      while (!requests_.done()) {
        if (!patience.wait() && comm_.limited())
          throw_missing(comm_, requests_.missing(), patience.seconds());
      }
    }

   private:
    MpiComm& comm_;
    Requests requests_;
  };
  void do_exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    do_begin_exchange(to, from)->end();
  }
  std::unique_ptr<UnderWay> do_begin_exchange(std::span<const ConstBytes> to,
                                              std::span<const Bytes> from) override {
    auto under_way = std::make_unique<Messages>(*this);
    // The neighbour first: not everybody begins with rank 0.
    for (int k = 1; k < size(); ++k) {
      const int r = (rank() + size() - k) % size();
      under_way->requests().receive(from[size_t(r)], r);
    }
    for (int k = 1; k < size(); ++k) {
      const int r = (rank() + k) % size();
      under_way->requests().send(to[size_t(r)], r);
    }
    return under_way;
  }

  MPI_Comm comm_;
  double limit_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int n = 0;
  MPI_Get_library_version(text, &n);  // "Open MPI v4.1.4, package: ..."
  std::string name(text, size_t(n));
  name = name.substr(0, name.find_first_of(",\n"));
  if (const size_t v = name.find(" v"); v != std::string::npos) name.erase(v + 1, 1);
  return name;
}

std::unique_ptr<Comm> make_mpi_comm(double limit_seconds) {
  int there = 0;
  MPI_Initialized(&there);
  if (there) throw_internal("the ranks are joined twice");
  int level = 0;
  // One thread talks while another computes and talks, too.
  require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "starting");
  if (level < MPI_THREAD_MULTIPLE) {
    throw_device(
        "{} was built for one thread a process; nibble needs an MPI that lets several talk",
        mpi_library());
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return std::make_unique<MpiComm>(limit_seconds, MPI_COMM_WORLD);
}

void leave_mpi(bool in_order, int exit_code) {
  int there = 0, gone = 0;
  MPI_Initialized(&there);
  MPI_Finalized(&gone);
  if (!there || gone) return;
  if (in_order) {
    MPI_Finalize();
  } else {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
}

}  // namespace nibble
