// SPDX-License-Identifier: MIT
#include "backend/recording_backend.h"

#include "backend/download.h"

namespace nibble {

void RecordingBackend::do_note(std::string_view name, int64_t layer, Tensor value) {
  Recorded r;
  r.name = layer < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer, name);
  r.shape.assign(value.shape.begin(), value.shape.begin() + value.rank);
  r.values = download_floats(inner_, value);
  sink_(std::move(r));
}

}  // namespace nibble
