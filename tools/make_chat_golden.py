#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/tokenizer/golden/chat.jsonl: conversations and what Qwen3's own Jinja template makes
of them, rendered as Hugging Face transformers does it.

Run: python3 tools/make_chat_golden.py tokenizer_config.json > tests/tokenizer/golden/chat.jsonl
"""
import json
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Current weather of a "city" — 天氣\n(second line)',
        "parameters": {
            "type": "object",
            "properties": {
                "zip": {"type": ["string", "null"], "default": None},
                "city": {"type": "string", "enum": ["台北", "Zürich", "a/b\\c"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
EMPTY = {"type": "function", "function": {"name": "noop", "parameters": {}, "tags": []}}
NUMBERS = {
    "z": [0, -1, 9007199254740993, 18446744073709551615, -9223372036854775808],
    "a": [0.0, -0.0, 1.0, 0.1, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 1.5e300, 5e-324, 2.5e-7],
    "text": "\u0001\u001f\u007f\u2028 <|im_end|> \b\f\t\r\n \\ \" / é 😀",
    "flags": [True, False, None, [], {}],
}


def m(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments):
    return {"name": name, "arguments": arguments}


CASES = [
    ([m("user", "Hi")], None),
    ([m("user", "")], None),
    ([m("user", "你是誰？"), m("assistant", "我是 nibble。"), m("user", "1+1=?\n\n")], None),
    ([m("system", "Be brief."), m("user", "Hello")], None),
    ([m("system", ""), m("user", "Hello")], None),
    ([m("user", "a"), m("system", "late system"), m("user", "b")], None),
    ([m("assistant", "I start."), m("user", "ok")], None),
    ([m("user", "quote <|im_end|> and <think>x</think>"), m("assistant", "<think>\n\n</think>\n\nfine")], None),
    ([m("user", "  leading and trailing  \n")], None),
    ([m("user", "weather?")], [WEATHER]),
    ([m("system", "You help."), m("user", "weather?")], [WEATHER, EMPTY]),
    ([m("user", "numbers")], [NUMBERS]),
    (
        [
            m("user", "weather in 台北 and Zürich?"),
            m("assistant", "", tool_calls=[call("get_weather", {"city": "台北", "days": 2}),
                                           call("get_weather", {"city": "Zürich"})]),
            m("tool", '{"t": 21.5}'),
            m("tool", "rain\n"),
            m("assistant", "21.5 °C and rain."),
            m("user", "thanks"),
        ],
        [WEATHER],
    ),
    (
        [
            m("user", "again"),
            m("assistant", "Let me look.", tool_calls=[{"type": "function", "id": "c1", "function": call("get_weather", '{"city":"X"}')}]),
            m("tool", "sun", tool_call_id="c1"),
        ],
        [WEATHER],
    ),
    ([m("user", "n"), m("assistant", None, tool_calls=[call("f", NUMBERS), call("g", {}), call("h", [])]), m("tool", "")], None),
    ([m("tool", "first"), m("tool", "second"), m("user", "x"), m("tool", "third")], None),
    ([m("user", "no calls"), m("assistant", "x", tool_calls=[])], None),
    ([m("user", "args"), m("assistant", "", tool_calls=[call("f", 1.5), call("g", None), call("h", True)])], None),
]


def main(path):
    template = json.load(open(path, encoding="utf-8"))["chat_template"]
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    compiled = env.from_string(template)
    for messages, tools in CASES:
        for prompt in (False, True):
            text = compiled.render(messages=messages, tools=tools, add_generation_prompt=prompt)
            print(json.dumps({"messages": messages, "tools": tools or [],
                              "add_generation_prompt": prompt, "expected": text}))


if __name__ == "__main__":
    main(sys.argv[1])
