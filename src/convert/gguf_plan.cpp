// SPDX-License-Identifier: MIT
#include "convert/gguf_plan.h"

#include <algorithm>
#include <regex>

#include "convert/raw_cast.h"
#include "core/error.h"
#include "formats/gguf/block_types.h"
#include "formats/gguf/encode_blocks.h"
#include "model/gguf_model.h"
#include "model/params.h"
#include "quant/scale_shift.h"

namespace nibble {
namespace {

using Kind = ConvertJob::Kind;

// "model.layers.7.mlp.up_proj.weight" without the number.
std::string without_layer(const std::string& name) {
  static const std::regex kLayer(R"(\.\d+\.)");
  return std::regex_replace(name, kLayer, ".*.");
}

struct FileType {
  std::string_view name;
  uint32_t code;
};
constexpr FileType kFileTypes[] = {{"F32", 0},   {"F16", 1},    {"Q4_0", 2},  {"Q8_0", 7},
                                   {"BF16", 32}, {"MXFP4", 38}, {"NVFP4", 39}};

}  // namespace

bool can_fold(const TensorSource& source, const LogicalTensor& t) {
  const auto exponent = power_of_two(read_global_scale(source, t));
  if (!exponent) return false;
  constexpr int64_t kRows = 256;
  std::vector<uint8_t> codes, scales;
  ScaleCodes seen;
  for (int64_t at = 0; at < t.rows; at += kRows) {
    const int64_t n = std::min(kRows, t.rows - at);
    codes.resize(size_t(n * t.cols / 2));
    scales.resize(size_t(n * t.cols / kNvfp4Block));
    read_nvfp4_rows(source, t, at, n, codes.data(), scales.data());
    note_scales(scales, seen);
  }
  return can_shift(seen, *exponent);
}

const BlockType* block_type_of(Packing packing) {
  switch (packing) {
    case Packing::q8_0: return &block_type_named("Q8_0");
    case Packing::q4_0: return &block_type_named("Q4_0");
    case Packing::mxfp4: return &block_type_named("MXFP4");
    case Packing::none:
    case Packing::nvfp4:
    case Packing::stored: return nullptr;
  }
  return nullptr;
}

ConvertJob GgufPlan::plain(ConvertJob job) const {
  const LogicalTensor& t = *job.from;
  if (t.packed()) {
    job.kind = Kind::dequantise;
    // Single-level values have six significant bits: exact in bf16.
    job.dtype = settings_.dtype.value_or(t.global_scale ? DType::f32 : DType::bf16);
    return job;
  }
  const DType stored = t.raw->dtype;
  if (!castable(stored)) {
    throw_format("tensor '{}' is {}: a GGUF model holds floating-point numbers", job.name,
                 dtype_name(stored));
  }
  // llama.cpp adds and multiplies by vectors in fp32 alone.
  const DType own = stored == DType::f64 ? DType::f32 : stored;
  job.dtype = t.shape.size() < 2 ? DType::f32 : settings_.dtype.value_or(own);
  job.kind = job.dtype == stored ? Kind::copy : Kind::cast;
  return job;
}

void GgufPlan::note_other(std::string_view what, const std::string& why,
                          const std::string& name) const {
  ++others_[fmt::format("{}, {}", what, why)][without_layer(name)];
}

ConvertJob GgufPlan::in_another(ConvertJob job, const std::string& why) const {
  const BlockType& q8_0 = block_type_named("Q8_0");
  const bool whole = job.from->cols % q8_0.elements == 0;
  note_other(whole ? q8_0.name : "BF16", why, job.name);
  if (whole) return in_blocks(std::move(job), q8_0);
  const bool packed = job.from->packed();
  job.kind = packed ? Kind::dequantise : Kind::cast;
  job.dtype = DType::bf16;
  if (!packed && job.from->raw->dtype == DType::bf16) job.kind = Kind::copy;
  return job;
}

ConvertJob GgufPlan::in_blocks(ConvertJob job, const BlockType& type) const {
  if (job.from->cols % type.elements != 0) {
    return in_another(std::move(job), fmt::format("rows are no multiple of {}", type.elements));
  }
  job.kind = Kind::encode;
  job.blocks = &type;
  return job;
}

ConvertJob GgufPlan::in_nvfp4(ConvertJob job) const {
  const LogicalTensor& t = *job.from;
  if (t.cols % kGgufNvfp4Elements != 0) {
    return in_another(std::move(job), "rows are no multiple of 64");
  }
  job.two_level = t.packed() ? t.global_scale && !can_fold(index_.source(), t)
                             : settings_.levels == ScaleLevels::two;
  if (job.two_level && !gguf_applies_global_scale(*config_, job.name)) {
    const std::string why = "llama.cpp leaves the global scale out here in a qwen2";
    if (t.packed()) return in_another(std::move(job), why);
    job.two_level = false;  // made here, it can do without
    note_other("NVFP4 of one level", why, job.name);
  }
  job.kind = Kind::join;
  job.blocks = &block_type_named("NVFP4");
  return job;
}

ConvertJob GgufPlan::job_for(const LogicalTensor& t, const std::string& name, bool selected) const {
  ConvertJob job;
  job.name = name;
  job.from = &t;
  if (t.shape.size() != 2) return plain(std::move(job));
  if (!t.packed() && !castable(t.raw->dtype)) return plain(std::move(job));
  const Packing packing = settings_.packing;
  if (packing == Packing::nvfp4 || packing == Packing::stored) {
    const bool nvfp4 = t.packed() || (packing == Packing::nvfp4 && selected);
    return nvfp4 ? in_nvfp4(std::move(job)) : plain(std::move(job));
  }
  const BlockType* type = block_type_of(packing);
  if (!type) return plain(std::move(job));
  // What is not asked for by name, and the head, lose more than they weigh in fewer bits.
  const bool asked = selected && (name != kHeadName || !settings_.quantize.empty());
  return in_blocks(std::move(job), asked ? *type : block_type_named("Q8_0"));
}

std::vector<TensorInfo> GgufPlan::entries_of(const ConvertJob& job) const {
  TensorInfo info;
  if (job.kind == Kind::given) {
    info.name = job.name;
    info.shape = {int64_t(job.values.size())};
    return {info};
  }
  info.name = gguf_name_of(job.name);
  info.shape = job.from->shape;
  info.dtype = job.blocks ? job.blocks->dtype : job.dtype;
  info.blocks = job.blocks;
  std::vector<TensorInfo> entries = {info};
  if (job.kind == Kind::join && job.two_level) {
    info.name = info.name.substr(0, info.name.rfind('.')) + ".scale";
    info.shape = {1};
    info.dtype = DType::f32;
    info.blocks = nullptr;
    entries.push_back(info);
  }
  return entries;
}

void GgufPlan::complete(const Config& config, ConvertPlan& plan, ConvertSummary& summary) const {
  std::vector<float> divisors = gguf_rope_divisors(config);
  if (!divisors.empty()) {
    ConvertJob job;
    job.kind = Kind::given;
    job.name = kGgufFrequencies;
    job.values = std::move(divisors);
    plan.jobs.push_back(std::move(job));
  }
  for (const auto& [what, names] : others_) {
    std::string list;
    for (const auto& [name, count] : names) {
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", name,
                          count > 1 ? fmt::format(" ({})", count) : "");
    }
    summary.notes.push_back(fmt::format("{}: {}", what, list));
  }
}

void add_gguf_file_type(const std::vector<TensorInfo>& entries, GgufMetadata& metadata) {
  std::map<std::string_view, int64_t> elements;
  for (const TensorInfo& t : entries) {
    const BlockType* type = t.blocks ? t.blocks : find_plain_type(t.dtype);
    if (type && t.shape.size() == 2) elements[type->name] += t.numel();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& e) { return e.second; });
  if (most == elements.end()) return;
  for (const FileType& f : kFileTypes) {
    if (f.name == most->first) metadata.set_u32("general.file_type", f.code);
  }
}

}  // namespace nibble
