// SPDX-License-Identifier: MIT
// The fields that chat and completion requests share.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "serve/api/body_fields.h"
#include "serve/api/served_model.h"
#include "serve/schedule/request.h"

namespace nibble {

struct CommonFields {
  ReplyOptions reply;
  std::vector<std::string> stop;
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<int32_t, float>> bias;
  int64_t n = 1;
  bool stream = false, stream_usage = false;

  // The request of the i-th choice for this prompt; choices draw with seeds of their own.
  StreamRequest request(std::vector<int32_t> prompt, int64_t choice) const;
};

// All but the length, which the two name differently. Throws ApiError.
CommonFields read_common_fields(BodyFields& f, const ServedModel& model);
// The model's id in `model`, or 404.
void check_model(BodyFields& f, const ServedModel& model);

}  // namespace nibble
