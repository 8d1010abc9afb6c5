// SPDX-License-Identifier: MIT
#include "runtime/quantization_json.h"

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/version.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

Json producer() { return {{"name", "nibble"}, {"version", kVersion}}; }
std::string algorithm(const OutputQuantization& o) {
  return o.input_scales ? "NVFP4" : "W4A16_NVFP4";
}

Json compressed_tensors(const OutputQuantization& o) {
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"symmetric", true},
                        {"group_size", 16},
                        {"strategy", "tensor_group"},
                        {"dynamic", false},
                        {"block_structure", nullptr},
                        {"actorder", nullptr},
                        {"scale_dtype", "torch.float8_e4m3fn"},
                        {"zp_dtype", nullptr},
                        {"observer", "static_minmax"},
                        {"observer_kwargs", Json::object()}};
  Json inputs = nullptr;
  if (o.input_scales) {
    inputs = weights;
    inputs["dynamic"] = "local";  // blocks as they come, under the fixed scale
  }
  const Json group = {{"targets", Json::array({"Linear"})},
                      {"weights", weights},
                      {"input_activations", inputs},
                      {"output_activations", nullptr},
                      {"format", nullptr}};
  return {{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"},
          {"quantization_status", "compressed"},  {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},           {"ignore", o.dense_modules},
          {"config_groups", {{"group_0", group}}}};
}

Json modelopt(const OutputQuantization& o) {
  const Json four_bits = {
      {"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  Json group = {{"weights", four_bits}, {"targets", Json::array({"Linear"})}};
  if (o.input_scales) group["input_activations"] = four_bits;
  return {{"config_groups", {{"group_0", group}}},
          {"ignore", o.dense_modules},
          {"quant_algo", algorithm(o)},
          {"producer", producer()},
          {"quant_method", "modelopt"}};
}

}  // namespace

std::string with_quantization(const std::string& config_json, const OutputQuantization& o) {
  auto j = parse_json<Json>(config_json);
  if (o.names == Nvfp4Names::nibble && !j.contains("quantization_config")) return config_json;
  j.erase("quantization_config");
  if (o.names == Nvfp4Names::compressed_tensors) j["quantization_config"] = compressed_tensors(o);
  if (o.names == Nvfp4Names::modelopt) j["quantization_config"] = modelopt(o);
  return j.dump(2) + "\n";
}

std::string modelopt_quant_config(const OutputQuantization& o) {
  const Json quantization = {{"quant_algo", algorithm(o)},
                             {"kv_cache_quant_algo", nullptr},
                             {"group_size", 16},
                             {"exclude_modules", o.dense_modules}};
  const Json j = {{"producer", producer()}, {"quantization", quantization}};
  return j.dump(2) + "\n";
}

}  // namespace nibble
