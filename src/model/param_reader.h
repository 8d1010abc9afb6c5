// SPDX-License-Identifier: MIT
// Parameters of a weight file into their places in backend memory, a few rows at a time: while the
// backend takes one piece, the next are read from the file, expanded and quantised, on as many
// threads as there are cores, four at most. Beside the weights only these pieces exist in host
// memory, some 20 MiB each.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "formats/weights.h"
#include "model/config.h"
#include "model/params.h"
#include "quant/nvfp4.h"

namespace nibble {

// The logical tensor a parameter is read from: itself, or the embedding for a tied head that the
// file does not store. Null when there is none.
const LogicalTensor* source_of(const WeightIndex& index, const Config& config,
                               const ParamSpec& param);

// Throws a FormatError that lists every missing, mis-shaped or unusable tensor: a list helps more
// than the first of many.
void require_parameters(const WeightIndex& index, const Config& config,
                        std::span<const ParamSpec> table);
// The same, and warns of tensors the model does not have.
void check_parameters(const WeightIndex& index, const Config& config,
                      std::span<const ParamSpec> table);

// Weights that are NaN or infinite: a FormatError that names the first, or left to whoever looks
// for them later. One row is enough to spoil every reply that meets it, and only those.
enum class NotFinite { refuse, accept };

class ParameterReader {
 public:
  ParameterReader(Backend& backend, const WeightIndex& index, ScaleRule rule,
                  NotFinite not_finite = NotFinite::refuse);
  ~ParameterReader();
  ParameterReader(const ParameterReader&) = delete;
  ParameterReader& operator=(const ParameterReader&) = delete;

  // Plans to read a parameter. Into rows param.row_offset.. of `w`: converted, or quantised by the
  // rule where the file holds floats and w is packed.
  void add_tensor(Tensor dst, const LogicalTensor& t);
  void add_linear(const LinearWeight& w, const ParamSpec& param, const LogicalTensor& t);
  // Of the file, that the plan reads: a tied head that is quantised reads the embedding again.
  uint64_t planned_bytes() const;
  // Reads what was planned, in order. `done` is told the bytes of the file after each piece.
  void run(const std::function<void(uint64_t)>& done = {});

  // Rows [row, row + dst.dim(0)) alone.
  void read_rows(Tensor dst, const LogicalTensor& t, int64_t row);
  void read_tensor(Tensor dst, const LogicalTensor& t) {
    add_tensor(dst, t);
    run();
  }
  void read_linear(const LinearWeight& w, const ParamSpec& param, const LogicalTensor& t) {
    add_linear(w, param, t);
    run();
  }

 private:
  // Rows [row, row + count) of a tensor, on their way to `dst` or to rows of a packed weight.
  struct Piece {
    const LogicalTensor* from = nullptr;
    int64_t row = 0, count = 0;
    Tensor dst;           // dense; empty where packed
    LinearWeight packed;  // with the first row below
    int64_t packed_row = 0;
    uint64_t file_bytes() const;
  };
  // What the backend takes of a piece, in host memory.
  struct Staging {
    std::vector<float> floats;
    std::vector<uint8_t> codes, scales;
    std::vector<std::byte> bytes;
  };
  void add_pieces(const LogicalTensor& t, Piece first, int64_t elements);
  void fetch(const Piece& p, Staging& s) const;  // from the file; no backend
  void fetch_floats(const Piece& p, Staging& s) const;
  void check_finite(const Piece& p, const Staging& s) const;
  void deliver(const Piece& p, const Staging& s);
  void forget_read(uint64_t bytes);

  Backend& be_;
  const TensorSource& source_;
  ScaleRule rule_;
  NotFinite not_finite_;
  // A GPU that shares the host's memory: pages of the file would lie beside the weights made of
  // them, and what the GPU takes cannot be swapped out for them.
  bool forgets_;
  uint64_t since_forgotten_ = 0;  // bytes
  std::vector<Piece> pieces_;
  std::vector<Staging> staging_;  // one for each piece that is under way
};

}  // namespace nibble
