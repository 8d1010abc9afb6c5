#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lm-evaluation-harness, local-completions over HTTP and a task of a local file, against `nibble check
--choices` of the same questions. Skipped (77) where lm_eval or transformers is not installed."""
import json
import os
import sys
import unittest

from judge import MINI, NIBBLE, ROOT, need, nibble, real_models, scratch

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
sys.path.append(str(ROOT / "tests" / "serve"))
from serve_process import served  # noqa: E402

lm_eval, lm_tasks, transformers = need(("lm_eval", "lm_eval[api]"), ("lm_eval.tasks", "lm_eval[api]"),
                                       ("transformers", "transformers"))
CHOICES = ROOT / "tests" / "apps" / "choices.jsonl"
WORDS = [("Who are you? I am", " Mini"), ("2 + 3 =", " 5"), ("The sky is", " blue"), ("Once upon a", " time")]
NUMBERS = ["--kv-dtype", "fp32"]
# A blank before a choice is the harness's to put there, as in its own tasks: it does not count in acc_norm.
CHOSEN = ('doc_to_text: "{{question}}"\ndoc_to_choice: "{{choices | map(\'trim\') | list}}"\n'
          'doc_to_target: answer\noutput_type: multiple_choice\n')
TASKS = {
    "choices": CHOSEN + 'target_delimiter: " "\n',
    "joined": CHOSEN + 'target_delimiter: ""\n',
    "words": 'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\ntarget_delimiter: ""\n'
             'output_type: loglikelihood\n',
}


class LmEval(unittest.TestCase):
    def setUp(self):
        self.dir = scratch()
        data = {"words": [{"question": q, "answer": a} for q, a in WORDS], "choices": [], "joined": []}
        for line in CHOICES.read_text().splitlines():
            question = json.loads(line)
            blanks = {c[0] == " " for c in question["choices"]}
            self.assertEqual(len(blanks), 1, line)
            data["choices" if blanks == {True} else "joined"].append(question)
        for name, rows in data.items():
            self.assertGreater(len(rows), 0, name)
            (self.dir / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        for name, how in TASKS.items():
            (self.dir / f"{name}.yaml").write_text(
                f"task: {name}\ndataset_path: json\ntest_split: test\ndataset_kwargs:\n  data_files:\n"
                f"    test: {self.dir}/{name}.jsonl\n{how}metric_list:\n  - metric: acc\n"
                + ("  - metric: acc_norm\n" if name != "words" else ""))
        os.environ["HF_HOME"] = str(self.dir / "hf")

    def harness(self, model, tokenizer, concurrent):
        """(results, samples) of both tasks."""
        with served(NIBBLE, *NUMBERS, "--streams", "4", model=model) as server:
            done = lm_eval.simple_evaluate(
                model="local-completions", tasks=list(TASKS), log_samples=True, bootstrap_iters=0,
                model_args={"model": server.name, "base_url": server.url + "/v1/completions",
                            "tokenizer_backend": "huggingface", "tokenizer": str(tokenizer), "max_length": 1024,
                            "num_concurrent": concurrent, "max_retries": 1},
                task_manager=lm_tasks.TaskManager(include_path=str(self.dir), include_defaults=False))
        return done["results"], done["samples"]

    def compare(self, model, tokenizer, concurrent=1):
        results, samples = self.harness(model, tokenizer, concurrent)
        vocabulary = json.loads((tokenizer / "config.json").read_text())["vocab_size"]
        for name in TASKS:
            nibble("check", "--model", model, "--choices", self.dir / f"{name}.jsonl", "--json",
                   self.dir / "check.json", "--force", *NUMBERS)
            ours = json.loads((self.dir / "check.json").read_text())["checks"][0]
            self.assertEqual(len(samples[name]), len(ours["results"]))
            self.assertEqual(ours["accuracy"]["passed"] / ours["accuracy"]["total"], results[name]["acc,none"])
            if name != "words":
                by_length = ours["accuracy_by_length"]
                self.assertEqual(by_length["passed"] / by_length["total"], results[name]["acc_norm,none"])
            for sample, our in zip(sorted(samples[name], key=lambda s: s["doc_id"]), ours["results"], strict=True):
                replies, doc = sample["filtered_resps"], sample["doc"]
                texts = doc["choices"] if name != "words" else [doc["answer"]]
                for text, (theirs, greedy), likelihood in zip(texts, replies, our["log_likelihood"], strict=True):
                    # check adds a vocabulary's exponentials in fp32, in four sums at least, the server in
                    # fp64; a text has no more tokens than bytes.
                    bound = len(text.encode()) * vocabulary / 4 * 2 ** -24
                    self.assertLess(abs(float(theirs) - likelihood), bound, (name, text))
                if name == "words":
                    self.assertEqual(greedy in (True, "True"), our["right"], doc)

    def test_mini(self):
        nibble("convert", MINI / "mini.dat", self.dir / "mini", "--to", "hf")
        for concurrent in (1, 4):
            self.compare(MINI, self.dir / "mini", concurrent)

    def test_a_real_model(self):
        for name, file, _ in real_models()[:1]:
            nibble("convert", file, self.dir / name, "--to", "hf")
            self.compare(file, self.dir / name)


if __name__ == "__main__":
    unittest.main()
