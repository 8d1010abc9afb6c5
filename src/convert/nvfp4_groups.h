// SPDX-License-Identifier: MIT
// Private to convert: the global scales of NVFP4 that other programs read. They run q, k and v as
// one matrix, and gate and up, with one global scale; and they want scales high in E4M3's range.
#pragma once
#include "convert/convert_plan.h"

namespace nibble {

// Sets the global scales of the jobs. Powers of two are moved between a matrix's scales and its
// global one as far as that changes nothing. Where the matrices of a group cannot have one global
// scale without a change, it is that of the one for which the fewest codes of the others change.
void share_global_scales(const TensorSource& source, std::vector<ConvertJob>& jobs,
                         ThreadPool& pool, ConvertSummary& summary);

// "model.layers.0.self_attn.qkv" for q_proj.weight, k_proj.weight and v_proj.weight.
std::string fused_name(const std::string& name);

}  // namespace nibble
