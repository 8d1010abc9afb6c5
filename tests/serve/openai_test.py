#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`nibble serve` asked by the Python package `openai`. Skipped (77) where that is not installed."""
import json
import sys
import time
import unittest

from serve_process import served

NIBBLE = sys.argv.pop(1)
try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed (pip install openai)")
    sys.exit(77)

WHO = [{"role": "user", "content": "Who are you?"}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = served(NIBBLE, "--streams", "3", "--queue", "8")
        cls.server = cls.context.__enter__()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.context.__exit__(None, None, None)

    def chat(self, **more):
        return self.client.chat.completions.create(model="mini", messages=WHO, **more)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["mini"])
        self.assertEqual(self.client.models.retrieve("mini").owned_by, "nibble")

    def test_chat_and_stream_say_the_same(self):
        whole = self.chat()
        text, usage, reasons = "", None, []
        for event in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.delta.content or ""
                reasons += [choice.finish_reason] if choice.finish_reason else []
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(reasons, ["stop"])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertGreater(usage.prompt_tokens_details.cached_tokens, 0)

    def test_choices_seeds_and_stops(self):
        drawn = dict(temperature=1.2, seed=5, n=3, max_tokens=20)
        a, b = self.chat(**drawn), self.chat(**drawn)
        self.assertEqual([c.message.content for c in a.choices], [c.message.content for c in b.choices])
        self.assertEqual([c.index for c in a.choices], [0, 1, 2])
        whole = self.chat().choices[0].message.content
        cut = self.chat(stop=[whole.split()[2]]).choices[0]
        self.assertTrue(whole.startswith(cut.message.content) and cut.finish_reason == "stop")
        self.assertLess(len(cut.message.content), len(whole))

    def test_logprobs(self):
        reply = self.chat(logprobs=True, top_logprobs=2).choices[0]
        self.assertEqual("".join(t.token for t in reply.logprobs.content), reply.message.content)
        self.assertEqual(len(reply.logprobs.content[0].top_logprobs), 2)
        c = self.client.completions.create(model="mini", prompt="Hello there", echo=True, logprobs=1, max_tokens=0)
        self.assertEqual("".join(c.choices[0].logprobs.tokens), "Hello there")

    def test_tools_are_taken_and_given_back(self):
        tool = {"type": "function", "function": {"name": "now", "description": "The time",
                                                 "parameters": {"type": "object", "properties": {}}}}
        call = {"id": "call-1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        reply = self.client.chat.completions.create(
            model="mini", tools=[tool], max_tokens=8,
            messages=WHO + [{"role": "assistant", "content": None, "tool_calls": [call]},
                            {"role": "tool", "tool_call_id": "call-1", "content": "noon"}])
        self.assertEqual(len(reply.choices), 1)

    def test_json_schema(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9},
                                                   "age": {"type": "integer"}},
                  "required": ["name", "age"], "additionalProperties": False}
        reply = self.chat(response_format={"type": "json_schema",
                                           "json_schema": {"name": "person", "strict": True, "schema": schema}})
        person = json.loads(reply.choices[0].message.content)
        self.assertEqual(list(person), ["name", "age"])
        self.assertIsInstance(person["age"], int)

    def test_a_call_that_is_forced(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}}
        for stream in (False, True):
            calls = []
            reply = self.chat(tools=[tool], tool_choice={"type": "function", "function": {"name": "weather"}},
                              stream=stream)
            for part in reply if stream else [reply]:
                for c in part.choices:
                    calls += (c.delta if stream else c.message).tool_calls or []
            self.assertEqual([c.function.name for c in calls], ["weather"])
            self.assertIn(json.loads(calls[0].function.arguments)["city"], ("Rome", "Oslo"))

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as e:
            self.client.chat.completions.create(model="gpt-9", messages=WHO)
        self.assertEqual(e.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as e:
            self.chat(temperature=9)
        self.assertEqual(e.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError):
            self.chat(extra_body={"nobody_knows": 1})
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="mini", input="x")

    def test_a_stream_that_is_left_is_cancelled(self):
        stream = self.client.completions.create(model="mini", prompt="Hello", max_tokens=1000, stream=True,
                                                temperature=1, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        for _ in range(100):
            metrics = self.client.with_options(base_url=self.server.url)
            text = metrics.get("/metrics", cast_to=str)
            if "nibble_requests_decoding 0\n" in text:
                return
            time.sleep(0.05)
        self.fail(text)


if __name__ == "__main__":
    unittest.main()
