// SPDX-License-Identifier: MIT
// A record as a JSON object: parsed strictly, and what it must be for its use.
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "data/lines.h"
#include "data/read/shapes.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

// Refuses what a document tree would hide (a key given twice) or choke on.
class Strictness {
 public:
  bool operator()(int, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      keys_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) throw_format("the key \"{}\" twice", excerpt(key));
      if (keys_.back().size() > kMaxKeys) throw_format("an object of over {} keys", kMaxKeys);
    }
    return true;
  }

 private:
  static constexpr size_t kMaxKeys = 1024;
  std::vector<std::set<std::string>> keys_;  // of each object we are in
};

Json parse_object(std::string_view line) {
  if (too_deep_in_json(line)) throw_format("nested deeper than {}", kMaxNesting);
  Json j;
  try {
    // By reference: the parser copies its callback.
    Strictness strict;
    j = parse_json<Json>(
        line, [&](int depth, Json::parse_event_t e, Json& v) { return strict(depth, e, v); });
  } catch (const Json::parse_error& e) {
    const bool array = line.starts_with("[");
    throw_format("not valid JSON at character {} of the line: '{}'{}", e.byte, excerpt(line),
                 array ? "; an array over several lines belongs in a .json file" : "");
  } catch (const Json::exception& e) {  // a number too large
    throw_format("not valid JSON: {}", e.what());
  }
  if (!j.is_object()) throw_format("not a JSON object but '{}'", excerpt(line));
  return j;
}

}  // namespace

DataRecord parse_json_record(std::string_view object, DataUse use, DataWants wants) {
  const Json j = parse_object(object);
  DataRecord record = record_from_json(j);
  const bool text = record.messages.empty();
  if (wants == DataWants::anything) {
    if (!text) check_turns(record.messages);
    return record;
  }
  if (wants == DataWants::prompt) {
    if (text || record.messages.back().role == Role::assistant) {
      throw_format(
          "this line has its answer, or is plain text, and the lines before it are prompts: "
          "put them into files of their own");
    }
    check_turns(record.messages);
    if (record.messages.back().role != Role::user) {
      throw_format("the last message is from '{}': there is nothing to answer",
                   role_name(record.messages.back().role));
    }
    return record;
  }
  if (text && use == DataUse::fine_tune) {
    throw_format(
        "a \"text\" has no prompt and response to tell apart: it is for pretraining; here a line "
        "needs \"messages\", or \"prompt\" and \"target\"");
  }
  if (!text && !j.contains("messages") && record.messages.back().role == Role::user) {
    check_turns(record.messages);
    throw_format(
        "a prompt without its answer, which is expected in \"target\", \"response\", "
        "\"completion\", \"output\" or \"answer\"");
  }
  if (!text) check_conversation(record.messages);
  return record;
}

}  // namespace nibble
