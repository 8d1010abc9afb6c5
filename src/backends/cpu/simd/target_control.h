// SPDX-License-Identifier: MIT
// Which instruction set the kernels run on: the best one the processor has, or one chosen by name
// so that tests and benchmarks can compare them all on one machine.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace nibble::cpu {

// Names of the compiled targets this processor can run, best first: "AVX3_BF16", "AVX3_VNNI",
// "AVX3", "AVX2"...
std::vector<std::string> available_targets();
std::string active_target();
// Affects every backend of the process; not while one is computing. Empty: back to the best.
void select_target(std::string_view name);
// On top of AVX3, which Highway's targets do not tell: 8-bit dot products (vpdpbusd), and products
// of bf16 pairs (vdpbf16ps), with which a processor has the former, too.
bool use_vnni();
bool use_bf16_pairs();

}  // namespace nibble::cpu
