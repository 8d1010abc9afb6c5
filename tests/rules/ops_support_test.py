# SPDX-License-Identifier: MIT
"""Tests of tools/make_ops_support.py on a made-up op set. Run by ctest as `tools`."""
import importlib
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
make_ops_support = importlib.import_module("make_ops_support")

SOURCE = ("class Backend {\n public:\n  std::string name() const;\n  // --- Forward ---\n"
          "  void add(Tensor out);\n  void linear(Tensor out);\n\n protected:\n")


def call(op, types, n=(1, 1), strided=()):
    return {"op": op, "types": types, "sizes": {"N": list(n)}, "strided": list(strided),
            "unaligned": []}


class Merging(unittest.TestCase):
    def test_calls_of_the_same_types_become_one_with_the_range_of_their_sizes(self):
        found = make_ops_support.merged([
            call("linear", {"act": "f32"}, (3, 8)), call("add", {"act": "f32"}),
            call("linear", {"act": "f32"}, (1, 4), ["x"]), call("linear", {"act": "bf16"}, (9, 9))])
        self.assertEqual(found, [call("add", {"act": "f32"}),
                                 call("linear", {"act": "bf16"}, (9, 9)),
                                 call("linear", {"act": "f32"}, (1, 8), ["x"])])


class Types(unittest.TestCase):
    def texts(self, *types):
        return [make_ops_support.box_text(box)
                for box in make_ops_support.boxes([call("op", t) for t in types])]

    def test_a_product_of_sets_is_one_line(self):
        self.assertEqual(self.texts(*({"act": a, "w": w} for a in ("bf16", "f32")
                                      for w in ("nvfp4", "f32", "bf16"))),
                         ["act f32, bf16; w f32, bf16, nvfp4"])

    def test_a_combination_that_was_not_run_is_not_claimed(self):
        self.assertEqual(self.texts({"act": "f32", "w": "f32"}, {"act": "f32", "w": "nvfp4"},
                                    {"act": "bf16", "w": "nvfp4"}),
                         ["act f32; w f32", "act f32, bf16; w nvfp4"])

    def test_an_operand_of_another_type_is_named_beside_the_compute_type(self):
        self.assertEqual(self.texts({"act": "bf16"}, {"act": "bf16", "out": "f32"}),
                         ["act bf16; out f32, act"])


class Page(unittest.TestCase):
    def setUp(self):
        for name, value in {"BESIDE": {"name": "says something"}, "NOT_THERE": {},
                            "NOTES": {}}.items():
            self.addCleanup(setattr, make_ops_support, name, getattr(make_ops_support, name))
            setattr(make_ops_support, name, value)
        self.data = {"cpu": ("a machine", [call("add", {"act": "f32"}, (1, 7)),
                                           call("linear", {"act": "f32"}, (2, 2), ["x"])])}

    def problems(self, data=None, source=SOURCE, page=None):
        data = data or self.data
        page = page or make_ops_support.make_page(source, data)
        return list(make_ops_support.problems(source, data, page))

    def test_rows(self):
        page = make_ops_support.make_page(SOURCE, self.data)
        self.assertIn("| `add` | act f32<br>N 1..7 | not yet recorded |  |\n", page)
        self.assertIn("| `linear` | act f32<br>N 2<br>strided: x | not yet recorded |  |\n", page)
        self.assertIn("- `name`: says something\n", page)
        self.assertIn("CUDA: not yet recorded.", page)
        self.assertEqual(self.problems(), [])

    def test_a_second_backend_fills_its_column(self):
        data = {**self.data, "cuda": ("a GPU", [call("add", {"act": "bf16"}, (4, 4))])}
        page = make_ops_support.make_page(SOURCE, data)
        self.assertIn("| `add` | act f32<br>N 1..7 | act bf16<br>N 4 |  |\n", page)
        self.assertIn("CUDA: recorded on a GPU.", page)
        self.assertEqual(self.problems(data), [])

    def test_an_op_without_test_is_found(self):
        more = SOURCE.replace("  void add", "  void rope(Tensor out);\n  void add")
        self.assertIn("rope has not been recorded: run its tests and `record cpu`",
                      self.problems(source=more))

    def test_an_op_that_is_gone_is_found(self):
        less = SOURCE.replace("  void add(Tensor out);\n", "")
        self.assertEqual(self.problems(source=less), ["add is no op of backend.h"])

    def test_an_old_page_is_found(self):
        old = make_ops_support.make_page(SOURCE, self.data).replace("N 1..7", "N 1..6")
        self.assertEqual(self.problems(page=old),
                         ["the page is not up to date: run tools/make_ops_support.py"])


if __name__ == "__main__":
    unittest.main()
