// SPDX-License-Identifier: MIT
// Values that are made rather than listed. A key names what two uses have in common: if it is held
// out, neither order, language nor phrasing of it is trained on.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "mini/grammar.h"

namespace nibble {
namespace {

std::string text(uint32_t n) { return std::to_string(n); }
std::string fact(const Row&) { return {}; }

std::string pair_key(std::string_view task, const Row& r) {
  const uint32_t a = uint32_t(std::stoul(r.at("a"))), b = uint32_t(std::stoul(r.at("b")));
  return fmt::format("{} {} {}", task, std::min(a, b), std::max(a, b));
}

Row make_add(const Grammar&, Draw& d) {
  const uint32_t a = d.below(101), b = d.below(101 - a);
  return {{"a", text(a)}, {"b", text(b)}, {"c", text(a + b)}};
}
Row make_sub(const Grammar&, Draw& d) {
  const uint32_t a = d.below(101), b = d.below(a + 1);
  return {{"a", text(a)}, {"b", text(b)}, {"c", text(a - b)}};
}
Row make_mul(const Grammar&, Draw& d) {
  const uint32_t a = 1 + d.below(9), b = 1 + d.below(9);
  return {{"a", text(a)}, {"b", text(b)}, {"c", text(a * b)}};
}
Row make_compare(const Grammar&, Draw& d) {
  const uint32_t a = d.below(100), other = d.below(99), b = other + (other >= a ? 1 : 0);
  return {{"a", text(a)}, {"b", text(b)}, {"l", text(std::max(a, b))}, {"s", text(std::min(a, b))}};
}
Row make_next(const Grammar&, Draw& d) {
  const uint32_t a = d.below(100);
  return {{"a", text(a)}, {"b", text(a + 1)}};
}
Row make_count(const Grammar&, Draw& d) {
  const uint32_t a = d.below(30), b = a + 2 + d.below(8);
  std::string list = text(a);
  for (uint32_t n = a + 1; n <= b; ++n) list += ", " + text(n);
  return {{"a", text(a)}, {"b", text(b)}, {"list", list}};
}
Row make_sort(const Grammar&, Draw& d) {
  std::array<uint32_t, 3> v{};
  do {
    for (uint32_t& x : v) x = d.below(20);
  } while (v[0] == v[1] || v[1] == v[2] || v[0] == v[2]);
  Row r{{"x", text(v[0])}, {"y", text(v[1])}, {"z", text(v[2])}};
  std::sort(v.begin(), v.end());
  r["s1"] = text(v[0]), r["s2"] = text(v[1]), r["s3"] = text(v[2]);
  return r;
}
std::string sort_key(const Row& r) {
  return fmt::format("sort {} {} {}", r.at("s1"), r.at("s2"), r.at("s3"));
}

// Either direction of a pair of opposites.
Row make_opposite(const Grammar& g, Draw& d) {
  Row r = d.pick(g.tables.at("opposites").rows);
  if (d.percent(50)) {
    std::swap(r["zh"], r["ozh"]);
    std::swap(r["en"], r["oen"]);
  }
  return r;
}

// Everything that has a name in both languages.
Row make_word(const Grammar& g, Draw& d) {
  const auto& nouns = g.tables.at("nouns").rows;
  const auto& colours = g.tables.at("colours").rows;
  const auto& defined = g.tables.at("definitions").rows;
  const uint32_t at = d.below(uint32_t(nouns.size() + colours.size() + defined.size()));
  if (at < nouns.size()) return nouns[at];
  if (at < nouns.size() + colours.size()) return colours[at - nouns.size()];
  return defined[at - nouns.size() - colours.size()];
}

Row make_person(const Grammar& g, Draw& d) {
  for (;;) {
    const Row& r = d.pick(g.tables.at("definitions").rows);
    if (r.at("dzh").ends_with("人") && r.at("den").starts_with("a person")) return r;
  }
}

Row make_noun_category(const Grammar& g, Draw& d) {
  const auto& nouns = g.tables.at("nouns").rows;
  Row r = d.pick(nouns);
  const Row& asked = d.percent(50) ? r : d.pick(nouns);
  const std::string zh = asked.at("catzh"), en = asked.at("caten");
  r["qzh"] = zh, r["qen"] = en;
  const bool yes = zh == r["catzh"];
  r["yeszh"] = yes ? "是的，" : "不是，", r["yesen"] = yes ? "Yes," : "No,";
  return r;
}

Row make_phrase(const Grammar& g, Draw& d) {
  Row r = d.pick(g.tables.at("nouns").rows);
  const Row& c = d.pick(g.tables.at("colours").rows);
  r["czh"] = c.at("zh"), r["cen"] = c.at("en");
  return r;
}
std::string phrase_key(const Row& r) {
  return fmt::format("phrase {} {}", r.at("cen"), r.at("en"));
}

Row make_list(const Grammar& g, Draw& d) {
  static constexpr std::array<std::string_view, 3> kZh = {"兩", "三", "四"},
                                                   kEn = {"two", "three", "four"};
  Row r = d.pick(g.tables.at("categories").rows);
  const uint32_t n = d.below(3);
  r["nzh"] = kZh[n], r["nen"] = kEn[n];
  r["listzh"] = r.at(fmt::format("list{}zh", n + 2));
  std::string list = r.at(fmt::format("list{}en", n + 2));
  list[0] = char(list[0] - 'a' + 'A');
  r["Listen"] = list;
  return r;
}

Row make_story(const Grammar& g, Draw& d) {
  Row r = d.pick(g.tables.at("heroes").rows);
  const Row& p = d.pick(g.tables.at("places").rows);
  r["pzh"] = p.at("zh"), r["pen"] = p.at("en");
  return r;
}
std::string story_key(const Row& r) { return fmt::format("story {} {}", r.at("en"), r.at("pen")); }

struct Named {
  std::string_view zh, en;
};
template <size_t N>
Row make_cycle(const std::array<Named, N>& list, Draw& d) {
  const uint32_t i = d.below(N);
  const Named &before = list[(i + N - 1) % N], &now = list[i], &after = list[(i + 1) % N];
  return {{"zh", std::string(now.zh)},     {"en", std::string(now.en)},
          {"nzh", std::string(after.zh)},  {"nen", std::string(after.en)},
          {"bzh", std::string(before.zh)}, {"ben", std::string(before.en)}};
}
Row make_day(const Grammar&, Draw& d) {
  static constexpr std::array<Named, 7> kDays = {{{"星期一", "Monday"},
                                                  {"星期二", "Tuesday"},
                                                  {"星期三", "Wednesday"},
                                                  {"星期四", "Thursday"},
                                                  {"星期五", "Friday"},
                                                  {"星期六", "Saturday"},
                                                  {"星期日", "Sunday"}}};
  return make_cycle(kDays, d);
}
Row make_month(const Grammar&, Draw& d) {
  static constexpr std::array<Named, 12> kMonths = {{{"一月", "January"},
                                                     {"二月", "February"},
                                                     {"三月", "March"},
                                                     {"四月", "April"},
                                                     {"五月", "May"},
                                                     {"六月", "June"},
                                                     {"七月", "July"},
                                                     {"八月", "August"},
                                                     {"九月", "September"},
                                                     {"十月", "October"},
                                                     {"十一月", "November"},
                                                     {"十二月", "December"}}};
  return make_cycle(kMonths, d);
}

constexpr std::array<std::string_view, 40> kSurnames = {
    "陳", "林", "黃", "張", "李", "王", "吳", "劉", "蔡", "楊", "許", "鄭", "謝", "洪",
    "郭", "邱", "曾", "廖", "賴", "徐", "周", "葉", "蘇", "莊", "呂", "江", "何", "蕭",
    "羅", "高", "潘", "簡", "朱", "鍾", "游", "彭", "詹", "胡", "施", "沈"};
constexpr std::array<std::string_view, 60> kGiven = {
    "明", "美", "華", "文", "志", "偉", "怡", "君", "雅", "婷", "俊", "傑", "建", "宏", "淑",
    "芬", "惠", "玲", "家", "豪", "宗", "翰", "欣", "佳", "穎", "心", "柔", "子", "軒", "宇",
    "品", "妍", "安", "樂", "真", "國", "強", "大", "春", "梅", "秋", "月", "雲", "龍", "玉",
    "蘭", "英", "信", "義", "平", "光", "天", "海", "山", "青", "竹", "麗", "珍", "香", "晴"};

Row make_name_zh(const Grammar&, Draw& d) {
  std::string name;
  if (d.percent(30)) {
    // Drawn one after the other: operands may be evaluated in either order, and ARM takes the
    // other.
    const std::string_view given = d.pick(kGiven);
    name = d.percent(60) ? "小" : "阿";
    name += given;
  } else {
    name = d.pick(kSurnames);
    name += d.pick(kGiven);
    if (d.percent(85)) name += d.pick(kGiven);
  }
  return {{"name", name}, {"p", d.percent(50) ? "他" : "她"}};
}

constexpr std::array<std::string_view, 64> kNames = {
    "Alice", "Bob",  "Carol", "David",  "Emma",  "Frank",  "Grace", "Henry", "Iris",  "Jack",
    "Kate",  "Leo",  "Mary",  "Nick",   "Olive", "Peter",  "Queen", "Rose",  "Sam",   "Tina",
    "Uma",   "Vera", "Will",  "Xena",   "Yuki",  "Zoe",    "Anna",  "Ben",   "Clara", "Dan",
    "Eva",   "Fred", "Gina",  "Hugo",   "Ivan",  "Jane",   "Karl",  "Lily",  "Max",   "Nina",
    "Otto",  "Paul", "Rita",  "Sara",   "Tom",   "Victor", "Wendy", "Adam",  "Bella", "Chris",
    "Diana", "Eric", "Fiona", "George", "Helen", "John",   "Kevin", "Laura", "Mark",  "Nora",
    "Oscar", "Ruth", "Simon", "Tara"};
// Made-up names, so that copying is learned and not a list of names.
constexpr std::array<std::string_view, 34> kOnsets = {
    "b",  "c",  "d",  "f",  "g",  "h",  "j",  "k",  "l",  "m",  "n",  "p",
    "r",  "s",  "t",  "v",  "w",  "y",  "z",  "bl", "br", "ch", "cl", "dr",
    "fl", "fr", "gr", "pl", "qu", "sh", "st", "th", "tr", ""};
constexpr std::array<std::string_view, 10> kVowels = {"a", "a", "e", "e",  "i",
                                                      "o", "o", "u", "ee", "ai"};
constexpr std::array<std::string_view, 24> kCodas = {"",   "",   "",   "",   "",   "",   "n",  "n",
                                                     "r",  "s",  "l",  "x",  "m",  "t",  "k",  "d",
                                                     "ck", "nk", "ng", "rt", "st", "th", "ry", "y"};

std::string made_up_word(Draw& d) {
  std::string word;
  for (uint32_t n = 1 + d.below(2); n > 0; --n) {
    word += d.pick(kOnsets);
    word += d.pick(kVowels);
    if (n == 1 || d.percent(20)) word += d.pick(kCodas);
  }
  return word.size() < 2 ? word + "n" : word;
}

Row make_name_en(const Grammar&, Draw& d) {
  std::string name(d.pick(kNames));
  if (d.percent(60)) {
    name = made_up_word(d);
    name[0] = char(name[0] - 'a' + 'A');
  }
  const bool he = d.percent(50);
  return {{"name", name},
          {"p", he ? "he" : "she"},
          {"P", he ? "He" : "She"},
          {"o", he ? "him" : "her"},
          {"poss", he ? "his" : "her"},
          {"Poss", he ? "His" : "Her"}};
}
std::string name_key(const Row& r) { return "name " + r.at("name"); }

// One to five different words.
std::vector<std::string> some_words(const Grammar& g, const char* column, Draw& d) {
  std::vector<std::string> out;
  for (uint32_t n = 2 + d.below(4); n > 0; --n) {
    std::string w = make_word(g, d).at(column);
    if (std::find(out.begin(), out.end(), w) == out.end()) out.push_back(std::move(w));
  }
  return out;
}
Row make_repeat_zh(const Grammar& g, Draw& d) {
  if (d.percent(25)) {
    const std::string name = make_name_zh(g, d).at("name");
    return {{"name", name}, {"x", name + "喜歡" + make_word(g, d).at("zh")}};
  }
  return {{"x", fmt::format("{}", fmt::join(some_words(g, "zh", d), "、"))}};
}
Row make_repeat_en(const Grammar& g, Draw& d) {
  auto words = some_words(g, "en", d);
  for (std::string& w : words) {
    if (d.percent(30)) w = made_up_word(d);
  }
  return {{"x", fmt::format("{}", fmt::join(words, " "))}};
}
std::string repeat_key(const Row& r) {
  return r.contains("name") ? name_key(r) : "repeat " + r.at("x");
}

constexpr struct {
  std::string_view name;
  NamedGenerator generator;
} kGenerators[] = {
    {"add", {make_add, [](const Row& r) { return pair_key("add", r); }}},
    {"sub", {make_sub, [](const Row& r) { return pair_key("sub", r); }}},
    {"mul", {make_mul, fact}},
    {"compare", {make_compare, [](const Row& r) { return pair_key("compare", r); }}},
    {"next", {make_next, fact}},
    {"count", {make_count, [](const Row& r) { return pair_key("count", r); }}},
    {"sort", {make_sort, sort_key}},
    {"opposite", {make_opposite, fact}},
    {"words", {make_word, fact}},
    {"definitions_people", {make_person, fact}},
    {"noun_category", {make_noun_category, fact}},
    {"phrase", {make_phrase, phrase_key}},
    {"list", {make_list, fact}},
    {"story", {make_story, story_key}},
    {"days", {make_day, fact}},
    {"months", {make_month, fact}},
    {"name_zh", {make_name_zh, name_key}},
    {"name_en", {make_name_en, name_key}},
    {"repeat_zh", {make_repeat_zh, repeat_key}},
    {"repeat_en", {make_repeat_en, repeat_key}},
};

}  // namespace

const NamedGenerator* find_generator(std::string_view name) {
  for (const auto& g : kGenerators) {
    if (g.name == name) return &g.generator;
  }
  return nullptr;
}

}  // namespace nibble
