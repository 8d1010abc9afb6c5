// SPDX-License-Identifier: MIT
#include "apps/options/device_option.h"

#include <fmt/format.h>

namespace nibble {

std::string parse_value(const std::string& text, Device& out) { return parse_device(text, out); }

std::string toml_value(const Device& v) {
  switch (v.kind) {
    case Device::automatic: return toml_value(std::string("auto"));
    case Device::cpu: return toml_value(std::string("cpu"));
    case Device::cuda: break;
  }
  return toml_value(v.index == 0 ? std::string("cuda") : fmt::format("cuda:{}", v.index));
}

void add_device(Fields& f, Device& device, int32_t& threads) {
  f.add(device, {.flag = "--device",
                 .help = "Where to run; auto takes a GPU when there is one",
                 .choices = {"auto", "cpu", "cuda", "cuda:N"},
                 .common = true});
  f.add(threads, {.flag = "--threads",
                  .help = "CPU threads; 0 takes every CPU this process may use",
                  .value = "N",
                  .least = 0,
                  .most = 1024});
}

}  // namespace nibble
