// SPDX-License-Identifier: MIT
// What the format tests share: a scratch folder, bytes in and out of files, tensors to write.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "formats/tensor_source.h"
#include "formats/tensor_writer.h"
#include "support/paths.h"

namespace nibble::test {

class ScratchTest : public ::testing::Test {
 protected:
  ScratchTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           (std::string("nibble_") + info->test_suite_name() + "_" + info->name() + "_" +
            std::to_string(::getpid()));
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~ScratchTest() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path path(const std::string& name) const { return dir_ / name; }
  std::filesystem::path put(const std::string& name, std::string_view bytes) const {
    // Neither fsync nor truncation (ext4 flushes a truncated file): some tests write thousands.
    std::filesystem::remove(path(name));
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(dir_)) {
      names.push_back(e.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::filesystem::path dir_;
};

inline std::filesystem::path golden(const std::string& relative) {
  return std::filesystem::path(kSourceDir) / "tests" / "golden" / relative;
}

inline TensorInfo tensor(std::string name, DType dtype, std::vector<int64_t> shape,
                         int dat_code = -1) {
  TensorInfo t;
  t.name = std::move(name);
  t.dtype = dtype;
  t.shape = std::move(shape);
  t.dat_code = dat_code;
  return t;
}

inline std::string read_bytes(const TensorSource& source, const TensorInfo& t) {
  std::string out(size_t(t.n_bytes), '\0');
  source.read(t, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

inline void append(TensorWriter& writer, std::string_view bytes) {
  writer.append(std::as_bytes(std::span(bytes)));
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Copies every payload in pieces of `chunk` bytes that ignore tensor boundaries.
inline void copy_payloads(const TensorSource& source, TensorWriter& writer, size_t chunk) {
  std::string all;
  for (const TensorInfo& t : source.tensors()) all += read_bytes(source, t);
  for (size_t i = 0; i < all.size(); i += chunk)
    append(writer, std::string_view(all).substr(i, chunk));
  writer.finish();
}

// The message of the error `body` throws; fails the test when it is of another type.
template <class E, class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace nibble::test
