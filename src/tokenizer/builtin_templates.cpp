// SPDX-License-Identifier: MIT
// {% generation %} surrounds what the model is to write: a reply with its end token.
#include "tokenizer/builtin_templates.h"

#include <string>

#include "core/error.h"

namespace nibble {
namespace {

constexpr std::string_view kChatMl =
    R"({%- if tools %}{{ raise_exception('the chatml template has no form for tools; qwen3 has') }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- if message.tool_calls %}{{ raise_exception('the chatml template has no form for tool calls; qwen3 has') }}{% endif %}
        {%- generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %})";

// `end` closes what the model reads.
constexpr std::string_view kQwen3 =
    R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}
    {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{ tool | tojson }}{% endfor %}
    {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' + end }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + end }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + end }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
            {{- message.content }}
            {%- for call in message.tool_calls or [] %}
                {%- if not loop.first or message.content %}{{- '\n' }}{% endif %}
                {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
                {%- if call.function.arguments is string %}
                    {{- call.function.arguments }}
                {%- else %}
                    {{- call.function.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
            {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %})";

}  // namespace

std::string_view template_name(TemplateStyle style) {
  switch (style) {
    case TemplateStyle::chatml: return "chatml";
    case TemplateStyle::qwen3: return "qwen3";
    case TemplateStyle::predecessor: return "predecessor";
  }
  throw_internal("template style {}", int(style));
}

std::string_view template_source(TemplateStyle style) {
  static const std::string qwen3 = "{%- set end = '<|im_end|>\\n' %}\n" + std::string(kQwen3);
  static const std::string predecessor =
      "{%- set end = '\\n<|im_end|>\\n' %}\n" + std::string(kQwen3);
  if (style == TemplateStyle::chatml) return kChatMl;
  return style == TemplateStyle::qwen3 ? qwen3 : predecessor;
}

}  // namespace nibble
