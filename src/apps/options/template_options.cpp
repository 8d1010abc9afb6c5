// SPDX-License-Identifier: MIT
#include "apps/options/template_options.h"

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "tokenizer/python_json.h"

namespace nibble {

void TemplateFlags::visit_choice(Fields& f) {
  f.add(chat_template, {.flag = "--template", .help = kTemplateHelp, .value = "NAME|FILE"});
  f.add_choice(thinking,
               {.flag = "--thinking",
                .help = "What the template is told of enable_thinking; auto says nothing"},
               {{"auto", ThinkingChoice::automatic},
                {"on", ThinkingChoice::on},
                {"off", ThinkingChoice::off}});
}

void TemplateFlags::visit_fields(Fields& f) {
  visit_choice(f);
  f.add(tools_file, {.flag = "--tools",
                     .help = "Functions the model may call: a JSON list of their descriptions",
                     .value = "FILE"});
  f.add(parse_content,
        {.flag = "--parse-content",
         .help = "Strings like <|im_end|> in messages become control tokens; by default they are "
                 "text"});
}

bool TemplateFlags::used() const {
  return !chat_template.empty() || thinking != ThinkingChoice::automatic || !tools_file.empty() ||
         parse_content;
}

std::optional<bool> TemplateFlags::enable_thinking() const {
  if (thinking == ThinkingChoice::automatic) return std::nullopt;
  return thinking == ThinkingChoice::on;
}

std::vector<std::string> TemplateFlags::tools() const {
  std::vector<std::string> out;
  if (tools_file.empty()) return out;
  using Json = nlohmann::ordered_json;
  const Json j = parse_json_or_discard<Json>(read_text_file(tools_file));
  if (j.is_discarded()) throw_format("{}: not valid JSON", tools_file.string());
  for (const Json& tool : j.is_array() ? j : Json::array({j})) {
    if (!tool.is_object()) {
      throw_format("{}: expected a list of objects that describe functions", tools_file.string());
    }
    out.push_back(python_json(tool));
  }
  return out;
}

}  // namespace nibble
