// SPDX-License-Identifier: MIT
#include "apps/manual/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apps/command.h"
#include "core/error.h"
#include "core/version.h"

namespace nibble {
namespace {

// The code point of UTF-8 `text` at `i`, which moves behind it. Our own texts are well formed.
uint32_t next_code_point(const std::string& text, size_t& i) {
  const auto byte = [&] { return uint32_t(static_cast<unsigned char>(text[i++])); };
  const uint32_t first = byte();
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  uint32_t code = first & (0x3fu >> more);
  for (int k = 0; k < more && i < text.size(); ++k) code = code << 6 | (byte() & 0x3f);
  return code;
}

// One line of text as roff input: nothing in it is taken for a request.
std::string roff(const std::string& text) {
  std::string s = text.starts_with(".") || text.starts_with("'") ? "\\&" : "";
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    switch (c) {
      case '\\': s += "\\e"; break;
      case '-': s += "\\-"; break;  // the ASCII sign, as it is typed
      case '\'': s += "\\(aq"; break;
      case '`': s += "\\(ga"; break;
      case '^': s += "\\(ha"; break;
      case '~': s += "\\(ti"; break;
      case '"': s += "\\(dq"; break;
      default: s += c < 0x80 ? std::string(1, char(c)) : fmt::format("\\[u{:04X}]", c);
    }
  }
  return s;
}
std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string head(std::string name, const std::string& summary) {
  std::string title = name;
  for (char& c : title) c = char(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(
      ".\\\" Made by: nibble man\n.TH {} 1 \"{}\" \"nibble {}\" \"nibble manual\"\n"
      ".SH NAME\n{} \\- {}\n",
      roff(title), kCommitDate, kVersion, roff(name), roff(summary));
}

// Paragraphs as they are; lines laid out in columns stay lines of their own.
std::string paragraphs(const std::string& text) {
  std::string s;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    const std::string paragraph = text.substr(begin, end - begin);
    const bool columns = paragraph.find("  ") != std::string::npos;
    s += begin > 0 ? ".PP\n" : "";
    s += columns ? ".nf\n" : "";
    for (size_t i = 0; i < paragraph.size();) {
      const size_t eol = std::min(paragraph.find('\n', i), paragraph.size());
      s += roff(paragraph.substr(i, eol - i)) + "\n";
      i = eol + 1;
    }
    s += columns ? ".fi\n" : "";
    begin = end + 2;
  }
  return s;
}

// ", -m": behind the flag itself, by which a page is searched.
std::string short_names(const Field& f) {
  std::string names;
  for (const std::string& a : f.info.aliases) names += a.size() == 2 ? ", " + a : "";
  return names;
}

std::string options(const Fields& fields) {
  std::string s = ".SH OPTIONS\n";
  for (const std::string& section : help_sections(fields)) {
    s += fmt::format(".SS {}\n", roff(section));
    for (const Field& f : fields.all()) {
      if (help_section(f) != section) continue;
      const std::string value = f.positional() ? "" : value_name(f);
      s += fmt::format(".TP\n{}{}\n{}.\n",
                       f.positional() ? italic(f.info.flag) : bold(f.info.flag + short_names(f)),
                       value.empty() ? "" : " " + italic(value), roff(help_sentence(f)));
    }
  }
  return s;
}

constexpr std::pair<ExitCode, const char*> kExitCodes[] = {
    {ExitCode::ok, "Everything worked."},
    {ExitCode::check_failed, "The program worked, and a check it was asked to make did not pass."},
    {ExitCode::usage, "An option or a request that makes no sense; the message says which."},
    {ExitCode::file, "A file is missing, damaged or not what was expected."},
    {ExitCode::device, "A device does not work, or there is too little memory."},
    {ExitCode::internal, "A bug in nibble."}};

}  // namespace

std::string manual_page() {
  std::string s = head("nibble", "fine-tune and run language models with NVFP4 weights");
  s += fmt::format(".SH SYNOPSIS\n{} [{}] {} [{}]\n.br\n{}\n.br\n{}\n", bold("nibble"),
                   italic("options"), italic("COMMAND"), italic("options"),
                   bold("nibble help") + " " + italic("COMMAND"), bold("nibble --version"));
  s += ".SH DESCRIPTION\n" +
       paragraphs(
           "nibble fine-tunes every parameter of a language model whose forward weights are NVFP4 "
           "(four\nbits a weight and one 8-bit scale for every sixteen of them), and runs the "
           "result, on the\nCPU or an NVIDIA GPU.\n\n"
           "Each command has a page of its own, nibble-COMMAND(1).");
  s += ".SH COMMANDS\n";
  for (const Command& c : commands()) {
    s += fmt::format(".TP\n{}(1)\n{}.\n", bold("nibble-" + c.name), roff(c.summary));
  }
  with_options_before_command([&](const Fields& fields) { s += options(fields); });
  s += ".SH EXIT STATUS\n";
  for (const auto& [code, text] : kExitCodes) s += fmt::format(".TP\n{}\n{}\n", int(code), text);
  s += ".SH ENVIRONMENT\n";
  s += fmt::format(".TP\n{}\nWhich GPUs the program sees; empty hides all of them.\n",
                   bold("CUDA_VISIBLE_DEVICES"));
  s += fmt::format(".TP\n{}\nWhere cuBLASLt is looked for first.\n", bold("LD_LIBRARY_PATH"));
  s += fmt::format(
      ".SH FILES\n.TP\n{}\nThe mini model, beside the folder of the program; {} names "
      "it.\n",
      italic("../share/nibble/models/mini"), bold("--model mini"));
  s += ".SH EXAMPLES\n.nf\nnibble doctor\nnibble chat \\-\\-model mini\n.fi\n.SH SEE ALSO\n";
  for (const Command& c : commands()) {
    s += fmt::format(".BR {} (1){}\n", roff("nibble-" + c.name),
                     &c == &commands().back() ? "" : ",");
  }
  return s;
}

std::string manual_page(const Command& command) {
  std::string s = head("nibble-" + command.name, command.summary);
  with_options(command, [&](const Fields& fields) {
    s += fmt::format(".SH SYNOPSIS\n{}{}\n", bold("nibble " + command.name),
                     roff(usage_arguments(fields)));
    if (!command.description.empty()) s += ".SH DESCRIPTION\n" + paragraphs(command.description);
    s += options(fields);
  });
  return s + ".SH SEE ALSO\n.BR nibble (1)\n";
}

}  // namespace nibble
