// SPDX-License-Identifier: MIT
// Options as data. A struct holds the defaults; visit_fields names each member once: flag, aliases,
// help, range. It is a member of a command's own struct, and a function beside this file for the
// plain settings of other rooms. Command line, --help, run-config file and --print-config come from
// that. The command line is read here and not by a library because the rules are strict ones:
// `--flag true` beside `--flag`, nothing given twice, every mistake answered with the right name.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace nibble {

struct FieldInfo {
  std::string flag;        // "--seed"; an argument without dashes is positional: "IN", which may
                           // have aliases with dashes
  std::string help;        // one sentence, no full stop
  std::string value = {};  // the value's name in --help: "N", "FILE"
  std::vector<std::string> aliases = {};  // other spellings, accepted and shown
  std::vector<std::string> choices = {};  // filled by add_choice
  std::optional<double> least = {};       // range of numbers, both ends allowed
  std::optional<double> most = {};
  std::optional<double> above = {};  // like least, but the end itself is not allowed
  bool required = false;
  std::string needs = {};  // a flag without which this one says nothing: "--needle"
  bool rest = false;       // a repeated positional: from its first word on, everything is its value
  bool common = false;     // among the first of --help: what most people need
  // A flag that may be left out before its value ("MODEL"), in commands without positional fields.
  std::string place = {};
};

// Whether two words are the same in any letter case: scripts write Float16 and CE.
bool same_word(std::string_view a, std::string_view b);

// A size as people write it: "5GB", "500 MB", "2GiB", or bytes.
struct ByteSize {
  uint64_t bytes = 0;
};

// Text -> value. Return "" or what is wrong with the text ("is not a whole number").
std::string parse_value(const std::string& text, bool& out);
std::string parse_value(const std::string& text, int32_t& out);
std::string parse_value(const std::string& text, int64_t& out);
std::string parse_value(const std::string& text, uint64_t& out);
std::string parse_value(const std::string& text, float& out);
std::string parse_value(const std::string& text, double& out);
std::string parse_value(const std::string& text, std::string& out);
std::string parse_value(const std::string& text, std::filesystem::path& out);
std::string parse_value(const std::string& text, ByteSize& out);
std::string parse_value(const std::string& text, std::vector<int32_t>& out);  // "1,2,3"
// Value -> TOML.
std::string toml_value(bool v);
std::string toml_value(int32_t v);
std::string toml_value(int64_t v);
std::string toml_value(uint64_t v);
std::string toml_value(float v);
std::string toml_value(double v);
std::string toml_value(const std::string& v);
std::string toml_value(const std::filesystem::path& v);
std::string toml_value(ByteSize v);
std::string toml_value(const std::vector<int32_t>& v);
std::string toml_value(const std::vector<std::string>& v);

enum class FieldKind { boolean, number, text, ids, repeated };
template <class T>
struct FieldKindOf {
  static constexpr FieldKind value = FieldKind::number;
};
template <>
struct FieldKindOf<bool> {
  static constexpr FieldKind value = FieldKind::boolean;
};
template <>
struct FieldKindOf<std::string> {
  static constexpr FieldKind value = FieldKind::text;
};
template <>
struct FieldKindOf<std::filesystem::path> {
  static constexpr FieldKind value = FieldKind::text;
};
template <>
struct FieldKindOf<ByteSize> {
  static constexpr FieldKind value = FieldKind::text;
};
template <>
struct FieldKindOf<std::vector<int32_t>> {
  static constexpr FieldKind value = FieldKind::ids;
};

struct Field {
  FieldInfo info;
  FieldKind kind = FieldKind::text;
  bool is_path = false;                                // file names complete it
  std::string section;                                 // heading in --help
  std::function<std::string(const std::string&)> set;  // "" or what is wrong
  std::function<std::string()> toml;                   // current value; "" when there is none
  std::string default_toml;
  std::string given_as;  // where the value came from; "" while it is the default

  bool positional() const { return !info.flag.starts_with("-"); }
  bool given() const { return !given_as.empty(); }
  std::string key() const;  // in a run-config: the flag without dashes, in lower case
  bool named(std::string_view flag) const;
};

// What visit_fields fills. Holds references into the options struct, which must outlive it.
class Fields {
 public:
  // The heading for what follows.
  void section(std::string title) { section_ = std::move(title); }

  // bool, int32_t, int64_t, uint64_t, float, double, std::string, path, vector<int32_t>, or an
  // optional of one of those (unset until given).
  template <class T>
  void add(T& member, FieldInfo info) {
    add_field(
        std::move(info), FieldKindOf<T>::value,
        [&member](const std::string& text) { return parse_value(text, member); },
        [&member] { return toml_value(member); });
    fields_.back().is_path = std::is_same_v<T, std::filesystem::path>;
  }
  template <class T>
  void add(std::optional<T>& member, FieldInfo info) {
    add_field(
        std::move(info), FieldKindOf<T>::value,
        [&member](const std::string& text) {
          T value{};
          std::string wrong = parse_value(text, value);
          if (wrong.empty()) member = std::move(value);
          return wrong;
        },
        [&member] { return member ? toml_value(*member) : std::string(); });
    fields_.back().is_path = std::is_same_v<T, std::filesystem::path>;
  }
  // The only kind that may be given several times; an array in a run-config.
  void add(std::vector<std::string>& member, FieldInfo info);

  // An enum by name. Several names may stand for one value; the first is the one shown.
  template <class E>
  void add_choice(E& member, FieldInfo info, std::vector<std::pair<std::string, E>> names) {
    std::vector<E> seen;
    for (const auto& [name, value] : names) {
      bool first = true;
      for (const E s : seen) first = first && s != value;
      if (first) info.choices.push_back(name);
      seen.push_back(value);
    }
    add_field(
        std::move(info), FieldKind::text,
        [&member, names](const std::string& text) {
          for (const auto& [name, value] : names) {
            if (same_word(name, text)) {
              member = value;
              return std::string();
            }
          }
          return std::string("is not one of the choices");
        },
        [&member, names] {
          for (const auto& [name, value] : names) {
            if (value == member) return toml_value(name);
          }
          return std::string();
        });
  }

  std::vector<Field>& all() { return fields_; }
  const std::vector<Field>& all() const { return fields_; }
  Field* find(std::string_view flag);  // by flag or alias; null when there is none
  std::string to_toml() const;         // the effective configuration, defaults included
  // What arguments without a flag are read into, in this order.
  std::vector<const Field*> in_places() const;

 private:
  void add_field(FieldInfo info, FieldKind kind, std::function<std::string(const std::string&)> set,
                 std::function<std::string()> toml);
  std::vector<Field> fields_;
  std::string section_ = "Options";
};

// Called with a flag no field has; returns the message of the UsageError.
using ExplainUnknown = std::function<std::string(const std::string& flag)>;
// Called with such a flag first: whether it may stand there all the same, and what its value is.
enum class UnneededValue { boolean, text };
using FindUnneeded = std::function<std::optional<UnneededValue>(const std::string& flag)>;

// Reads `--key value`, `--key=value`, `--flag`, `--flag false` and positional arguments into
// `fields`; `--`, or the first word of a field that takes the rest, ends the flags. Throws
// UsageError.
void parse_arguments(Fields& fields, std::span<const std::string> args,
                     const ExplainUnknown& explain, const FindUnneeded& unneeded = {});
// How many of `args` come before `--` or the first word of a field that takes the rest.
size_t count_before_rest(Fields& fields, std::span<const std::string> args);
// `args` without the options, and their values, that `leave_out` chooses.
std::vector<std::string> arguments_without(Fields& fields, std::span<const std::string> args,
                                           const std::function<bool(const Field&)>& leave_out);
// Keys of a TOML file, for fields the command line did not give. `file` names it in errors.
void apply_run_config(Fields& fields, const std::filesystem::path& file, const std::string& command,
                      const ExplainUnknown& explain);
// Throws UsageError naming the first required field that was not given, or one that was given on
// the command line although the flag it needs was not. (A run-config may hold every key.)
void check_required(const Fields& fields, const std::string& command);

std::string help_text(const Fields& fields);  // the option list of --help
// The description above it, with what is longer than a line broken between words.
std::string help_paragraphs(const std::string& text);
// Its headings in their order, and that of a field: what most people need comes first.
std::vector<std::string> help_sections(const Fields& fields);
std::string help_section(const Field& field);
std::string usage_arguments(const Fields& fields);  // " IN OUT --text T [options]"
std::string value_name(const Field& field);         // "FILE", "auto|cpu"; "" for a boolean
std::string help_sentence(const Field& field);      // the help with range, default and aliases
std::string flag_names(const Field& field);         // "-m, --model"

}  // namespace nibble
