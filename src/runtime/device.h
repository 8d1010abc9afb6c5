// SPDX-License-Identifier: MIT
// Where a model runs, as it is asked for and as it is found.
#pragma once
#include <string>
#include <vector>

namespace nibble {

struct Device {
  enum Kind { automatic, cpu, cuda };
  Device() = default;
  Device(Kind k, int i = 0) : kind(k), index(i) {}  // Device::cpu reads like an enumerator
  bool operator==(const Device&) const = default;

  Kind kind = automatic;
  int index = 0;  // of the GPU
};

// One device, and those on which more copies of the same model are to answer.
struct Devices : Device {
  Devices() = default;
  Devices(Device first) : Device(first) {}
  Devices(Kind k) : Device(k) {}
  std::vector<Device> beside;
};

// "auto", "cpu", "cuda" or "cuda:1". Returns "" or what is wrong with the text.
std::string parse_device(const std::string& text, Device& out);
// One of these, or several with commas between them, each named and all of one kind: what a reply
// says must not depend on who gives it.
std::string parse_devices(const std::string& text, Devices& out);
std::string device_name(const Device& device);  // as parse_device reads it

// What `wanted` stands for on this machine, never automatic.
Device resolve_device(const Device& wanted);
// The same, and where a GPU could have been taken but was not a warning says why.
Device choose_device(const Device& wanted);
// That warning; empty: nothing was fallen back from. `gpu_problem`: why this build, which knows
// GPUs, found none.
std::string fallback_text(const Device& wanted, const Device& chosen,
                          const std::string& gpu_problem);

}  // namespace nibble
