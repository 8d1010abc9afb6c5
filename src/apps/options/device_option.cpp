// SPDX-License-Identifier: MIT
#include "apps/options/device_option.h"

#include <fmt/format.h>

namespace nibble {

std::string parse_value(const std::string& text, Device& out) { return parse_device(text, out); }

std::string toml_value(const Device& v) { return toml_value(device_name(v)); }

std::string parse_value(const std::string& text, Devices& out) { return parse_devices(text, out); }

std::string toml_value(const Devices& v) {
  std::string all = device_name(v);
  for (const Device& d : v.beside) all += "," + device_name(d);
  return toml_value(all);
}

namespace {

template <class D>
void add_device_flags(Fields& f, D& device, int32_t& threads, const char* help,
                      std::vector<std::string> choices) {
  f.add(device, {.flag = "--device", .help = help, .choices = std::move(choices), .common = true});
  f.add(threads, {.flag = "--threads",
                  .help = "CPU threads; 0 takes every CPU this process may use",
                  .value = "N",
                  .least = 0,
                  .most = 1024});
}

}  // namespace

void add_device(Fields& f, Device& device, int32_t& threads) {
  add_device_flags(f, device, threads, "Where to run; auto takes a GPU when there is one",
                   {"auto", "cpu", "cuda", "cuda:N"});
}

void add_devices(Fields& f, Devices& devices, int32_t& threads) {
  add_device_flags(f, devices, threads,
                   "Where to run; auto takes a GPU when there is one. For serve, check and "
                   "generate --batch several that share the work: cuda:0,cuda:1, or cpu,cpu, which "
                   "share --threads, too",
                   {"auto", "cpu", "cuda", "cuda:N"});
}

}  // namespace nibble
