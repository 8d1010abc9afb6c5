// SPDX-License-Identifier: MIT
#include "train/checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/durable/directories.h"
#include "core/durable/temporary.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/progress.h"
#include "formats/safetensors.h"

namespace nibble {
namespace fs = std::filesystem;
using Json = nlohmann::json;
namespace {

constexpr int kVersion = 2;  // 1 had no checksum

// One tensor of the file and where it lives. NVFP4 weights pass through host memory in the
// canonical layout, so a checkpoint does not depend on the backend.
struct Item {
  std::string name;
  TensorInfo info;
  StateBytes what = StateBytes::master;  // of a parameter of the table ...
  size_t index = 0;
  const ParamSpec* packed = nullptr;  // ... or, where this is set, its NVFP4 rows
};

int64_t packed_row_bytes(const ParamSpec& p) { return p.shape[1] / 2 + p.shape[1] / kNvfp4Block; }

std::vector<Item> items_of(const TrainState& state) {
  const ParamGroups& g = state.groups();
  std::vector<Item> items;
  const auto add_packed = [&](const ParamSpec& p) {
    if (state.has_packed(p)) {
      Item item{kPackedPrefix + p.name, {}, {}, 0, &p};
      item.info.dtype = DType::u8;
      item.info.shape = {p.shape[0], packed_row_bytes(p)};
      items.push_back(std::move(item));
    }
  };
  const auto add = [&](const char* prefix, StateBytes what, size_t i, DType type,
                       std::vector<int64_t> shape) {
    Item item{prefix + g.table[i].name, {}, what, i, nullptr};
    item.info.dtype = type;
    item.info.shape = std::move(shape);
    items.push_back(std::move(item));
  };
  for (size_t i = 0; i < g.table.size(); ++i) {
    const ParamSpec& p = g.table[i];
    if (!g.trained[i]) continue;
    const auto bytes = int64_t(moment_bytes(state.tensors().moments[i].format, p.numel()));
    const DType type = master_type_of(g, state.settings(), p);
    add(kMasterPrefix, StateBytes::master, i, type, p.shape);
    add("m.", StateBytes::m, i, DType::u8, {bytes});
    add("v.", StateBytes::v, i, DType::u8, {bytes});
    if (p.slot == ParamSlot::embed && state.config().tied) {
      add_packed(g.table.back());
    } else {
      add_packed(p);
    }
  }
  for (Item& i : items) i.info.name = i.name;
  return items;
}

constexpr int64_t kPieceBytes = 8 << 20;

// Calls body(row_begin, rows) for pieces of about kPieceBytes.
template <class Body>
void for_pieces(int64_t rows, int64_t row_bytes, Body&& body) {
  const int64_t step = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t r = 0; r < rows; r += step) body(r, std::min(step, rows - r));
}

void write_item(const TrainState& state, const Item& i, SafetensorsWriter& writer,
                Progress& progress) {
  std::vector<std::byte> bytes;
  const auto append = [&] {
    writer.append(bytes);
    progress.advance(bytes.size());
  };
  if (!i.packed) {
    const auto size = int64_t(dtype_bytes(i.info.dtype));
    for_pieces(i.info.numel(), size, [&](int64_t begin, int64_t count) {
      bytes.resize(size_t(count * size));
      state.read_bytes(i.what, i.index, uint64_t(begin * size), bytes);
      append();
    });
    return;
  }
  const int64_t row_bytes = packed_row_bytes(*i.packed), code_bytes = i.packed->shape[1] / 2;
  std::vector<uint8_t> codes, scales;
  for_pieces(i.packed->shape[0], row_bytes, [&](int64_t row, int64_t rows) {
    codes.resize(size_t(rows * code_bytes));
    scales.resize(size_t(rows * (row_bytes - code_bytes)));
    state.read_packed(*i.packed, row, rows, codes, scales);
    bytes.resize(size_t(rows * row_bytes));
    for (int64_t r = 0; r < rows; ++r) {  // a row's codes, then its scales
      std::copy_n(std::as_bytes(std::span(codes)).begin() + r * code_bytes, code_bytes,
                  bytes.begin() + r * row_bytes);
      std::copy_n(std::as_bytes(std::span(scales)).begin() + r * (row_bytes - code_bytes),
                  row_bytes - code_bytes, bytes.begin() + r * row_bytes + code_bytes);
    }
    append();
  });
}

// What this rank owns of it, or all.
void read_state(TrainState& state, const Item& i, const TensorSource& file) {
  Backend& be = state.backend();
  const TensorInfo& have = file.at(i.name);
  const ParamSpec& p = state.groups().table[i.index];
  const auto size = int64_t(dtype_bytes(i.info.dtype));
  std::vector<std::byte> bytes;
  // Bytes of the file from `at` on into elements of `to`.
  const auto read = [&](Tensor to, uint64_t at) {
    for_pieces(to.numel(), size, [&](int64_t begin, int64_t count) {
      bytes.resize(size_t(count * size));
      file.read(have, at + uint64_t(begin * size), bytes);
      be.upload(to.slice(begin, count), bytes.data());
    });
  };
  if (!state.shared_out(i.what, p)) {
    const Tensor whole = state.tensor_of(i.what, i.index);
    return read(whole.view({whole.numel()}), 0);
  }
  for (const OwnedPart* own : state.owned(i.index)) {
    const MomentFormat format = own->moments.format;
    for (const OwnedRange& r : owned_ranges(i.what, own->of, p.numel(), i.info.dtype, format)) {
      const Tensor part = owned_tensor(i.what, *own);
      read(part.slice(int64_t(r.part) / size, int64_t(r.bytes) / size), r.whole);
    }
  }
}

void read_item(TrainState& state, const Item& i, const TensorSource& file, Progress& progress) {
  const TensorInfo& want = i.info;
  const TensorInfo& have = file.at(i.name);
  if (have.dtype != want.dtype || have.shape != want.shape) {
    throw_format("{}: '{}' is {}, this run needs {}", file.describe(), i.name, have.describe(),
                 want.describe());
  }
  std::vector<std::byte> bytes;
  if (!i.packed) {
    read_state(state, i, file);
  } else {
    const int64_t row_bytes = packed_row_bytes(*i.packed), code_bytes = i.packed->shape[1] / 2;
    std::vector<uint8_t> codes, scales;
    for_pieces(i.packed->shape[0], row_bytes, [&](int64_t row, int64_t rows) {
      bytes.resize(size_t(rows * row_bytes));
      file.read(have, uint64_t(row * row_bytes), bytes);
      codes.clear(), scales.clear();
      for (int64_t r = 0; r < rows; ++r) {
        const auto* b = reinterpret_cast<const uint8_t*>(bytes.data() + r * row_bytes);
        codes.insert(codes.end(), b, b + code_bytes);
        scales.insert(scales.end(), b + code_bytes, b + row_bytes);
      }
      state.write_packed(*i.packed, row, rows, codes, scales);
    });
  }
  progress.advance(have.n_bytes);
}

void read_items(const TensorSource& source, TrainState& state) {
  state.settle();
  Progress progress("reading checkpoint", source.payload_bytes());
  for (const Item& i : items_of(state)) read_item(state, i, source, progress);
  state.backend().sync();
}

Json to_json(const RunPosition& p) {
  const TrainerProgress& t = p.trainer;
  // Doubles as hexadecimal text: a resumed run must have the very same bits.
  return {{"step", t.step},
          {"updates", t.updates},
          {"skipped", t.skipped},
          {"micro_batches", t.micro_batches},
          {"previous_norm", fmt::format("{:a}", t.previous_norm)},
          {"loss_scale", fmt::format("{:a}", t.loss_scale)},
          {"good_steps", t.good_steps},
          {"lr_factor", fmt::format("{:a}", t.lr_factor)},
          {"data_position", p.data_position},
          {"note", p.note}};
}

double hex_double(const std::string& text) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') throw_format("'{}' is not a number", text);
  return v;
}

// Values of the description, none of them outside of what a run can come to.
struct PositionReader {
  const Json& j;
  int64_t count(const char* key, int64_t most) const {
    const Json& v = j.at(key);
    const bool fits = v.is_number_unsigned() && v.get<uint64_t>() <= uint64_t(most);
    if (!fits) throw_format("{} is {}, expected a count of at most {}", key, v.dump(), most);
    return v.get<int64_t>();
  }
  double number(const char* key, double least, double most) const {
    const std::string text = j.at(key);
    const double v = hex_double(text);
    if (!(v >= least && v <= most)) {
      throw_format("{} is {}, expected a number from {:g} to {:g}", key, text, least, most);
    }
    return v;
  }
};

RunPosition position_from(const Json& j) {
  constexpr int64_t kMost = int64_t(1) << 53;
  constexpr double kLargest = std::numeric_limits<double>::max();
  const PositionReader r{j};
  RunPosition p;
  p.trainer.step = r.count("step", kMost);
  p.trainer.updates = r.count("updates", p.trainer.step);
  p.trainer.skipped = r.count("skipped", p.trainer.step);
  p.trainer.micro_batches = r.count("micro_batches", kMost);
  p.trainer.previous_norm = r.number("previous_norm", 0, kLargest);
  p.trainer.loss_scale = r.number("loss_scale", std::numeric_limits<double>::min(), kLargest);
  p.trainer.good_steps = r.count("good_steps", p.trainer.step);
  p.trainer.lr_factor = r.number("lr_factor", std::numeric_limits<double>::min(), 1);
  p.data_position = uint64_t(r.count("data_position", std::numeric_limits<int64_t>::max()));
  p.note = j.at("note");
  return p;
}

void check_identity(const fs::path& file, const RunIdentity& saved, const RunIdentity& now) {
  std::string differences;
  const auto differ = [&](const std::string& key, const std::string& a, const std::string& b) {
    differences += fmt::format("\n  {}: the checkpoint has {}, this run {}", key, a, b);
  };
  for (const auto& [key, value] : saved) {
    const auto it = now.find(key);
    if (it == now.end()) {
      differ(key, value, "nothing");
    } else if (it->second != value) {
      differ(key, value, it->second);
    }
  }
  for (const auto& [key, value] : now) {
    if (!saved.contains(key)) differ(key, "nothing", value);
  }
  if (differences.empty()) return;
  throw_usage(
      "{} belongs to another run:{}\nResume with the same settings, or start anew without "
      "--resume and in another --checkpoint-dir",
      file.string(), differences);
}

}  // namespace

void remove_checkpoints_after(const fs::path& directory, int64_t step) {
  std::error_code ec;
  for (const CheckpointFile& c : list_checkpoints(directory)) {
    if (c.step > step) fs::remove(c.path, ec);
  }
}

void keep_newest_checkpoints(const fs::path& directory, int64_t keep) {
  remove_leftovers(directory);
  const std::vector<CheckpointFile> all = list_checkpoints(directory);
  std::error_code ec;
  for (size_t i = 0; keep > 0 && i + size_t(keep) < all.size(); ++i) fs::remove(all[i].path, ec);
}

fs::path save_checkpoint(const fs::path& directory, const TrainState& state,
                         const RunPosition& position, const RunIdentity& identity, int64_t keep,
                         const CheckpointBase& base) {
  make_directories(directory);
  const std::vector<Item> items = items_of(state);
  std::vector<TensorInfo> infos;
  for (const Item& i : items) infos.push_back(i.info);
  Json meta = {{"version", kVersion}, {"position", to_json(position)}, {"identity", identity}};
  if (!base.weights.empty()) {
    const auto seen = [&](const fs::path& file) { return seen_from(directory, file).string(); };
    meta["model"] = {{"weights", seen(base.weights)},
                     {"config", seen(base.config)},
                     {"tokenizer", seen(base.tokenizer)},
                     {"tied", state.config().tied}};
  }
  const fs::path path = directory / checkpoint_name(position.trainer.step);
  SafetensorsWriter writer(path, std::move(infos), {{kCheckpointKey, meta.dump()}},
                           Checksum::quick);
  Progress progress("saving checkpoint", writer.payload_bytes());
  for (const Item& i : items) write_item(state, i, writer, progress);
  writer.finish();
  keep_newest_checkpoints(directory, keep);
  return path;
}

uint64_t checkpoint_bytes(const TrainState& state) {
  constexpr uint64_t kHeaderOfOne = 200, kRest = 1 << 20;
  uint64_t bytes = kRest;
  for (const Item& i : items_of(state)) {
    bytes += uint64_t(i.info.numel()) * dtype_bytes(i.info.dtype) + kHeaderOfOne;
  }
  return bytes;
}

void set_aside(const fs::path& file) noexcept {
  try {
    fs::path aside = file;
    aside += ".damaged";
    rename_durably(file, aside, Existing::replace);
  } catch (...) {  // it stays where it is, and is told as damaged once more
  }
}

RunPosition load_checkpoint(const fs::path& file, TrainState& state, const RunIdentity& identity) {
  const auto source = open_safetensors(file);
  const auto meta = source->metadata().find(kCheckpointKey);
  if (meta == source->metadata().end()) {
    throw_format("{} is not a checkpoint of nibble: it lacks the entry '{}'", file.string(),
                 kCheckpointKey);
  }
  RunPosition position;
  try {
    const Json j = parse_json<Json>(meta->second);
    if (j.at("version") == 1) {
      throw_usage(
          "{} is of an earlier version of nibble, which wrote no checksums: finish the run with "
          "that one, or start anew in another --checkpoint-dir",
          file.string());
    }
    if (const std::string damage = find_damage(file); !damage.empty()) {
      throw_format("{} is damaged: {}", file.string(), damage);
    }
    if (j.at("version") != kVersion) {
      throw_format("{}: checkpoint version {}, this program reads {}", file.string(),
                   j.at("version").dump(), kVersion);
    }
    check_identity(file, j.at("identity").get<RunIdentity>(), identity);
    position = position_from(j.at("position"));
  } catch (const Json::exception& e) {
    throw_format("{}: the checkpoint's description is damaged: {}", file.string(), e.what());
  }
  read_items(*source, state);
  return position;
}

void load_checkpoint_tensors(const fs::path& file, TrainState& state) {
  read_items(*open_safetensors(file), state);
}

}  // namespace nibble
