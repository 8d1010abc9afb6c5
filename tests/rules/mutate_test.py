# SPDX-License-Identifier: MIT
"""Tests of tools/mutate.py on a made-up source. Run by ctest as `tools`."""
import importlib
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
mutate = importlib.import_module("mutate")

SOURCE = '''\
#include <vector>
#define LIMIT 3 < \\
  4
// if (a < 1) return 2;
namespace n {
/* a == b && c */
constexpr int kMost = 7;
enum class Kind { one, two };
struct Thing {
  Thing(int a);
  void drop(int b);
  int field = 0;
};
template <class T>
double rule(const std::vector<T>& v, int* p, bool on, int n) {
  const char* text = "a < b + 1; return 3;";
  std::vector<int> local(v.size());
  if (on && n <= kMost) {
    ++n;
    p[0] = n * 2;
  }
  for (int i = 0; i < n; ++i) local.push_back(i);
  local.reserve(100);
  if (!on) return 0.5;
  call(R"(x > 1)", 'c');
  return n - 1.5e-3;
}
}  // namespace n
'''


def changes(text=SOURCE):
    return {(m.kind, m.before, m.after) for m in mutate.mutants_of("a.cpp", text)}


def body(statements):
    return f"void f() {{\n  {statements}\n}}\n"


class Mutants(unittest.TestCase):
    def test_every_kind_is_produced(self):
        self.assertEqual(changes(), {
            ("comparison", "<=", "<"), ("comparison", "<", "<="),
            ("logical", "&&", "||"), ("logical", "!", ""),
            ("arithmetic", "*", "/"), ("arithmetic", "-", "+"), ("arithmetic", "++", "--"),
            ("constant", "7", "8"), ("constant", "0", "1"), ("constant", "2", "3"),
            ("constant", "100", "101"), ("constant", "0.5", "1.0"), ("constant", "1.5e-3", "0.003"),
            ("negated", "on && n <= kMost", "!(on && n <= kMost)"),
            ("dropped", "++n;", "{}"), ("dropped", "p[0] = n * 2;", "{}"),
            ("dropped", "local.push_back(i);", "{}"), ("dropped", "call(R\"(x > 1)\", 'c');", "{}"),
            ("return", "0.5", "{}"), ("return", "n - 1.5e-3", "{}"),
        })

    def test_comments_strings_and_the_preprocessor_are_left_alone(self):
        lines = {m.line for m in mutate.mutants_of("a.cpp", SOURCE)}
        first = SOURCE.splitlines().index("constexpr int kMost = 7;") + 1
        self.assertEqual(min(lines), first)
        self.assertNotIn(SOURCE.splitlines().index(
            '  const char* text = "a < b + 1; return 3;";') + 1, lines)
        for m in mutate.mutants_of("a.cpp", SOURCE):
            self.assertIn("/* a == b && c */", m.apply(SOURCE))
            if m.kind != "dropped":
                self.assertIn('R"(x > 1)"', m.apply(SOURCE))

    def test_a_mutant_changes_one_place(self):
        for m in mutate.mutants_of("a.cpp", SOURCE):
            self.assertEqual(SOURCE[m.begin:m.end], m.before)
            self.assertEqual(SOURCE.count("\n", 0, m.begin) + 1, m.line)
            self.assertNotEqual(m.apply(SOURCE), SOURCE)
            self.assertTrue(m.diff(SOURCE)[0].startswith("-"))

    def test_declarations_are_not_dropped(self):
        for declaration in ("Type name(1);", "std::vector<int> v{1};", "int64_t n = 1;", "Type name;",
                            "const Type& r = x;", "auto f = [&] { return x; };", "Type* p = &x;",
                            "n::Type name = x;", "using T = int;", "static Type t(x);"):
            with self.subTest(declaration=declaration):
                self.assertFalse([c for c in changes(body(declaration)) if c[0] == "dropped" and
                                  c[1] == declaration])

    def test_statements_are_dropped_wherever_they_stand(self):
        for statement in ("a.b->c(1) = d;", "f(x);", "n::f<1>(x);", "x += y;", "a[i].b = c;", "--n;",
                          "continue;", "out << x;"):
            for place in ("{};", "if (a) {};", "if (a) {} else g();", "for (;;) {{ {} }}",
                          "run([&](int i) {{ {} }});", "auto f = [&]() -> int {{ {} return 1; }};"):
                if "<1>" in statement:
                    continue  # arguments of a template: left alone
                with self.subTest(statement=statement, place=place):
                    text = body(place.format(statement))
                    self.assertIn(("dropped", statement, "{}"), changes(text))

    def test_what_declares_is_not_negated(self):
        self.assertFalse([c for c in changes(body("if (const auto x = f()) g();"))
                          if c[0] == "negated"])
        self.assertFalse([c for c in changes(body("if (int x = 1; x) g();")) if c[0] == "negated"])
        self.assertIn(("negated", "f(a = 1)", "!(f(a = 1))"), changes(body("if (f(a = 1)) g();")))

    def test_templates_pointers_and_signs_are_no_operators(self):
        text = body("const T* p = cast<A<B>>(-x); T&& r = *p; f(&r, -1);")
        self.assertEqual({c for c in changes(text) if c[0] in ("comparison", "arithmetic", "logical")},
                         set())

    def test_numbers(self):
        for before, after in (("0", "1"), ("16u", "17u"), ("1'000", "1001"), ("0.25f", "0.5f"),
                              ("0.0", "1.0"), ("1e6", "2000000.0"), ("0x10", None)):
            self.assertEqual(mutate.other_number(before), after)


class Choosing(unittest.TestCase):
    def test_the_seed_decides(self):
        all_ = mutate.mutants_of("a.cpp", SOURCE) + mutate.mutants_of("b.cpp", SOURCE)
        few = mutate.choose(all_, 5, None, 1)
        self.assertEqual(len(few), 5)
        self.assertEqual(few, mutate.choose(all_, 5, None, 1))
        self.assertNotEqual(few, mutate.choose(all_, 5, None, 2))
        self.assertEqual({m.file for m in mutate.choose(all_, None, 3, 1)}, {"a.cpp", "b.cpp"})
        both = mutate.choose(all_, None, 3, 1)
        self.assertEqual(len(both), 6)
        only = [m for m in all_ if m.file == "b.cpp"]
        self.assertEqual(mutate.choose(only, None, 3, 1), both[3:])
        self.assertEqual(len(mutate.choose(all_, None, None, 1)), len(all_))

    def test_shares_make_up_the_whole(self):
        all_ = mutate.mutants_of("a.cpp", SOURCE)
        parts = [mutate.share(all_, f"{i}/3") for i in (1, 2, 3)]
        self.assertEqual(sorted(m.begin for p in parts for m in p), sorted(m.begin for m in all_))
        self.assertEqual(mutate.share(all_, "1/1"), all_)
        for wrong in ("0/3", "4/3", "1", "a/b"):
            with self.assertRaises(SystemExit):
                mutate.share(all_, wrong)

    def test_ids_tell_mutants_and_versions_apart(self):
        all_ = mutate.mutants_of("a.cpp", SOURCE)
        self.assertEqual(len({m.id_in(SOURCE) for m in all_}), len(all_))
        self.assertNotEqual(all_[0].id_in(SOURCE), all_[0].id_in(SOURCE + "\n"))

    def test_the_policy_code_is_there_and_has_tests(self):
        names = mutate.sources([])
        self.assertGreater(len(names), 20)
        self.assertFalse([n for n in names if "grammar" in n])
        for name in names:
            self.assertTrue(mutate.Judge.tests_for(name), name)


class Restoring(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "a.cpp"
        self.file.write_text(SOURCE)
        self.backup = pathlib.Path(folder.name) / "backup"

    def test_the_file_is_put_back_whatever_happens(self):
        for trouble in (None, KeyboardInterrupt, SystemExit, RuntimeError):
            try:
                with mutate.changed(self.file, "broken", self.backup):
                    self.assertEqual(self.file.read_text(), "broken")
                    if trouble:
                        raise trouble
            except (KeyboardInterrupt, SystemExit, RuntimeError):
                pass
            self.assertEqual(self.file.read_text(), SOURCE)
            self.assertIsNone(mutate.restore(self.backup))

    def test_the_next_run_restores_what_a_killed_one_left(self):
        with mutate.changed(self.file, "broken", self.backup):
            self.assertEqual(mutate.restore(self.backup), self.file)
            self.assertEqual(self.file.read_text(), SOURCE)
            (self.backup / "original").touch(), (self.backup / "path").touch()


class Report(unittest.TestCase):
    def test_survivors_are_shown(self):
        entry = {"file": "a.cpp", "line": 3, "kind": "constant", "diff": ["-a", "+b"], "by": ""}
        lines = mutate.table([{**entry, "result": r} for r in ("killed", "survived", "timeout")])
        self.assertIn("survived: a.cpp:3 (constant)", lines)
        self.assertEqual(lines[-2:], ["-a", "+b"])
        self.assertEqual(lines[1].split(), ["a.cpp", "1", "1", "1", "0"])

    def test_who_killed_it(self):
        self.assertEqual(mutate.failed_test(
            "[ RUN      ] A.b\n[       OK ] A.b\n[ RUN      ] A/B.c/d\n"), "A/B.c/d")
        self.assertEqual(mutate.failed_test(
            "[ RUN      ] A.b\n[  FAILED  ] A.b (3 ms)\n[ RUN      ] A.c\n"), "A.b")

    def test_a_timeout_ends_the_whole_group(self):
        status, _ = mutate.run(["sh", "-c", "sleep 60 & sleep 60"], 0.2)
        self.assertIsNone(status)
        self.assertEqual(mutate.run(["sh", "-c", "echo x; exit 3"], 10), (3, "x\n"))


if __name__ == "__main__":
    unittest.main()
