// SPDX-License-Identifier: MIT
// What this binary was compiled with and for, and what `nibble --version` prints.
#pragma once
#include <string>

namespace nibble {

extern const char* const kCudaVersion;  // of the toolkit; "" in a build without CUDA
extern const char* const kCudaCode;     // "sm_90a compute_80": what kernels were compiled for
extern const char* const kCompiler;     // "g++ 12.2.0"

std::string version_text();  // version_line(), and lines on CUDA, the CPU and the compiler

}  // namespace nibble
