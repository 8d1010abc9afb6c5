// SPDX-License-Identifier: MIT
// What these tests say holds on a CPU (types, ids, messages): a GPU of the machine stays out of
// sight, for this process and those it starts. tests/apps/cuda_test.cpp is a program of its own.
#include <cstdlib>

namespace {

[[maybe_unused]] const int no_gpu = setenv("CUDA_VISIBLE_DEVICES", "", 1);

}  // namespace
