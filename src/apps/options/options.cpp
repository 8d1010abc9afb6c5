// SPDX-License-Identifier: MIT
#include "apps/options/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace nibble {
namespace {

constexpr size_t kHelpWidth = 100;

std::string out_of_range(const FieldInfo& info, double v) {
  const bool bad = (info.least && v < *info.least) || (info.most && v > *info.most) ||
                   (info.above && v <= *info.above);
  return bad ? "is out of range" : "";
}

// "1..100", ">= 0", "> 0 and <= 1".
std::string describe_range(const FieldInfo& info) {
  if (info.above && info.most) return fmt::format("> {} and <= {}", *info.above, *info.most);
  if (info.least && info.most) return fmt::format("{}..{}", *info.least, *info.most);
  if (info.above) return fmt::format("> {}", *info.above);
  if (info.least) return fmt::format(">= {}", *info.least);
  if (info.most) return fmt::format("<= {}", *info.most);
  return "";
}

std::string expectation(const Field& f) {
  if (!f.info.choices.empty()) return fmt::format(": use {}", fmt::join(f.info.choices, ", "));
  if (f.kind == FieldKind::boolean) return ": use true or false";
  const std::string range = describe_range(f.info);
  return range.empty() ? "" : ": expected " + range;
}

void set_field(Field& f, const std::string& given_as, const std::string& text) {
  if (f.given() && f.kind != FieldKind::repeated) {
    if (f.given_as == given_as) throw_usage("{} is given twice", given_as);
    throw_usage("{} and {} are the same option, given twice", f.given_as, given_as);
  }
  const std::string wrong = f.set(text);
  if (!wrong.empty()) throw_usage("{}: '{}' {}{}", given_as, text, wrong, expectation(f));
  f.given_as = given_as;
}

bool is_boolean_word(const std::string& s) {
  bool value = false;
  return parse_value(s, value).empty();
}

std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  size_t i = 0;
  while (i < text.size()) {
    const size_t end = std::min(text.find(' ', i), text.size());
    const std::string word = text.substr(i, end - i);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    i = end + 1;
  }
  return lines;
}

}  // namespace

std::string value_name(const Field& f) {
  if (!f.info.value.empty()) return f.info.value;
  if (!f.info.choices.empty()) return fmt::format("{}", fmt::join(f.info.choices, "|"));
  switch (f.kind) {
    case FieldKind::boolean: return "";
    case FieldKind::number: return "N";
    case FieldKind::ids: return "N,N,...";
    case FieldKind::text:
    case FieldKind::repeated: return "TEXT";
  }
  return "";
}

namespace {

bool is_short(const std::string& flag) { return flag.size() == 2; }

// Those that are said beside the flag itself stand there.
std::vector<std::string> long_aliases(const Field& f) {
  std::vector<std::string> names = f.info.aliases;
  std::erase_if(names, is_short);
  return names;
}

}  // namespace

std::string flag_names(const Field& f) {
  std::string names;
  for (const std::string& a : f.info.aliases) {
    if (is_short(a)) names += a + ", ";
  }
  return names + f.info.flag;
}

std::string help_sentence(const Field& f) {
  std::string s = f.info.help;
  std::vector<std::string> notes;
  const std::string range = describe_range(f.info);
  if (!range.empty()) notes.push_back(range);
  if (f.kind == FieldKind::repeated && !f.info.rest) notes.push_back("may be repeated");
  const bool shows_default = !f.positional() && !f.info.required && !f.default_toml.empty() &&
                             f.default_toml != "\"\"" && f.default_toml != "false" &&
                             f.default_toml != "[]";
  if (shows_default) {
    std::string d = f.default_toml;
    if (d.size() >= 2 && d.front() == '"') d = d.substr(1, d.size() - 2);
    notes.push_back("default " + d);
  }
  if (const auto names = long_aliases(f); !names.empty()) {
    notes.push_back(fmt::format("also {}", fmt::join(names, ", ")));
  }
  if (!notes.empty()) s += fmt::format(" ({})", fmt::join(notes, "; "));
  return s;
}

std::string Field::key() const {
  std::string k = info.flag;
  k.erase(0, std::min(k.find_first_not_of('-'), k.size()));
  if (positional()) {
    for (char& c : k) c = char(std::tolower(static_cast<unsigned char>(c)));
  }
  return k;
}

bool Field::named(std::string_view flag) const {
  return (!positional() && info.flag == flag) ||
         std::ranges::find(info.aliases, flag) != info.aliases.end();
}

void Fields::add_field(FieldInfo info, FieldKind kind,
                       std::function<std::string(const std::string&)> set,
                       std::function<std::string()> toml) {
  Field f;
  f.section = section_;
  f.kind = kind;
  f.default_toml = toml();
  f.toml = std::move(toml);
  if (kind == FieldKind::number && !describe_range(info).empty()) {
    // Checked on the text, before the member changes: a rejected value must leave no trace.
    f.set = [info, set = std::move(set)](const std::string& text) {
      double v = 0;
      const bool number = parse_value(text, v).empty();
      const std::string wrong = number ? out_of_range(info, v) : "";
      return wrong.empty() ? set(text) : wrong;
    };
  } else {
    f.set = std::move(set);
  }
  f.info = std::move(info);
  for (const Field& other : fields_) {
    if (other.named(f.info.flag)) throw_internal("option {} is declared twice", f.info.flag);
    for (const std::string& a : f.info.aliases) {
      if (other.named(a)) throw_internal("option {} is declared twice", a);
    }
  }
  fields_.push_back(std::move(f));
}

void Fields::add(std::vector<std::string>& member, FieldInfo info) {
  add_field(
      std::move(info), FieldKind::repeated,
      [&member](const std::string& text) {
        member.push_back(text);
        return std::string();
      },
      [&member] { return toml_value(member); });
}

Field* Fields::find(std::string_view flag) {
  for (Field& f : fields_) {
    if (f.named(flag)) return &f;
  }
  return nullptr;
}

std::vector<const Field*> Fields::in_places() const {
  std::vector<const Field*> real, places;
  for (const Field& f : fields_) {
    if (f.positional()) real.push_back(&f);
    if (!f.info.place.empty()) places.push_back(&f);
  }
  return real.empty() ? places : real;
}

std::string Fields::to_toml() const {
  std::string out;
  for (const Field& f : fields_) {
    const std::string v = f.toml();
    // What has no value is shown, too, as a comment: the print is the whole configuration.
    if (v.empty()) {
      out += fmt::format("# {} is not set\n", f.key());
    } else {
      out += fmt::format("{} = {}\n", f.key(), v);
    }
  }
  return out;
}

namespace {

// A model named twice, or a prompt without its flag: both happen.
std::string unexpected_hint(const Field& first) {
  if (first.info.place.empty()) return "";
  return fmt::format(": {} is {} already, and everything else has a flag", first.info.place,
                     first.toml());
}

}  // namespace

void parse_arguments(Fields& fields, std::span<const std::string> args,
                     const ExplainUnknown& explain, const FindUnneeded& unneeded) {
  const std::vector<const Field*> positional = fields.in_places();
  size_t next_positional = 0;
  const auto take_positional = [&](const std::string& text) {
    const auto settled = [](const Field& f) {
      return f.given() && f.given_as != f.info.flag && f.kind != FieldKind::repeated;
    };
    while (next_positional < positional.size() && settled(*positional[next_positional])) {
      ++next_positional;  // given by its other name
    }
    if (next_positional == positional.size()) {
      throw_usage("unexpected argument '{}'{}", text,
                  positional.empty() ? ": this command takes flags only"
                                     : unexpected_hint(*positional.front()));
    }
    Field& f = fields.all()[size_t(positional[next_positional] - fields.all().data())];
    set_field(f, f.positional() ? f.info.flag : f.info.place, text);
    if (f.kind != FieldKind::repeated) ++next_positional;
    return f.info.rest;
  };

  bool flags_ended = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& token = args[i];
    if (flags_ended || token == "-" || !token.starts_with("-")) {
      flags_ended = take_positional(token) || flags_ended;
      continue;
    }
    if (token == "--") {
      flags_ended = true;
      continue;
    }
    const size_t equals = token.find('=');
    const std::string flag = token.substr(0, equals);
    Field* f = fields.find(flag);
    const auto value = f || !unneeded ? std::nullopt : unneeded(flag);
    if (!f && !value) throw UsageError(explain(flag));
    if (!f) {  // nothing reads its value either
      const bool follows = equals == std::string::npos && i + 1 < args.size() &&
                           (value == UnneededValue::boolean ? is_boolean_word(args[i + 1])
                                                            : !args[i + 1].starts_with("--"));
      if (follows) ++i;
      continue;
    }
    if (equals != std::string::npos) {
      set_field(*f, flag, token.substr(equals + 1));
    } else if (f->kind == FieldKind::boolean) {
      const bool word = i + 1 < args.size() && is_boolean_word(args[i + 1]);
      set_field(*f, flag, word ? args[++i] : "true");
    } else {
      if (i + 1 == args.size()) throw_usage("{} needs a value{}", flag, expectation(*f));
      if (args[i + 1].starts_with("--")) {
        throw_usage("{} needs a value, found '{}'; a value that starts with -- is written {}={}",
                    flag, args[i + 1], flag, args[i + 1]);
      }
      set_field(*f, flag, args[++i]);
    }
  }
}

size_t count_before_rest(Fields& fields, std::span<const std::string> args) {
  const bool takes_rest =
      std::ranges::any_of(fields.all(), [](const Field& f) { return f.info.rest; });
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") return i;
    if (!takes_rest) continue;
    if (args[i] == "-" || !args[i].starts_with("-")) return i;
    const Field* f = fields.find(args[i]);  // not found: written --key=value, or a mistake
    const bool value =
        f && i + 1 < args.size() && (f->kind != FieldKind::boolean || is_boolean_word(args[i + 1]));
    if (value) ++i;
  }
  return args.size();
}

std::vector<std::string> arguments_without(Fields& fields, std::span<const std::string> args,
                                           const std::function<bool(const Field&)>& leave_out) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const Field* f = fields.find(args[i].substr(0, equals));
    const bool value = f && equals == std::string::npos && i + 1 < args.size() &&
                       (f->kind != FieldKind::boolean || is_boolean_word(args[i + 1]));
    const size_t n = value ? 2 : 1;
    if (!f || !leave_out(*f)) {
      kept.insert(kept.end(), args.begin() + std::ptrdiff_t(i),
                  args.begin() + std::ptrdiff_t(i + n));
    }
    i += n - 1;
  }
  return kept;
}

void check_required(const Fields& fields, const std::string& command) {
  for (const Field& f : fields.all()) {
    if (f.info.required && !f.given()) {
      throw_usage("{}: {} is missing; see nibble {} --help", command, f.info.flag, command);
    }
    if (f.info.needs.empty() || !f.given_as.starts_with("-")) continue;
    const bool there = std::any_of(fields.all().begin(), fields.all().end(), [&](const Field& g) {
      return g.named(f.info.needs) && g.given() && g.toml() != "false";
    });
    if (!there) throw_usage("{} has no effect without {}", f.given_as, f.info.needs);
  }
}

std::string usage_arguments(const Fields& fields) {
  std::string s, rest;
  for (const Field& f : fields.all()) {
    if (f.info.rest) {
      rest = fmt::format(" [--] {} [ARGUMENTS...]", f.info.flag);
    } else if (f.positional()) {
      const char* dots = f.kind == FieldKind::repeated ? "..." : "";
      s += f.info.required ? fmt::format(" {}{}", f.info.flag, dots)
                           : fmt::format(" [{}{}]", f.info.flag, dots);
    }
  }
  for (const Field* f : fields.in_places()) {
    if (!f->positional()) s += fmt::format(" [{}]", f->info.place);
  }
  for (const Field& f : fields.all()) {
    if (!f.positional() && f.info.required) s += fmt::format(" {} {}", f.info.flag, value_name(f));
  }
  return s + " [options]" + rest;
}

std::string help_section(const Field& f) {
  if (f.positional()) return "Arguments";
  return f.info.common ? "Most used" : f.section;
}

std::vector<std::string> help_sections(const Fields& fields) {
  std::vector<std::string> sections;
  const auto note = [&](const std::string& s) {
    if (std::ranges::find(sections, s) == sections.end()) sections.push_back(s);
  };
  for (const std::string first : {"Arguments", "Most used"}) {
    for (const Field& f : fields.all()) {
      if (help_section(f) == first) note(first);
    }
  }
  for (const Field& f : fields.all()) note(help_section(f));
  return sections;
}

std::string help_paragraphs(const std::string& text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    // Lists are laid out by hand with several spaces, which a wrapped line would lose.
    const bool fits = line.size() <= kHelpWidth;
    out += fits ? line + "\n" : fmt::format("{}\n", fmt::join(wrap(line, kHelpWidth), "\n"));
    at = end + 1;
  }
  return out;
}

std::string help_text(const Fields& fields) {
  constexpr size_t kColumn = 30;
  std::string out;
  for (const std::string& section : help_sections(fields)) {
    out += fmt::format("\n{}:\n", section);
    for (const Field& f : fields.all()) {
      if (help_section(f) != section) continue;
      std::string left = "  " + flag_names(f);
      const std::string value = value_name(f);
      if (!f.positional() && !value.empty()) left += " " + value;
      bool first = true;
      if (left.size() + 2 > kColumn) {  // too long for the column: the text starts below
        out += left + "\n";
        left.clear();
      }
      for (const std::string& line : wrap(help_sentence(f), kHelpWidth - kColumn)) {
        out += fmt::format("{:<{}}{}\n", first ? left : "", kColumn, line);
        first = false;
      }
    }
  }
  return out;
}

}  // namespace nibble
