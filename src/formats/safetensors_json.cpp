// SPDX-License-Identifier: MIT
#include "formats/safetensors_json.h"

#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "formats/checks.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

struct DTypeRow {
  DType dtype;
  std::string_view name;
};
constexpr DTypeRow kDTypes[] = {
    {DType::f64, "F64"},   {DType::f32, "F32"},         {DType::f16, "F16"},
    {DType::bf16, "BF16"}, {DType::f8_e4m3, "F8_E4M3"}, {DType::i64, "I64"},
    {DType::i32, "I32"},   {DType::i16, "I16"},         {DType::i8, "I8"},
    {DType::u8, "U8"},     {DType::boolean, "BOOL"}};

// Everything a handler does not expect is an error at once: the parser stops at `false`.
class StrictSax : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { return unexpected("a number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool string(string_t&) override { return unexpected("a string"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool start_object(size_t) override { return unexpected("an object"); }
  bool end_object() override { return unexpected("an end of object"); }
  bool start_array(size_t) override { return unexpected("an array"); }
  bool end_array() override { return unexpected("an end of array"); }
  bool key(string_t&) override { return unexpected("a key"); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    return fail(e.what());
  }

  void run(std::string_view text, const std::string& path, const char* what) {
    if (!parse_json_events<Json>(text, this)) {
      throw_format("{}: {}: {}", path, what, error_.empty() ? "malformed JSON" : error_);
    }
  }

 protected:
  virtual std::string where() const = 0;
  bool fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool unexpected(const char* what) { return fail(fmt::format("{} {}", what, where())); }

 private:
  std::string error_;
};

class HeaderSax final : public StrictSax {
 public:
  SafetensorsHeader header;

  bool start_object(size_t) override {
    switch (state_) {
      case State::start: state_ = State::top; return true;
      case State::value: state_ = State::entry; return true;
      case State::metadata_value: state_ = State::metadata; return true;
      default: return unexpected("an object");
    }
  }
  bool end_object() override {
    switch (state_) {
      case State::top: state_ = State::done; return true;
      case State::entry: state_ = State::top; return finish_entry();
      case State::metadata: state_ = State::top; return true;
      default: return unexpected("an end of object");
    }
  }
  bool key(string_t& k) override {
    if (state_ == State::top) {
      if (!names_.insert(k).second) return fail(fmt::format("'{}' occurs twice", k));
      if (k == "__metadata__") {
        state_ = State::metadata_value;
        return true;
      }
      if (k.empty() || k.size() > kMaxNameBytes) {
        return fail(fmt::format("a tensor name of {} bytes", k.size()));
      }
      if (header.tensors.size() >= kMaxTensors) return fail("too many tensors");
      entry_ = {};
      entry_.name = k;
      dtype_.reset();
      shape_seen_ = false;
      offsets_.reset();
      state_ = State::value;
      return true;
    }
    if (state_ == State::metadata) {
      if (header.metadata.contains(k)) return fail(fmt::format("metadata '{}' occurs twice", k));
      metadata_key_ = k;
      state_ = State::metadata_text;
      return true;
    }
    if (state_ != State::entry) return unexpected("a key");
    if (k == "dtype" && !dtype_) {
      state_ = State::dtype;
    } else if (k == "shape" && !shape_seen_) {
      state_ = State::shape_value;
    } else if (k == "data_offsets" && !offsets_) {
      state_ = State::offsets_value;
    } else {
      return fail(fmt::format("tensor '{}': unknown or repeated field '{}'", entry_.name, k));
    }
    return true;
  }
  bool string(string_t& s) override {
    if (state_ == State::metadata_text) {
      header.metadata.emplace(std::move(metadata_key_), std::move(s));
      state_ = State::metadata;
      return true;
    }
    if (state_ != State::dtype) return unexpected("a string");
    for (const DTypeRow& row : kDTypes) {
      if (row.name == s) dtype_ = row.dtype;
    }
    if (!dtype_) return fail(fmt::format("tensor '{}': unsupported dtype '{}'", entry_.name, s));
    state_ = State::entry;
    return true;
  }
  bool null() override {
    if (state_ != State::metadata_value) return unexpected("null");
    state_ = State::top;
    return true;
  }
  bool start_array(size_t) override {
    if (state_ == State::shape_value) {
      state_ = State::shape;
      shape_seen_ = true;
    } else if (state_ == State::offsets_value) {
      state_ = State::offsets;
      offsets_.emplace();
    } else {
      return unexpected("an array");
    }
    return true;
  }
  bool end_array() override {
    if (state_ != State::shape && state_ != State::offsets) return unexpected("an end of array");
    state_ = State::entry;
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (state_ == State::shape) {
      if (entry_.shape.size() == kMaxFileRank ||
          n > uint64_t(std::numeric_limits<int64_t>::max())) {
        return fail(fmt::format("tensor '{}': impossible shape", entry_.name));
      }
      entry_.shape.push_back(int64_t(n));
      return true;
    }
    if (state_ != State::offsets) return unexpected("a number");
    if (offsets_->size() == 2) return unexpected("a third number");
    offsets_->push_back(n);
    return true;
  }

 private:
  enum class State {
    start,
    top,
    done,
    value,
    entry,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    metadata_value,
    metadata,
    metadata_text,
  };

  std::string where() const override {
    switch (state_) {
      case State::start: return "where the header's object should begin";
      case State::metadata_value:
      case State::metadata:
      case State::metadata_text: return "in __metadata__, which maps strings to strings";
      case State::top:
      case State::done: return "between tensors";
      default: return fmt::format("out of place in tensor '{}'", entry_.name);
    }
  }

  bool finish_entry() {
    if (!dtype_ || !shape_seen_ || !offsets_ || offsets_->size() != 2) {
      return fail(fmt::format("tensor '{}' lacks dtype, shape or two data_offsets", entry_.name));
    }
    entry_.dtype = *dtype_;
    const uint64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    const auto n_bytes = shape_bytes(entry_.shape, entry_.dtype);
    if (!n_bytes || end < begin || end - begin != *n_bytes) {
      return fail(fmt::format("tensor '{}': {} does not fill bytes {} to {}", entry_.name,
                              entry_.describe(), begin, end));
    }
    entry_.n_bytes = *n_bytes;
    entry_.file_offset = begin;
    header.tensors.push_back(std::move(entry_));
    return true;
  }

  State state_ = State::start;
  std::unordered_set<std::string> names_;
  TensorInfo entry_;
  std::optional<DType> dtype_;
  bool shape_seen_ = false;
  std::optional<std::vector<uint64_t>> offsets_;
  std::string metadata_key_;
};

// {"metadata": {anything}, "weight_map": {"tensor": "shard"}}; other top-level values are skipped.
class IndexSax final : public StrictSax {
 public:
  std::map<std::string, std::string> weight_map;
  bool map_seen = false;

  bool null() override { return skippable("null"); }
  bool boolean(bool) override { return skippable("a boolean"); }
  bool number_integer(number_integer_t) override { return skippable("a number"); }
  bool number_unsigned(number_unsigned_t) override { return skippable("a number"); }
  bool number_float(number_float_t, const string_t&) override { return skippable("a number"); }
  bool string(string_t& s) override {
    if (!in_map_) return skippable("a string");
    weight_map[key_] = std::move(s);
    return true;
  }
  bool start_object(size_t) override {
    if (in_map_) return unexpected("an object");
    in_map_ = depth_ == 1 && key_ == "weight_map";
    map_seen |= in_map_;
    ++depth_;
    return true;
  }
  bool end_object() override {
    in_map_ = false;
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (!skippable("an array")) return false;
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& k) override {
    if (in_map_ && weight_map.contains(k)) return fail(fmt::format("'{}' occurs twice", k));
    if (depth_ == 1 && k == "weight_map" && map_seen) return fail("weight_map occurs twice");
    if (depth_ == 1 || in_map_) key_ = std::move(k);
    return true;
  }

 private:
  std::string where() const override {
    return in_map_ ? fmt::format("as the shard of '{}'", key_)
                   : "where an index's object should be";
  }
  bool skippable(const char* what) {
    if (in_map_ || depth_ == 0) return unexpected(what);
    return depth_ != 1 || key_ != "weight_map" || unexpected(what);
  }
  bool in_map_ = false;
  int depth_ = 0;
  std::string key_;
};

}  // namespace

SafetensorsHeader parse_safetensors_json(std::string_view text, const std::string& path) {
  HeaderSax sax;
  sax.run(text, path, "safetensors header");
  return std::move(sax.header);
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& path) {
  IndexSax sax;
  sax.run(text, path, "safetensors index");
  if (!sax.map_seen) throw_format("{}: there is no weight_map in this index", path);
  return std::move(sax.weight_map);
}

std::string_view safetensors_dtype_name(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row.name;
  }
  throw_internal("safetensors cannot hold {}", dtype_name(dtype));
}

}  // namespace nibble
