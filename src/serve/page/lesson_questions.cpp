// SPDX-License-Identifier: MIT
#include "serve/page/lesson_questions.h"

#include <algorithm>
#include <set>

#include "data/records.h"

namespace nibble {
namespace {

constexpr std::string_view kKept[] = {
    "What is 7 + 8?",
    "What is 6 times 9?",
    "What is the capital of Japan?",
    "What is the opposite of hot?",
    "How many legs does a cat have?",
    "Which day comes after Monday?",
    "What is the highest mountain in the world?",
    "Good morning!",
    "Thank you for your help.",
    "Tell me a short story about a little dog.",
    "What is my name?",
    "7 加 8 等於多少？",
    "日本的首都是哪裡？",
    "「熱」的相反是什麼？",
    "貓有幾條腿？",
    "星期一的後一天是星期幾？",
    "羊的英文是什麼？",
    "早安！",
    "謝謝你的幫忙。",
    "我是誰？",
};

constexpr std::string_view kOthers[] = {
    "What is 12 + 9?",
    "What is the capital of France?",
    "What is the opposite of big?",
    "Which month comes after May?",
    "How many days are in a week?",
    "What is the color of grass?",
    "Good night!",
    "Where does a duck live?",
    "15 減 7 等於多少？",
    "法國的首都是哪裡？",
    "「大」的相反是什麼？",
    "五月的下一個月是幾月？",
    "天空是什麼顏色？",
    "水的沸點是多少度？",
    "晚安！",
    "狗的英文是什麼？",
};

std::set<std::string> taught(const Lesson& l) {
  std::set<std::string> all;
  for (const LessonRow& r : l.rows) all.insert(normalised(r.question));
  return all;
}

}  // namespace

std::span<const std::string_view> kept_questions() { return kKept; }

std::vector<std::string> other_questions(const Lesson& l) {
  std::set<std::string> known = taught(l);
  for (const std::string& p : l.prompts) known.insert(normalised(p));
  std::vector<std::string> out;
  for (const std::string_view q : kOthers) {
    if (!known.contains(normalised(q))) out.emplace_back(q);
  }
  return out;
}

std::vector<std::string> prompts_not_taught(const Lesson& l) {
  const std::set<std::string> known = taught(l);
  std::vector<std::string> out;
  std::ranges::copy_if(l.prompts, std::back_inserter(out),
                       [&](const std::string& p) { return !known.contains(normalised(p)); });
  return out;
}

}  // namespace nibble
