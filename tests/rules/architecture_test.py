# SPDX-License-Identifier: MIT
"""Tests of tools/check_architecture.py on a made-up house. Run by ctest as `tools`."""
import importlib
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
check_architecture = importlib.import_module("check_architecture")

ALLOWED = {"core": [], "quant": [], "backend": ["quant"], "backends/cpu": ["backend", "quant"],
           "measure": ["*"], "apps": ["*"]}
PAGE = """# Architecture

| folder | holds | never holds | may include |
|---|---|---|---|
| `core` | files | models | nothing of nibble |
| `quant` | rules | files | core |
| `backend` | the op set | maths | core, quant |
| `backends/cpu` | kernels | files | core, quant, backend |
| `measure` | speeds | - | everything |
| `apps` | `main` | logic | everything |

<!-- picture of the rooms -->
```text
+--------------+
| apps         |
+--------------+
| measure      |
+--------------+
| backends/cpu |
+--------------+
| backend      |
+--------------+
| quant        |
+--------------+
| core         |
+--------------+
```
"""


class Architecture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.src = pathlib.Path(folder.name)
        for room in ALLOWED:
            (self.src / room / "kernels").mkdir(parents=True)

    def problems(self, page=PAGE, allowed=None):
        return list(check_architecture.problems(self.src, page, allowed or ALLOWED))

    def test_a_page_that_agrees(self):
        self.assertEqual(self.problems(), [])
        self.assertEqual(check_architecture.fixed(PAGE, ALLOWED), PAGE)

    def test_a_folder_without_row_and_rule(self):
        (self.src / "attic").mkdir()
        (self.src / "backends/tpu").mkdir()
        found = self.problems()
        self.assertEqual(len(found), 4)
        self.assertIn("attic: not in the layer table of tools/check_layers.py", found)
        self.assertIn("backends/tpu: 0 rows in the table of rooms, expected one", found)

    def test_a_row_and_a_rule_without_folder(self):
        (self.src / "measure/kernels").rmdir()
        (self.src / "measure").rmdir()
        self.assertEqual(self.problems(), [f"measure: there is no such folder in {self.src}"])

    def test_a_row_that_is_missing_or_there_twice(self):
        row = "| `quant` | rules | files | core |\n"
        for change in ("", row * 2):
            found = self.problems(PAGE.replace(row, change))
            self.assertEqual(len(found), 1)
            self.assertIn("expected one", found[0])

    def test_a_row_that_allows_more_or_less_than_the_rule(self):
        for column in ("core", "core, quant, backend, apps", "everything"):
            page = PAGE.replace("| core, quant, backend |", f"| {column} |")
            self.assertIn(f"backends/cpu: the page says it may include '{column}'",
                          "".join(self.problems(page)))
            self.assertEqual(check_architecture.fixed(page, ALLOWED), PAGE)

    def test_a_picture_that_lacks_a_room_or_puts_it_elsewhere(self):
        lacking = PAGE.replace("| quant        |\n+--------------+\n", "")
        swapped = PAGE.replace("| quant   ", "| X   ").replace("| backend   ", "| quant   ") \
            .replace("| X   ", "| backend   ")
        for page in (lacking, swapped):
            self.assertNotEqual(page, PAGE)
            self.assertEqual(self.problems(page), [
                "the picture does not show the layer table: tools/check_architecture.py --fix"])
            self.assertEqual(check_architecture.fixed(page, ALLOWED), PAGE)
        self.assertEqual(self.problems(PAGE[:PAGE.index("<!--")]),
                         ["the page has no picture of the rooms"])

    def test_every_room_stands_above_what_it_may_include(self):
        allowed = check_architecture.ALLOWED
        height = {room: n for n, floor in enumerate(check_architecture.floors(allowed))
                  for room in floor}
        self.assertEqual(set(height), set(allowed))
        for room, below in allowed.items():
            for other in set(below) - {"*"}:
                self.assertLess(height[other], height[room], f"{room} includes {other}")


if __name__ == "__main__":
    unittest.main()
