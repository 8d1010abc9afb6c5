// SPDX-License-Identifier: MIT
// A model being trained: masters, the NVFP4 weights the forward sees, moments, gradients.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "formats/tensor_source.h"
#include "train/loss.h"
#include "train/memory.h"
#include "train/ranks/owned_bytes.h"

namespace nibble {

// How a run treats the head of this model: config.tied, unless the stored head was trained apart
// or --untie is given. Reads the head and the embedding of a tied model to tell, and says so in the
// log when the two differ.
Config training_config(const Config& config, const TensorSource& source, bool untie);

class ParameterReader;
struct LogicalTensor;

class TrainState {
 public:
  // Takes memory and reads the weights. Whatever is NVFP4 in the file is used as stored, until an
  // update changes its master. Throws FormatError, UsageError, DeviceError.
  // `trained` is what training_config said of `config`; asking reads the whole head, so that
  // whoever has asked already passes the answer on. `teacher`: the weights of
  // settings.keep.teacher.
  TrainState(Backend& backend, const Config& config, const TensorSource& source,
             const TrainSettings& settings, const Config& trained,
             const TensorSource* teacher = nullptr);
  TrainState(Backend& backend, const Config& config, const TensorSource& source,
             const TrainSettings& settings, const TensorSource* teacher = nullptr)
      : TrainState(backend, config, source, settings,
                   training_config(config, source, settings.untie), teacher) {}

  Backend& backend() const { return be_; }
  // `tied` says how the model is trained, which need not be how the file declares it.
  const Config& config() const { return config_; }
  const TrainSettings& settings() const { return settings_; }
  const ParamGroups& groups() const { return groups_; }
  TrainTensors& tensors() { return tensors_; }
  const TrainTensors& tensors() const { return tensors_; }
  TrainArenas& arenas() { return arenas_; }

  // The dense master of a parameter, in its shape; a tied head's is the embedding. Empty for one
  // that is frozen and lives as NVFP4 only.
  Tensor master_of(const ParamSpec& param) const;
  // Bytes [at, at + out.size()) of a trained parameter's master or moment, whole elements. Of what
  // other ranks own they come by `fetch`, which whoever leads them sets.
  void read_bytes(StateBytes what, size_t param, uint64_t at, std::span<std::byte> out) const;
  std::function<void(StateBytes, size_t param, uint64_t at, std::span<std::byte> out)> fetch;
  // Of several ranks: waits for what others send of a layer's weights (-1 and L: embedding, head),
  // or for all of it. Whoever exchanges it sets this.
  std::function<void(std::optional<int64_t> layer)> arrive;
  void settle() const {
    if (arrive) arrive({});
  }
  // Whether its masters, or moments, are here only in parts.
  bool shared_out(StateBytes what, const ParamSpec& param) const;
  // The tensor of a trained parameter that is not shared out.
  Tensor tensor_of(StateBytes what, size_t param) const;
  // What this rank owns of a parameter.
  std::vector<const OwnedPart*> owned(size_t param) const;
  // The NVFP4 weight that holds a parameter and lives as long as the run, or null.
  const LinearWeight* packed_of(const ParamSpec& param) const;
  // The one that an update writes: packed_of, or with MemoryMode::gathered what a forward reads
  // when the block has come; null.
  const LinearWeight* updated_packed_of(const ParamSpec& param) const;
  // Whether its NVFP4 rows live as long as the run, here or shared out; they, in canonical bytes.
  bool has_packed(const ParamSpec& param) const { return updated_packed_of(param) != nullptr; }
  void read_packed(const ParamSpec& param, int64_t row, int64_t rows, std::span<uint8_t> codes,
                   std::span<uint8_t> scales) const;
  void write_packed(const ParamSpec& param, int64_t row, int64_t rows,
                    std::span<const uint8_t> codes, std::span<const uint8_t> scales);
  // MemoryMode::gathered: what this rank owns of a parameter's NVFP4 weights, to where a forward
  // reads them and from there.
  void lay_out_own(const ParamSpec& param);
  void take_back_own(const ParamSpec& param);

  // Before a layer's weights are read: waits for what others send of them, and with
  // MemoryMode::remake makes the NVFP4 weights of a block.
  void need_weights(int64_t layer);
  LinearWeight head_rows(int64_t begin, int64_t count);
  // What kept rows are compared with is this model's.
  const Config& teacher_config() const {
    return settings_.keep.teacher ? settings_.keep.teacher->config : config_;
  }
  LinearWeight teacher_head_rows(int64_t begin, int64_t count) const {
    return be_.rows_of(tensors_.teacher.head, begin, count);
  }
  // Makes the NVFP4 rows of a parameter anew from its master.
  void requantize(const ParamSpec& param);

 private:
  void read(const TensorSource& source);
  void read_shares(ParameterReader& reader, size_t param, const LogicalTensor& t);
  void read_own_teacher(const ParamSpec& param);
  size_t index_of(const ParamSpec& param) const { return size_t(&param - groups_.table.data()); }

  Backend& be_;
  Config config_;
  TrainSettings settings_;
  ParamGroups groups_;
  TrainArenas arenas_;
  TrainTensors tensors_;
};

// Whether any tensor of the source has a global (second-level) scale.
bool has_global_scales(const TensorSource& source);

}  // namespace nibble
