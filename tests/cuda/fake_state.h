// SPDX-License-Identifier: MIT
// What the fake runtime and the fake cuBLASLt share.
#pragma once
#include "fake_gpu.h"

namespace nibble::test {

void note_fake_launch(FakeLaunch launch);

}  // namespace nibble::test
