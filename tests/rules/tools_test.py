# SPDX-License-Identifier: MIT
"""Tests of the Python tools and of nibble.sh. Run by ctest as `tools`."""
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
check_docs = importlib.import_module("check_docs")
check_layers = importlib.import_module("check_layers")
make_ops_doc = importlib.import_module("make_ops_doc")
summarize_tests = importlib.import_module("summarize_tests")

GTEST_SKIP = """Running main() from gtest_main.cc
[ RUN      ] Tokenizer.Golden
a/tokenizer_test.cpp:12: Skipped
shared/tokenizer.json is absent (third-party data; set NIBBLE_SHARED)

[  SKIPPED ] Tokenizer.Golden (0 ms)
[----------] 1 test from Tokenizer (0 ms total)
[==========] 1 test from 1 test suite ran. (0 ms total)
[  PASSED  ] 0 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Tokenizer.Golden
"""


def report(*cases):
    suite = ElementTree.Element("testsuite")
    for name, status, output in cases:
        case = ElementTree.SubElement(suite, "testcase", name=name, status=status)
        if status == "notrun":
            ElementTree.SubElement(case, "skipped", message="SKIP_RETURN_CODE=77")
        ElementTree.SubElement(case, "system-out").text = output
    return suite


def report_of(status):
    return report(("the test", status, ""))


class Summary(unittest.TestCase):
    def test_counts_and_reasons(self):
        lines, failures = summarize_tests.summarize(report(
            ("a", "run", "fine"), ("b", "run", ""), ("c", "fail", "boom"),
            ("golden", "notrun", GTEST_SKIP), ("format", "notrun", "[  SKIPPED ] no clang-format\n"),
            ("silent", "notrun", "")))
        self.assertEqual(failures, 1)
        self.assertEqual(lines[-1], "2 passed, 1 failed, 3 skipped")
        self.assertIn("FAILED: c", lines)
        reasons = [line for line in lines if line.startswith("skipped: ")]
        self.assertEqual(reasons, [
            "skipped: SKIP_RETURN_CODE=77", "skipped: no clang-format",
            "skipped: shared/tokenizer.json is absent (third-party data; set NIBBLE_SHARED)"])
        self.assertIn("    golden", lines)

    def test_an_empty_report_fails(self):
        self.assertEqual(summarize_tests.summarize(report())[1], 1)

    def test_an_unknown_status_is_a_failure(self):
        self.assertEqual(summarize_tests.summarize(report(("a", "surprise", "")))[1], 1)


class Docs(unittest.TestCase):
    TEXT = "# a\n\n## b\n\n```sh\n./x  # run\n```\n\n| `init` | does |\n"

    def test_translated_comments_are_no_difference(self):
        other = self.TEXT.replace("# run", "# 執行").replace("does", "做")
        self.assertEqual(list(check_docs.compare_readmes(self.TEXT, other)), [])

    def test_differences_are_found(self):
        for change in (("## b", "### b"), ("./x", "./y"), ("`init`", "`exit`")):
            with self.subTest(change=change):
                other = self.TEXT.replace(*change)
                self.assertEqual(len(list(check_docs.compare_readmes(self.TEXT, other))), 1)

    def test_broken_links_are_found(self):
        text = "[a](README.md) [b](https://x.y/z) [c](#d) [e](nowhere.md#f)"
        found = list(check_docs.broken_links(check_docs.README, text))
        self.assertEqual(len(found), 1)
        self.assertIn("nowhere.md", found[0])

    def test_missing_commands_are_found(self):
        shown = "Commands:\n  init       make\n"
        self.assertEqual(list(check_docs.missing_commands(self.TEXT, shown)), [])
        shown += "  chat       talk\n"
        self.assertEqual(len(list(check_docs.missing_commands(self.TEXT, shown))), 1)


class OpsDoc(unittest.TestCase):
    def test_contracts_are_carried_over(self):
        source = ("// SPDX-License-Identifier: MIT\n// What it is.\nclass Backend {\n public:\n"
                  "  // --- Forward ---\n  // Adds a\n  // and b.\n  void add(Tensor out,\n"
                  "           Tensor a);\n  void sync() { do_sync(); }\n\n protected:\n")
        page = make_ops_doc.make_page(source)
        self.assertIn("## Forward\n\n### add\n\n```cpp\nvoid add(Tensor out, Tensor a);\n```\n\n"
                      "Adds a and b.\n", page)
        self.assertIn("### sync\n\n```cpp\nvoid sync();\n```\n", page)


class Layers(unittest.TestCase):
    def test_an_upward_include_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "quant").mkdir()
            (root / "quant/a.h").write_text('#include "core/b.h"\n#include "model/c.h"\n')
            (root / "stray.cpp").write_text("")
            found = list(check_layers.violations(root))
        self.assertEqual(len(found), 2)
        self.assertIn("quant may not include model", found[0])
        self.assertIn("outside every layer", found[1])

    def test_libraries_link_what_they_include_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "formats").mkdir()
            (root / "formats/a.h").write_text('#include "core/b.h"\n#include "quant/c.h"\n')
            (root / "formats/CMakeLists.txt").write_text(
                "nibble_layer(formats SOURCES a.cpp DEPS core model LIBS fmt::fmt)\n")
            found = list(check_layers.violations(root))
        self.assertEqual(len(found), 2)
        self.assertIn("formats may not link model", found[0])
        self.assertIn("formats includes quant and does not link it", found[1])

    def test_a_circle_is_found_and_the_table_has_none(self):
        self.assertIsNone(check_layers.circle({"a": ["b", "c"], "b": ["c"], "c": []}))
        self.assertEqual(check_layers.circle({"a": ["b"], "b": ["c"], "c": ["b"]}),
                         ["b", "c", "b"])
        self.assertIsNone(check_layers.circle(check_layers.ALLOWED))

    def test_parsers_without_a_limit_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "core").mkdir()
            (root / "core/json.h").write_text("return Json::parse(text);\n")
            (root / "core/a.cpp").write_text("const auto j = nlohmann::json::parse(text);\n"
                                             "toml::parse(text);\nTokenizer::parse(text);\n"
                                             "Json::sax_parse(a, b, this);\n")
            found = list(check_layers.violations(root))
        self.assertEqual([re.search(r":(\d):", f)[1] for f in found], ["1", "2", "4"])

    def test_a_folder_of_many_files_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "core").mkdir()
            for n in range(41):
                (root / f"core/{n}.h").write_text("")
            self.assertIn("41 files", "".join(check_layers.violations(root)))
            (root / "core/0.h").unlink()
            self.assertEqual(list(check_layers.violations(root)), [])


class Presets(unittest.TestCase):
    def test_every_fuzz_target_is_built(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["buildPresets"]
        built = next(p["targets"] for p in presets if p["name"] == "cpu-fuzz")
        there = [path.stem for path in (ROOT / "tests/fuzz").glob("fuzz_*.cpp")]
        self.assertEqual(sorted(built), sorted(there))


class Script(unittest.TestCase):
    def run_script(self, *args):
        return subprocess.run([str(ROOT / "nibble.sh"), *args], capture_output=True, text=True,
                              check=False)

    def test_usage(self):
        self.assertEqual(self.run_script("--help").returncode, 0)
        self.assertEqual(self.run_script().returncode, 2)
        wrong = self.run_script("bulid")
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("bulid", wrong.stderr)
        self.assertNotEqual(self.run_script("build", "extra").returncode, 0)

    def run_with_stubs(self, ctest_exit, test_status):
        """nibble.sh test with every tool replaced by a stub; ctest writes a report and fails."""
        with tempfile.TemporaryDirectory() as folder:
            stubs = pathlib.Path(folder)
            report = ElementTree.tostring(report_of(test_status), encoding="unicode")
            (stubs / "report").write_text(report)
            for name, body in {
                    "dpkg-query": "printf installed",
                    "cmake": "exit 0",
                    "ctest": f"cp {stubs}/report {stubs}/tests.xml; echo 'a ........ b'; "
                             f"exit {ctest_exit}"}.items():
                (stubs / name).write_text(f"#!/bin/sh\n{body}\n")
                (stubs / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}",
                           "NIBBLE_BUILD_DIR": folder, "NIBBLE_NO_INSTALL": "1"}
            return subprocess.run([str(ROOT / "nibble.sh"), "test"], capture_output=True, text=True,
                                  check=False, env=environment)

    def test_exit_code_follows_the_tests(self):
        good = self.run_with_stubs(0, "run")
        self.assertEqual(good.returncode, 0, good.stderr)
        self.assertEqual(good.stdout.splitlines()[-1], "1 passed, 0 failed, 0 skipped")
        self.assertNotEqual(self.run_with_stubs(8, "run").returncode, 0)
        bad = self.run_with_stubs(0, "fail")
        self.assertNotEqual(bad.returncode, 0)
        self.assertEqual(bad.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")

    def configured_by(self, commands, gpu, environment=None):
        """What nibble.sh hands to `cmake -S` for each command in turn, in one build folder."""
        with tempfile.TemporaryDirectory() as folder:
            stubs = pathlib.Path(folder)
            for name, body in {
                    "dpkg-query": "printf installed",
                    "nvidia-smi": "echo 9.0" if gpu else "echo No devices were found; exit 6",
                    "cmake": f'[ "$1" != -S ] || echo "$@" >> {stubs}/configured'}.items():
                (stubs / name).write_text(f"#!/bin/sh\n{body}\n")
                (stubs / name).chmod(0o755)
            for command in commands:  # each fails in the end: nothing was built
                subprocess.run([str(ROOT / "nibble.sh"), command], capture_output=True, check=False,
                               env={"PATH": f"{stubs}:{os.environ['PATH']}", "CUDACXX": "nvcc",
                                    "NIBBLE_BUILD_DIR": folder, "NIBBLE_NO_INSTALL": "1",
                                    "TMPDIR": folder, **(environment or {})})
            return (stubs / "configured").read_text().splitlines()

    def test_a_demonstration_without_a_gpu_leaves_cuda_out_and_a_build_takes_it_back(self):
        demo, again, build = self.configured_by(["demo", "demo", "build"], gpu=False)
        self.assertIn("-DNIBBLE_CUDA=OFF", demo)
        self.assertTrue(again.endswith("-UNIBBLE_CUDA -DNIBBLE_CUDA=OFF"), again)
        self.assertTrue(build.endswith("-UNIBBLE_CUDA"), build)

    def test_a_demonstration_with_a_gpu_or_an_architecture_by_hand_has_cuda(self):
        self.assertNotIn("NIBBLE_CUDA", self.configured_by(["demo"], gpu=True)[0])
        self.assertNotIn("NIBBLE_CUDA", self.configured_by(
            ["demo"], gpu=False, environment={"CUDAARCHS": "90a-real"})[0])

    def test_a_build_never_leaves_cuda_out(self):
        self.assertNotIn("NIBBLE_CUDA", self.configured_by(["build"], gpu=False)[0])

    def test_installs_what_the_build_looks_for(self):
        """Every package find_package or pkg-config asks for has its Debian package in the list."""
        package_of = {"fmt": "libfmt-dev", "nlohmann_json": "nlohmann-json3-dev",
                      "PkgConfig": "pkg-config", "libhwy": "libhwy-dev",
                      "libpcre2-8": "libpcre2-dev", "libutf8proc": "libutf8proc-dev",
                      "tomlplusplus": "libtomlplusplus-dev", "GTest": "libgtest-dev",
                      "Python3": "python3", "Threads": "g++", "ZLIB": "zlib1g-dev",
                      "cpp-httplib": "libcpp-httplib-dev"}
        script = (ROOT / "nibble.sh").read_text()
        asked = set()
        for path in [ROOT / "CMakeLists.txt", *ROOT.glob("src/**/CMakeLists.txt"),
                     *ROOT.glob("tests/**/CMakeLists.txt")]:
            text = path.read_text()
            asked |= set(re.findall(r"find_package\((\w+)", text))
            asked |= set(re.findall(r"IMPORTED_TARGET ([\w.-]+)\)", text))
        self.assertGreater(len(asked), 5)
        asked -= {"CUDAToolkit"}  # used where nvcc is found; Debian's main archive has none
        for name in asked:
            self.assertIn(name, package_of, f"which Debian package has {name}?")
            self.assertRegex(script, rf"[( ]{re.escape(package_of[name])}[ )\n]")

class Headers(unittest.TestCase):
    def test_no_header_of_a_layer_brings_all_of_json(self):
        """It costs two seconds and more in every file that sees it; json_fwd.hpp costs nothing."""
        headers = sorted([*ROOT.glob("src/**/*.h"), *ROOT.glob("src/**/*.cuh")])
        headers.remove(ROOT / "src/core/json.h")  # the parser itself, for sources that parse
        self.assertGreater(len(headers), 50)
        self.assertEqual([], [str(h.relative_to(ROOT)) for h in headers
                              if re.search(r'#include [<"]nlohmann/json\.hpp', h.read_text())])


if __name__ == "__main__":
    unittest.main()
