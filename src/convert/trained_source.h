// SPDX-License-Identifier: MIT
// The input file with trained values in the place of the old ones: same entries, same order, same
// type codes, but that norms and biases become fp32 where their type would lose what was learned.
// What did not change is byte for byte the input's; that is decided per NVFP4 block
// and per raw element, so a run that changed nothing writes the file it read.
#pragma once
#include <mutex>
#include <unordered_map>

#include "convert/trained_values.h"
#include "formats/weights.h"

namespace nibble {

enum class RawTypes {
  of_file,    // the types of the input
  of_master,  // at least the master's precision, for a conversion that quantises
};

class TrainedSource final : public TensorSource {
 public:
  // Both must outlive it.
  TrainedSource(const TensorSource& base, const TrainedValues& values, RawTypes types);

  // Throws FormatError for a value the entry's type cannot hold. Thread-safe.
  void read(const TensorInfo& tensor, uint64_t byte_offset,
            std::span<std::byte> out) const override;

 private:
  enum class Part { raw, codes, scales };
  struct Entry {
    Part part = Part::raw;
    const LogicalTensor* stored = nullptr;  // in the base; null: the base has none
    const LogicalTensor* loaded = nullptr;  // what the master was read from
    const ParamSpec* param = nullptr;
  };
  void add_entries();
  void read_raw(const Entry& e, const TensorInfo& info, int64_t begin, int64_t count,
                std::byte* out) const;
  // Canonical rows of a packed parameter.
  void packed_rows(const Entry& e, int64_t row, int64_t rows, uint8_t* codes,
                   uint8_t* scales) const;
  std::vector<float> master_rows(const Entry& e, int64_t row, int64_t rows) const;
  std::vector<float> loaded_rows(const LogicalTensor& t, int64_t row, int64_t rows,
                                 DType master) const;

  const TensorSource& base_;
  const TrainedValues& values_;
  RawTypes types_;
  WeightIndex index_;
  std::unordered_map<std::string, Entry> entries_;
  mutable std::mutex mutex_;  // the backend has one stream
};

}  // namespace nibble
