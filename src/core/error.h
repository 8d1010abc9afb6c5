// SPDX-License-Identifier: MIT
// The error classes and the process exit code each one stands for. Rooms throw; only apps prints
// and exits, and only the library turns them into codes of its own.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace nibble {

enum class ExitCode : int {
  ok = 0,
  check_failed = 1,  // probes, self-tests or comparisons that did not pass
  usage = 2,
  file = 3,
  device = 4,
  internal = 70,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message)
      : std::runtime_error(without_nul(message)), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  // what() is a C string: a NUL in a name that a file brings would cut the message there.
  static std::string without_nul(std::string message) {
    for (size_t at = 0; (at = message.find('\0', at)) != std::string::npos; at += 4) {
      message.replace(at, 1, "\\x00");
    }
    return message;
  }

  ExitCode code_;
};

// A bad option or request.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

// A file: says path, tensor, byte offset, expected and found, as far as they are known.
class FormatError : public Error {
 public:
  explicit FormatError(const std::string& message) : Error(ExitCode::file, message) {}
};

// A device, or too little memory: says what was needed and what there is.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ExitCode::device, message) {}
};

// Our own bug: shape mismatch, missing kernel.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::internal, message) {}
};

// throw_format("{}: tensor '{}' ...", path, name)
template <class... Args>
[[noreturn]] void throw_format(fmt::format_string<Args...> f, Args&&... args) {
  throw FormatError(fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void throw_usage(fmt::format_string<Args...> f, Args&&... args) {
  throw UsageError(fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void throw_device(fmt::format_string<Args...> f, Args&&... args) {
  throw DeviceError(fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void throw_internal(fmt::format_string<Args...> f, Args&&... args) {
  throw InternalError(fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace nibble
