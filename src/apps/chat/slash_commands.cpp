// SPDX-License-Identifier: MIT
#include "apps/chat/slash_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/text/nearest_name.h"
#include "core/text/visible.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct SlashRow {
  std::string_view name, argument, does;
  Slash command;
};
constexpr SlashRow kSlashRows[] = {
    {"/help", "", "this list", Slash::help},
    {"/reset", "", "forget the conversation, but not the system message", Slash::reset},
    {"/system", "[TEXT]", "show the system message, or set it (\"\" for none); the turns stay",
     Slash::system},
    {"/temp", "[T]", "show the temperature, or set it; 0 is greedy", Slash::temp},
    {"/regen", "", "another reply to the last question", Slash::regen},
    {"/undo", "", "take the last question and its reply back", Slash::undo},
    {"/save", "[--force] FILE", "the conversation with its cache; --force replaces a file",
     Slash::save},
    {"/load", "FILE", "go on with a saved conversation, without computing it again", Slash::load},
    {"/stats", "", "tokens in use", Slash::stats},
    {"/exit", "", "leave (Ctrl+D as well)", Slash::exit},
    {"/quit", "", "", Slash::exit},
};

constexpr std::string_view kBlock = "\"\"\"";

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// What stands between the marks; a line end right behind the first or before the last is theirs.
std::string_view inside_block(std::string_view s) {
  s.remove_prefix(kBlock.size());
  if (s.ends_with(kBlock)) s.remove_suffix(kBlock.size());
  if (s.starts_with('\n')) s.remove_prefix(1);
  if (s.ends_with('\n')) s.remove_suffix(1);
  return s;
}

}  // namespace

std::string block_or_text(std::string_view text) {
  const std::string_view s = trimmed(text);
  return std::string(s.starts_with(kBlock) ? inside_block(s) : s);
}

bool is_unfinished(std::string_view text) {
  constexpr std::string_view kSystem = "/system ";
  std::string_view s = trimmed(text);
  if (s.starts_with(kSystem)) s = trimmed(s.substr(kSystem.size()));
  if (!s.starts_with(kBlock)) return false;
  return s.size() < 2 * kBlock.size() || !s.ends_with(kBlock);
}

Typed read_typed(std::string_view text, bool terminal) {
  if (text.find_first_not_of(" \t\n") == std::string_view::npos) return {};
  const Typed said{Typed::Kind::said, {}, std::string(text)};
  if (terminal && trimmed(text).starts_with(kBlock)) {
    std::string block = block_or_text(text);
    if (block.find_first_not_of(" \t\n") == std::string::npos) return {};
    return {Typed::Kind::said, {}, std::move(block)};
  }
  if (text[0] != '/') return said;
  if (text.starts_with("//")) return {Typed::Kind::said, {}, std::string(text.substr(1))};
  const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  for (const SlashRow& row : kSlashRows) {
    if (row.name == text.substr(0, end)) {
      return {Typed::Kind::command, row.command, std::string(trimmed(text.substr(end)))};
    }
  }
  const bool words = terminal ? text.find('\n') != std::string_view::npos
                              : text.find(' ') != std::string_view::npos || text.size() == 1;
  if (words) return said;
  return {Typed::Kind::unknown, {}, std::string(text)};
}

std::string slash_help() {
  std::string text;
  for (const SlashRow& row : kSlashRows) {
    if (row.does.empty()) continue;
    text += fmt::format("{:<23} {}\n", fmt::format("{} {}", row.name, row.argument), row.does);
  }
  return text +
         "//text                  text that begins with a slash\n"
         "\"\"\"                     begins a text of several lines, which \"\"\" ends; Alt+Enter "
         "adds a line\n"
         "Ctrl+C ends a reply, or clears the line. Up and Down, Ctrl+R: what was typed before. Tab "
         "completes.\n";
}

std::string unknown_answer(std::string_view text) {
  const std::string name(text.substr(0, text.find_first_of(" \t\n")));
  std::vector<std::string> names;
  for (const SlashRow& row : kSlashRows) names.emplace_back(row.name);
  const std::string near = nearest_name(name, names);
  return fmt::format("unknown command {}{}; /help lists them, //text is text with a slash\n",
                     visible_line(name),
                     near.empty() ? "" : fmt::format(": did you mean {}?", near));
}

Completion complete_typed(std::string_view text) {
  Completion found;
  if (!text.starts_with('/')) return found;
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) {
    for (const SlashRow& row : kSlashRows) {
      if (!row.name.starts_with(text)) continue;
      found.words.push_back(std::string(row.name) + (row.argument.empty() ? "" : " "));
    }
    return found;
  }
  const std::string_view name = text.substr(0, space);
  if (name != "/save" && name != "/load") return found;
  found.begin = space + 1;
  if (text.substr(found.begin).starts_with(kForceWord)) found.begin += kForceWord.size();
  const std::string begun(text.substr(found.begin));
  const size_t slash = begun.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : begun.substr(0, slash + 1);
  const std::string start = begun.substr(folder.size());
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ec)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(start) || (start.empty() && file.starts_with("."))) continue;
    found.words.push_back(folder + file + (entry.is_directory(ec) ? "/" : ""));
  }
  std::ranges::sort(found.words);
  return found;
}

}  // namespace nibble
