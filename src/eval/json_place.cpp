// SPDX-License-Identifier: MIT
#include "eval/json_place.h"

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/json.h"
#include "core/text/nearest_name.h"

namespace nibble {
namespace {

constexpr size_t kMostText = 1 << 20;

}  // namespace

void JsonPlace::fail(const std::string& what) const { throw_format("{}: {}", text, what); }

// nlohmann keeps the last of two equal keys: they are refused while reading.
OrderedJson parse_strictly(std::string_view text, const JsonPlace& place) {
  std::vector<std::unordered_set<std::string>> keys;
  const auto watch = [&](int, OrderedJson::parse_event_t event, OrderedJson& value) {
    switch (event) {
      case OrderedJson::parse_event_t::object_start: keys.emplace_back(); break;
      case OrderedJson::parse_event_t::object_end: keys.pop_back(); break;
      case OrderedJson::parse_event_t::key:
        if (!keys.back().insert(value.get_ref<const std::string&>()).second) {
          place.fail(fmt::format("the key '{}' is given twice", value.get<std::string>()));
        }
        break;
      default: break;
    }
    return true;
  };
  try {
    return parse_json<OrderedJson>(text, watch);
  } catch (const OrderedJson::exception& e) {
    place.fail(fmt::format("no valid JSON: {}", e.what()));
  }
}

void check_keys(const OrderedJson& j, const std::vector<std::string>& known,
                const JsonPlace& place) {
  if (!j.is_object()) place.fail(fmt::format("expected an object, found {}", j.type_name()));
  for (const auto& [key, value] : j.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    place.fail(fmt::format("unknown key '{}'{}", key,
                           near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
}

std::string text_of(const OrderedJson& j, const JsonPlace& place) {
  if (!j.is_string()) place.fail(fmt::format("expected a text, found {}", j.type_name()));
  std::string text = j.get<std::string>();
  if (text.empty()) place.fail("the text is empty");
  if (text.size() > kMostText) {
    place.fail(fmt::format("a text of {} bytes, at most {} are taken", text.size(), kMostText));
  }
  return text;
}

const OrderedJson& required(const OrderedJson& j, const char* key, const JsonPlace& place) {
  const auto it = j.find(key);
  if (it == j.end()) place.fail(fmt::format("the key '{}' is missing", key));
  return *it;
}

}  // namespace nibble
