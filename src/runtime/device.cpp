// SPDX-License-Identifier: MIT
#include "runtime/device.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "backends/cuda/cuda_backend.h"
#include "core/log.h"

namespace nibble {

std::string parse_device(const std::string& given, Device& out) {
  constexpr int kMostDevices = 64;
  std::string text = given;  // in any letter case: scripts write CUDA
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
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

std::string parse_devices(const std::string& text, Devices& out) {
  Devices all;
  for (size_t begin = 0, n = 0; begin <= text.size(); ++n) {
    const size_t end = std::min(text.find(',', begin), text.size());
    Device d;
    if (std::string wrong = parse_device(text.substr(begin, end - begin), d); !wrong.empty())
      return wrong;
    if (n == 0) {
      all = d;
    } else {
      if (d.kind == Device::automatic || all.kind == Device::automatic)
        return "is not clear: of several devices each is named, cuda:0,cuda:1 or cpu,cpu";
      if (d.kind != all.kind)
        return "has devices of two kinds, which do not say the same to the bit";
      all.beside.push_back(d);
    }
    begin = end + 1;
  }
  out = std::move(all);
  return "";
}

std::string device_name(const Device& d) {
  switch (d.kind) {
    case Device::automatic: return "auto";
    case Device::cpu: return "cpu";
    case Device::cuda: break;
  }
  return d.index == 0 ? "cuda" : fmt::format("cuda:{}", d.index);
}

namespace {

constexpr bool kBuiltWithCuda = NIBBLE_HAS_CUDA;

}  // namespace

Device resolve_device(const Device& wanted) {
  if (wanted.kind != Device::automatic) return wanted;  // what is wrong with it, the backend says
  const CudaSupport support = cuda_support();
  return support.usable() ? Device(Device::cuda, support.devices.front().index) : Device::cpu;
}

Device choose_device(const Device& wanted) {
  const Device chosen = resolve_device(wanted);
  if (!kBuiltWithCuda) return chosen;
  const std::string text = fallback_text(wanted, chosen, cuda_support().problem);
  if (!text.empty()) log_warning("{}", text);
  return chosen;
}

std::string fallback_text(const Device& wanted, const Device& chosen,
                          const std::string& gpu_problem) {
  if (wanted.kind != Device::automatic || chosen.kind != Device::cpu) return "";
  return fmt::format("on the CPU, since no GPU can be used: {}", gpu_problem);
}

}  // namespace nibble
