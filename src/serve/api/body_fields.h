// SPDX-License-Identifier: MIT
// The fields of a request's JSON object, each read once and by its type: what is wrong is said with
// the field's name, and what nobody has read is refused in the end. null is as good as absent.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace nibble {

class BodyFields {
 public:
  using Json = nlohmann::ordered_json;

  // `object` outlives it. `path` stands before names in messages: "stream_options.". Throws
  // ApiError when it is no object.
  explicit BodyFields(const Json& object, std::string path = "");

  const Json* any(std::string_view name);  // null: absent
  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, double least, double most);
  std::optional<int64_t> integer(std::string_view name, int64_t least, int64_t most);
  std::optional<std::string> text(std::string_view name);

  // Accepted, and without a meaning here: "user".
  void pass(std::string_view name) { any(name); }
  // Known to others and not to this server: refused where it says anything.
  void refuse(std::string_view name, std::string_view why);
  // Every field has been asked for, or ApiError names one that has not.
  void finish() const;

  std::string path_of(std::string_view name) const { return path_ + std::string(name); }

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// A body as JSON; ApiError where it is none.
nlohmann::ordered_json parse_body(const std::string& text);

}  // namespace nibble
