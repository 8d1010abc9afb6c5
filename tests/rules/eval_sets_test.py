# SPDX-License-Identifier: MIT
"""tools/eval_sets.py on an archive and texts of our own."""
import contextlib
import gzip
import importlib.util
import io
import json
import pathlib
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("eval_sets", ROOT / "tools/eval_sets.py")
eval_sets = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(eval_sets)


def archive(where, rows):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as z:
        text = "".join(json.dumps(r) + "\n" for r in rows)
        z.writestr(f"{eval_sets.TASKS}{where}/requests.jsonl.gz", gzip.compress(text.encode()))
    return zipfile.ZipFile(data)


def asked(doc_id, query, choice, context=None):
    return {"doc_id": doc_id, "doc": {"query": query, "choices": ["a", "b"], "gold": 1},
            "request": {"context": query if context is None else context, "continuation": choice}}


class EvalSets(unittest.TestCase):
    def test_a_question_comes_once_and_without_its_shots(self):
        rows = [asked(0, "Q0\nA:", " a", "shots\n\nQ0\nA:"), asked(0, "Q0\nA:", " b", "shots\n\nQ0\nA:"),
                asked(1, "Q1\nA:", " a"), asked(2, "Q0\nA:", " a", "Answer:")]
        with archive("arc_easy/test_rc_5shot", rows) as z:
            lines = eval_sets.make_set("arc_easy", z).decode().splitlines()
        self.assertEqual([json.loads(l) for l in lines],
                         [{"id": "0", "question": "Q0\nA:", "choices": [" a", " b"], "answer": 1},
                          {"id": "1", "question": "Q1\nA:", "choices": [" a", " b"], "answer": 1}])

    def test_a_last_word(self):
        row = {"doc_id": 3, "doc": {"text": "he saw it"}, "request": {"context": "he saw", "continuation": " it"}}
        with archive("lambada/bpb_0shot", [row]) as z:
            self.assertEqual(json.loads(eval_sets.make_set("lambada", z)),
                             {"id": "3", "question": "he saw", "answer": " it"})

    def test_texts_are_cut_between_articles(self):
        with tempfile.TemporaryDirectory() as d:
            folder = pathlib.Path(d)
            text = "\n = One = \n\n text \n\n = = Part = = \n\n = Two = \n\n more \n"
            (folder / "wikitext2-test.txt").write_text(text)
            first, second = eval_sets.wikitext(folder)
            self.assertEqual(first + second, text)
            self.assertTrue(second.startswith(" = Two = "))
            data = [{"paragraphs": [{"context": c} for c in cs]} for cs in (["甲", "乙"], ["丙"])]
            (folder / "DRCD_dev.json").write_text(json.dumps({"data": data}))
            self.assertEqual(eval_sets.drcd(folder), ["甲\n乙\n", "丙\n"])

    def test_no_source_file_is_in_both_parts(self):
        measured, training = ({l for l in part.splitlines() if l.startswith("// src/")}
                              for part in eval_sets.code())
        self.assertTrue(measured and training)
        self.assertFalse(measured & training)

    def test_another_content_is_refused_and_nothing_is_replaced(self):
        with tempfile.TemporaryDirectory() as d, contextlib.redirect_stdout(io.StringIO()):
            folder = pathlib.Path(d)
            with self.assertRaises(SystemExit):
                eval_sets.write(folder, "a.txt", b"x", "00")
            self.assertFalse((folder / "a.txt").exists())
            eval_sets.write(folder, "a.txt", b"x", eval_sets.sha256(b"x"))
            eval_sets.write(folder, "a.txt", b"x", None)
            with self.assertRaises(SystemExit):
                eval_sets.write(folder, "a.txt", b"y", None)
            self.assertEqual((folder / "a.txt").read_bytes(), b"x")


if __name__ == "__main__":
    unittest.main()
