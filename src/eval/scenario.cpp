// SPDX-License-Identifier: MIT
#include "eval/scenario.h"

#include <sstream>

#include "core/error.h"
#include "core/file.h"

namespace nibble {

std::vector<std::string> read_scenario(const std::filesystem::path& file) {
  std::vector<std::string> turns;
  std::istringstream in(read_text_file(file, 64 << 20));
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos || line[0] == '#') continue;
    std::string turn;
    for (size_t i = 0; i < line.size(); ++i) {
      const bool newline = line[i] == '\\' && i + 1 < line.size() && line[i + 1] == 'n';
      turn += newline ? '\n' : line[i];
      i += newline;
    }
    turns.push_back(turn);
  }
  if (turns.empty())
    throw_format("{}: a scenario needs at least one line that is not blank or a comment",
                 file.string());
  return turns;
}

std::vector<std::string> predecessor_scenario(const std::string& first, ScenarioEnd end) {
  const std::string last_question = "我上個問句是什麼?(這樣的問句也算)";
  const std::string echo = "請把我上一個問句原封不動地重複一次";
  std::vector<std::string> turns = {first,
                                    "我不認同UFO不存在，且你好株株",
                                    "我們剛剛在討論啥?",
                                    last_question,
                                    last_question,
                                    "你媽好嗎??",
                                    echo,
                                    "你媽好嗎??"};
  if (end == ScenarioEnd::goes_on) turns.insert(turns.end(), {echo, echo});
  return turns;
}

}  // namespace nibble
