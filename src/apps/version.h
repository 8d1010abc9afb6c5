// SPDX-License-Identifier: MIT
// What this binary is: version, commit, and what it was compiled with and for.
#pragma once
#include <string>

namespace nibble {

extern const char* const kVersion;      // "0.1.0"
extern const char* const kCommit;       // "abc1234", "abc1234-changed" or "unknown"
extern const char* const kCommitDate;   // "2026-02-26" or ""
extern const char* const kCudaVersion;  // of the toolkit; "" in a build without CUDA
extern const char* const kCudaCode;     // "sm_90a compute_80": what kernels were compiled for
extern const char* const kCompiler;     // "g++ 12.2.0"

std::string version_line();  // "nibble 0.1.0 (commit abc1234)"
std::string version_text();  // that line and those on CUDA, the CPU and the compiler

}  // namespace nibble
