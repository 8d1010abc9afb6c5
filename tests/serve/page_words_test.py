#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page's table of texts: every key that a module asks for is there, in two languages, and none is left over."""
import pathlib
import re
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "src/serve/page/static"
ENTRY = re.compile(r"^  (\w+): \[((?:.|\n)*?)\],$", re.M)
TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'")
# Keys that are put together: `state_${state}`.
MADE = re.compile(r"`(\w+_)\$\{")


def table():
    entries = {}
    for file in sorted(FOLDER.glob("words*.js")):
        for key, value in ENTRY.findall(file.read_text()):
            assert key not in entries, f"{key} is given twice"
            entries[key] = TEXT.findall(value)
    return entries


class Words(unittest.TestCase):
    def setUp(self):
        self.words = table()
        self.code = "\n".join(f.read_text() for f in FOLDER.glob("*.js") if not f.name.startswith("words"))

    def test_two_languages(self):
        self.assertGreater(len(self.words), 150)
        for key, texts in self.words.items():
            self.assertEqual(len(texts), 2, key)
            self.assertTrue(all(texts), key)
            english, chinese = texts
            self.assertEqual(sorted(re.findall(r"\{\w+\}", english)), sorted(re.findall(r"\{\w+\}", chinese)), key)

    def test_every_key_is_there(self):
        asked = set(re.findall(r"\bt\('(\w+)'", self.code))
        self.assertEqual(asked - set(self.words), set())

    def test_none_is_left_over(self):
        made = tuple(MADE.findall(self.code))
        for key in self.words:
            self.assertTrue(f"'{key}'" in self.code or key.startswith(made), f"{key} is asked for nowhere")


if __name__ == "__main__":
    unittest.main()
