// SPDX-License-Identifier: MIT
#include "eval/damage/choice_file.h"

#include <fmt/format.h>

#include <unordered_set>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "eval/json_place.h"

namespace nibble {
namespace {

constexpr uint64_t kMostBytes = uint64_t(256) << 20;
constexpr size_t kMostChoices = 64;

std::string id_of(const OrderedJson& j, int64_t line, const JsonPlace& place) {
  const auto it = j.find("id");
  return it == j.end() ? fmt::format("line {}", line) : text_of(*it, place.at("id"));
}

void read_list(ChoiceQuestion& q, const OrderedJson& j, const JsonPlace& place) {
  const OrderedJson& choices = j["choices"];
  const JsonPlace here = place.at("choices");
  if (!choices.is_array() || choices.size() < 2 || choices.size() > kMostChoices) {
    here.fail(fmt::format("expected a list of 2 to {} texts", kMostChoices));
  }
  for (const OrderedJson& c : choices) q.choices.push_back(text_of(c, here));
  const OrderedJson& answer = required(j, "answer", place);
  if (!answer.is_number_integer() || answer < 0 || answer >= q.choices.size()) {
    place.at("answer").fail(fmt::format("{} is not the number of a choice, 0 to {}", answer.dump(),
                                        q.choices.size() - 1));
  }
  q.answer = answer.get<int64_t>();
}

}  // namespace

ChoiceSet parse_choices(std::string_view text, const std::string& name) {
  ChoiceSet set;
  set.name = name;
  std::unordered_set<std::string> ids;
  int64_t line = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view one = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line;
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const JsonPlace place{fmt::format("{}:{}", name, line)};
    const OrderedJson j = parse_strictly(one, place);
    check_keys(j, {"id", "question", "choices", "answer"}, place);
    ChoiceQuestion q;
    q.id = id_of(j, line, place);
    if (!ids.insert(q.id).second) place.fail(fmt::format("the id '{}' is given twice", q.id));
    q.question = text_of(required(j, "question", place), place.at("question"));
    const ChoiceForm form = j.contains("choices") ? ChoiceForm::choices : ChoiceForm::last_word;
    if (form == ChoiceForm::choices) {
      read_list(q, j, place);
    } else {
      q.choices.push_back(text_of(required(j, "answer", place), place.at("answer")));
    }
    if (!set.questions.empty() && set.form != form) {
      place.fail("questions with choices and last words in one file; they have different scores");
    }
    set.form = form;
    set.questions.push_back(std::move(q));
  }
  if (set.questions.empty()) throw_format("{}: there is no question in it", name);
  return set;
}

ChoiceFile read_choices(const std::filesystem::path& file, int64_t most) {
  const std::string text = read_text_file(file, kMostBytes);
  ChoiceFile f{parse_choices(text, file.string()), sha256_hex(text)};
  if (most > 0 && most < int64_t(f.set.questions.size())) {
    f.set.questions.resize(size_t(most));
  }
  return f;
}

}  // namespace nibble
