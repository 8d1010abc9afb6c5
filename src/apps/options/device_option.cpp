// SPDX-License-Identifier: MIT
#include "apps/options/device_option.h"

#include <fmt/format.h>

#include <charconv>

namespace nibble {
namespace {

constexpr int kMostDevices = 64;

}  // namespace

std::string parse_value(const std::string& text, Device& out) {
  if (text == "auto") return out = Device::automatic, "";
  if (text == "cpu") return out = Device::cpu, "";
  if (text == "cuda") return out = Device::cuda, "";
  constexpr std::string_view kPrefix = "cuda:";
  if (!text.starts_with(kPrefix)) return "is not one of the choices";
  int index = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + kPrefix.size(), end, index);
  if (error != std::errc() || stop != end || index < 0 || index >= kMostDevices) {
    return "names no GPU: cuda:0 is the first";
  }
  out = Device(Device::cuda, index);
  return "";
}

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
                 .choices = {"auto", "cpu", "cuda", "cuda:N"}});
  f.add(threads, {.flag = "--threads",
                  .help = "CPU threads; 0 takes every CPU this process may use",
                  .value = "N",
                  .least = 0,
                  .most = 1024});
}

}  // namespace nibble
