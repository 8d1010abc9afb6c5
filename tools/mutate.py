#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes small mistakes in the sources, one at a time, and sees whether a test notices.

    tools/mutate.py --build build --sample 80 --seed 1 --results build/mutants.jsonl
    tools/mutate.py src/train/packing.cpp --list

A mutant is one changed place: a comparison, an arithmetic or a logical operator, a constant, a
condition, a return value, or a statement that is left out. Its file is changed, the tests of its
folder are built and run until one fails, and the file is put back, also after Ctrl-C or a crash.
What survives is a missing test or a change without effect; which of the two is for a reader to say.
"""
import argparse
import collections
import contextlib
import dataclasses
import difflib
import fnmatch
import hashlib
import json
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What decides something a user relies on: the default of what is mutated. Patterns of paths.
POLICY = [
    "src/train/*.cpp",
    "src/generate/*.cpp",
    "src/data/*.cpp",
    "src/job/*.cpp",
]
NOT_POLICY = []

# Which tests judge a file: the first pattern that fits; executables, each with a --gtest_filter,
# from the quickest to the slowest.
RUNS = "Train*:Pretrain*:Gates*:Plan*:Profile*:Smoke*:ChainTest*"
TESTS = [
    ("*/collapse.cpp", [("test_job", "Collapse*"), ("test_apps", "Gates*")]),
    ("*/gates.cpp", [("test_apps", "Gates*"), ("test_apps", "ChainTest*")]),
    ("*/memory_choice.cpp", [("test_job", "MemoryChoice*"), ("test_apps", "Plan*"),
                             ("test_apps", "TrainErrors.*Memory*:TrainSettingsTest.*Memory*")]),
    ("*/self_test.cpp", [("test_job", "SelfTest*"),
                         ("test_apps", "Train.*:TrainErrors.*:Pretrain.*")]),
    ("src/job/*", [("test_job", "*"), ("test_apps", RUNS)]),
    # What is wrong with a line is said where data sets are read.
    ("src/data/lines*", [("test_train", "Dataset*"), ("test_data", "*")]),
    ("src/data/*", [("test_data", "*")]),
    ("src/train/*", [("test_train", "*"), ("test_train_model", "*")]),
    ("src/generate/*", [("test_generate", "*")]),
]

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "/",
    "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
    "&&": "||", "||": "&&",
}
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>="}
# What no expression statement begins with.
NOT_STATEMENTS = {
    "auto", "bool", "case", "catch", "char", "class", "const", "constexpr", "default", "delete", "do",
    "double", "else", "enum", "explicit", "float", "for", "friend", "if", "inline", "int", "long",
    "namespace", "new", "operator", "private", "protected", "public", "return", "short", "static",
    "static_assert", "struct", "switch", "template", "throw", "try", "typedef", "union", "unsigned",
    "using", "virtual", "void", "while",
}

# Statements whose loss nobody but a clock or a reader of the log would notice.
HARMLESS = re.compile(r"log_\w+\(|[\w.>-]+(?:\.|->)reserve\(")

TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<operator><=>|->\*|<<=|>>=|\.\.\.|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """, re.VERBOSE | re.DOTALL)

# A change may leave something unused or compare what is always so: that is no reason not to try it.
QUIET = "".join(f'#pragma GCC diagnostic ignored "-W{w}"\n' for w in (
    "unused-variable", "unused-but-set-variable", "unused-parameter", "unused-function",
    "unused-value", "type-limits", "parentheses", "sign-compare", "conversion", "empty-body",
    "div-by-zero", "return-type", "maybe-uninitialized")) + "#line 1\n"


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int

    @property
    def end(self):
        return self.begin + len(self.text)


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    kind: str
    begin: int
    end: int
    line: int
    before: str
    after: str

    def apply(self, text):
        return text[:self.begin] + self.after + text[self.end:]

    def id_in(self, text):
        """Stays the same for as long as the file does."""
        whole = "\0".join([self.file, text, self.kind, str(self.begin), self.after])
        return hashlib.sha1(whole.encode()).hexdigest()[:16]

    def diff(self, text):
        """The lines that change, without the lines around them."""
        lines = difflib.unified_diff(text.splitlines(), self.apply(text).splitlines(), n=0,
                                     lineterm="")
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def tokens_of(text):
    """Tokens of C++ without spaces, comments and lines of the preprocessor."""
    tokens, at_line_start, skip_to = [], True, 0
    for match in TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "mark" else "raw"
        if kind == "space":
            at_line_start = at_line_start or "\n" in match.group()
            continue
        if match.start() < skip_to:
            continue
        if match.group() == "#" and at_line_start:
            end = re.compile(r"(?<!\\)\n|\Z").search(text, match.start())
            skip_to = end.end()
            at_line_start = True
            continue
        if kind != "comment":
            tokens.append(Token(kind, match.group(), match.start()))
            at_line_start = False
    return tokens


def other_number(text):
    """A number nearby, or None where the notation is one to leave alone."""
    match = re.fullmatch(r"([\d']+)([uUlLzZ]*)", text)
    if match:
        return str(int(match[1].replace("'", "")) + 1) + match[2]
    match = re.fullmatch(r"([\d']*\.?[\d']*(?:[eE][+-]?\d+)?)([fFlL]?)", text)
    if not match:
        return None
    value = float(match[1].replace("'", ""))
    changed = repr(2 * value if value else 1.0)
    return changed + match[2]


class Scanner:
    """Walks over the tokens of a file and collects mutants."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        self.tokens = tokens_of(text)
        self.pairs = self.match_brackets()
        self.found = []

    def match_brackets(self):
        pairs, open_ = {}, []
        for i, t in enumerate(self.tokens):
            if t.kind != "operator":
                continue
            if t.text in "([{":
                open_.append(i)
            elif t.text in ")]}" and open_:
                pairs[open_[-1]] = i
                pairs[i] = open_.pop()
        return pairs

    def text_at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def add(self, kind, begin, end, after):
        before = self.text[begin:end]
        line = self.text.count("\n", 0, begin) + 1
        self.found.append(Mutant(self.name, kind, begin, end, line, before, after))

    def spaced(self, i):
        """Whether spaces stand on both sides: clang-format writes binary operators that way, and
        neither templates nor pointers nor signs."""
        t = self.tokens[i]
        return self.text[t.begin - 1:t.begin].isspace() and self.text[t.end:t.end + 1].isspace()

    def opens_code(self, i):
        """Whether the { at token i begins statements: not a class, an enum or a list of values."""
        before = self.text_at(i - 1)
        if before in (")", "else", "do", "try", "const", "noexcept", "override", "final", "mutable",
                      ";", "{", "}", ":"):
            return not self.heads_type(i)
        # A trailing return type: ") -> Type {".
        for k in range(i - 1, max(-1, i - 12), -1):
            text = self.text_at(k)
            if text == "->":
                return self.text_at(k - 1) in (")", "const", "mutable", "noexcept")
            if text in (";", "{", "}", "=", "return"):
                return False
        return False

    def heads_type(self, i):
        """Whether class, struct, enum or namespace stands between the { and what came before."""
        for k in range(i - 1, -1, -1):
            text = self.text_at(k)
            if text in (";", "{", "}", ")"):
                return False
            if text in ("class", "struct", "enum", "union", "namespace"):
                return True
        return False

    def scan(self):
        scopes = []  # per open bracket: "code", or something else
        for i, t in enumerate(self.tokens):
            if t.kind == "operator" and t.text in "([{":
                scopes.append("code" if t.text == "{" and self.opens_code(i) else t.text)
                if t.text == "(" and self.text_at(i - 1) == "for":
                    scopes[-1] = "for"
            elif t.kind == "operator" and t.text in ")]}" and scopes:
                scopes.pop()
            inside = "code" in scopes
            self.operator(i, t, scopes, inside)
            self.constant(i, t)
            if inside:
                self.condition(i, t)
                self.returned(i, t)
            if scopes and scopes[-1] == "code":
                self.statement(i, t)
        return sorted(self.found, key=lambda m: (m.begin, m.kind))

    def operator(self, i, t, scopes, inside):
        if t.kind != "operator" or self.text_at(i - 1) == "operator":
            return
        if t.text in SWAPS and self.spaced(i) and self.text_at(i - 1) != "template":
            kind = ("comparison" if t.text in COMPARISONS else
                    "logical" if t.text in ("&&", "||") else "arithmetic")
            self.add(kind, t.begin, t.end, SWAPS[t.text])
        elif t.text in ("++", "--") and inside and scopes[-1] != "for":
            self.add("arithmetic", t.begin, t.end, "--" if t.text == "++" else "++")
        elif t.text == "!" and inside:
            self.add("logical", t.begin, t.end, "")

    def constant(self, i, t):
        if t.kind == "number":
            changed = other_number(t.text)
            if changed and self.text_at(i - 1) != "[":
                self.add("constant", t.begin, t.end, changed)
        elif t.text in ("true", "false") and t.kind == "name":
            self.add("constant", t.begin, t.end, "false" if t.text == "true" else "true")

    def condition(self, i, t):
        if t.text not in ("if", "while") or self.text_at(i + 1) != "(" or i + 1 not in self.pairs:
            return
        close = self.pairs[i + 1]
        inner = self.tokens[i + 2:close]
        depth = 0
        for token in inner:
            depth += (token.text in "([{") - (token.text in ")]}") if token.kind == "operator" else 0
            if depth == 0 and token.text in (";", "="):
                return  # declares something
        words = [token.text for token in inner]
        if len(inner) == 2 and words[0] == "!":
            return  # dropping the ! is that mutant
        if ("==" in words) + ("!=" in words) == 1 and not {"&&", "||"} & set(words):
            return  # the other comparison is that mutant
        begin, end = self.tokens[i + 1].end, self.tokens[close].begin
        self.add("negated", begin, end, f"!({self.text[begin:end]})")

    def returned(self, i, t):
        if t.text != "return" or self.text_at(i + 1) == ";":
            return
        end = self.statement_end(i)
        if end is None:
            return
        begin = self.tokens[i + 1].begin
        value = self.text[begin:self.tokens[end].begin]
        if re.fullmatch(r"\{\}|0|false|true|nullptr|std::nullopt|\"\"|\*this", value):
            return
        self.add("return", begin, self.tokens[end].begin, "{}")

    def statement_end(self, i):
        """The ; that ends the statement at token i."""
        k = i
        while k < len(self.tokens):
            text = self.text_at(k)
            if self.tokens[k].kind == "operator":
                if text == ";":
                    return k
                if text in "([{":
                    if k not in self.pairs:
                        return None
                    k = self.pairs[k]
                elif text in ")]}":
                    return None
            k += 1
        return None

    def begins_statement(self, i):
        before = self.text_at(i - 1)
        if before in (";", "{", "}", "else", "do"):
            return True
        if before == ")" and i - 1 in self.pairs:
            head = self.pairs[i - 1]
            return (self.text_at(head - 1) in ("if", "for", "while") or
                    self.text_at(head - 1) == "constexpr" and self.text_at(head - 2) == "if")
        return False

    def statement(self, i, t):
        if not self.begins_statement(i):
            return
        end = self.statement_end(i)
        if end is None or end == i or HARMLESS.match(self.text, t.begin):
            return
        if t.text in ("continue", "break") or self.is_expression(i, end):
            self.add("dropped", t.begin, self.tokens[end].end, "{}")

    def is_expression(self, i, end):
        """Tells `a.b(c) = d;` and `++n;` from declarations such as `A b(c);`."""
        k = i
        if self.text_at(k) in ("++", "--", "*"):
            k += 1
        if self.text_at(k) == "(":
            return True
        if self.tokens[k].kind != "name" or self.text_at(k) in NOT_STATEMENTS:
            return False
        called = False
        while k < end:
            t = self.tokens[k]
            if t.kind == "name":
                k += 1
            elif t.text in ("::", ".", "->"):
                k += 1
                if self.tokens[k].kind != "name":
                    return False
                continue
            elif t.text in "([" and k in self.pairs:
                called = called or t.text == "("
                k = self.pairs[k] + 1
            elif t.text == "<" and not self.spaced(k):
                return False  # most likely the arguments of a type
            else:
                break
            if k < end and self.tokens[k].kind == "name":
                return False  # two names in a row: a type and what is declared
        follows = self.text_at(k)
        if k == end:
            return called or self.text_at(i) in ("++", "--")
        return follows in ASSIGNMENTS or follows in ("++", "--", ",", "?") or (
            follows == "<<" and self.spaced(k))


def mutants_of(name, text):
    return Scanner(name, text).scan()


def fits(path, patterns):
    return any(fnmatch.fnmatchcase(path, p) for p in patterns)


def sources(arguments, root=ROOT, headers=False):
    """Paths below the root, as given, or the policy code."""
    if not arguments:
        found = {p.relative_to(root).as_posix() for pattern in POLICY for p in root.glob(pattern)}
        return sorted(f for f in found if not fits(f, NOT_POLICY))
    found = []
    for argument in arguments:
        path = (root / argument).resolve()
        if path.is_dir():
            endings = (".cpp", ".h") if headers else (".cpp",)
            found += sorted(p for p in path.rglob("*") if p.suffix in endings)
        elif path.is_file():
            found.append(path)
        else:
            sys.exit(f"mutate: {argument} is neither a file nor a folder")
    names = [p.relative_to(root).as_posix() for p in found]
    return [n for n in names if n in arguments or not fits(n, NOT_POLICY)]


def choose(mutants, sample, each, seed):
    """A random part: at most `each` of a file, whatever others are named, at most `sample` in all."""
    by_file = collections.defaultdict(list)
    for m in mutants:
        by_file[m.file].append(m)
    kept = []
    for name in sorted(by_file):
        part = by_file[name]
        if each and len(part) > each:
            part = random.Random(f"{seed} {name}").sample(part, each)
        kept += part
    if sample and len(kept) > sample:
        kept = random.Random(seed).sample(kept, sample)
    return sorted(kept, key=lambda m: (m.file, m.begin, m.kind))


def share(mutants, part):
    """The I-th of K shares ("I/K"); all shares together are the whole, each mutant in one."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if not match or int(match[1]) > int(match[2]):
        sys.exit(f"mutate: --part is I/K with I from 1 to K, not {part}")
    return mutants[int(match[1]) - 1::int(match[2])]


@contextlib.contextmanager
def changed(path, text, backup):
    """The file holds `text` inside; its own text again afterwards, whatever happens. What is in
    `backup` is put back by the next start where even that was not possible."""
    original = path.read_bytes()
    backup.mkdir(parents=True, exist_ok=True)
    saved = backup / "original"
    saved.write_bytes(original)
    (backup / "path").write_text(str(path))
    try:
        path.write_text(text)
        yield
    finally:
        path.write_bytes(original)  # newer than any object made of the mutant: it is built again
        (backup / "path").unlink()
        saved.unlink()


def restore(backup):
    """Puts back what a run that was killed has left changed. The path, or None."""
    if not (backup / "path").exists() or not (backup / "original").exists():
        return None
    path = pathlib.Path((backup / "path").read_text())
    path.write_bytes((backup / "original").read_bytes())
    (backup / "path").unlink()
    (backup / "original").unlink()
    return path


def run(command, timeout, memory=None):
    """(exit status or None after the timeout, output)."""
    def limit():
        if memory:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=limit)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                subprocess.os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return status, out.read().decode(errors="replace")


def failed_test(output):
    """The test that ended the run: the one that failed, or the last that was begun."""
    failed = re.findall(r"^\[  FAILED  \] ([\w/.]+)", output, re.MULTILINE)
    begun = re.findall(r"^\[ RUN      \] ([\w/.]+)", output, re.MULTILINE)
    return failed[0] if failed else begun[-1] if begun else "?"


class Judge:
    """Builds and runs the tests of a file."""

    def __init__(self, build, jobs, memory, skip=""):
        self.build, self.jobs, self.memory, self.skip = build, jobs, memory, skip
        self.seconds = {}  # of each (target, filter) without a mutant
        self.killers = collections.defaultdict(list)  # by file: what to run first

    @staticmethod
    def tests_for(name):
        for pattern, tests in TESTS:
            if fnmatch.fnmatchcase(name, pattern):
                return tests
        sys.exit(f"mutate: no tests are named for {name}; see TESTS in tools/mutate.py")

    def make(self, target):
        return run(["ninja", "-C", str(self.build), f"-j{self.jobs}", target], 3600)

    def binary(self, target):
        found = [p for p in self.build.rglob(target) if p.is_file()]
        if not found:
            sys.exit(f"mutate: {target} is not below {self.build}")
        return found[0]

    def test(self, target, chosen, timeout):
        if self.skip:
            chosen += f"-{self.skip}"
        return run([str(self.binary(target)), f"--gtest_filter={chosen}", "--gtest_fail_fast"],
                   timeout, self.memory)

    def baseline(self, names):
        """Everything must pass as it is."""
        for target, chosen in sorted({t for n in names for t in self.tests_for(n)}):
            status, output = self.make(target)
            if status != 0:
                sys.exit(f"mutate: {target} does not build without a mutant:\n{output[-4000:]}")
            begin = time.monotonic()
            status, output = self.test(target, chosen, 3600)
            if status != 0:
                sys.exit(f"mutate: {target} fails without a mutant:\n{output[-4000:]}")
            if not re.search(r"^\[ RUN", output, re.MULTILINE):
                sys.exit(f"mutate: no test of {target} is called {chosen}")
            self.seconds[target, chosen] = time.monotonic() - begin
            print(f"{target} {chosen}: passes in {self.seconds[target, chosen]:.0f} s", flush=True)

    def verdict(self, mutant):
        """(result, by which test)"""
        for target, chosen in self.tests_for(mutant.file):
            status, output = self.make(target)
            if status != 0:
                return "does not compile", ""
            known = [t for t in self.killers[mutant.file] if t[0] == target]
            limit = 4 * self.seconds[target, chosen] + 20
            runs = [":".join(t[1] for t in known[-8:])] if known else []
            for selected in runs + [chosen]:
                status, output = self.test(target, selected, limit)
                if status is None:
                    return "timeout", failed_test(output)
                if status != 0:
                    by = failed_test(output)
                    if (target, by) not in self.killers[mutant.file] and by != "?":
                        self.killers[mutant.file].append((target, by))
                    return "killed", by
        return "survived", ""


def read_results(path):
    results = {}
    if path and path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            results[entry["id"]] = entry
    return results


def table(entries):
    """The lines of the report."""
    counts = collections.defaultdict(collections.Counter)
    for e in entries:
        counts[e["file"]][e["result"]] += 1
        counts["all"][e["result"]] += 1
    kinds = ["killed", "survived", "timeout", "does not compile"]
    width = max((len(name) for name in counts), default=0)
    lines = [f"{'':{width}}" + "".join(f"{k:>18}" for k in kinds)]
    for name in sorted(counts, key=lambda n: (n == "all", n)):
        lines.append(f"{name:{width}}" + "".join(f"{counts[name][k]:>18}" for k in kinds))
    for e in entries:
        if e["result"] == "survived":
            lines += ["", f"survived: {e['file']}:{e['line']} ({e['kind']})"] + e["diff"]
    return lines


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sources", nargs="*", help="files or folders; default: the policy code")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build",
                   help="a configured build folder (Ninja)")
    p.add_argument("--list", action="store_true", help="say what would be tried, and end")
    p.add_argument("--sample", type=int, help="try so many, chosen at random")
    p.add_argument("--each", type=int, help="try at most so many of a file")
    p.add_argument("--seed", type=int, default=0, help="of that choice")
    p.add_argument("--part", default="1/1", metavar="I/K",
                   help="of those the I-th of K shares: several copies of the tree at once")
    p.add_argument("--minutes", type=float,
                   help="begin no further mutant after so long; they come in random order then")
    p.add_argument("--kind", action="append", help="only this kind (several times: these)")
    p.add_argument("--headers", action="store_true", help="take headers of folders, too")
    p.add_argument("--results", type=pathlib.Path,
                   help="JSONL: what is in it is not tried again, what is tried is appended")
    p.add_argument("--retry", action="append", default=[], metavar="RESULT",
                   help="try those again whose result was this, e.g. survived")
    p.add_argument("--jobs", type=int, default=2, help="of ninja")
    p.add_argument("--skip", default="", metavar="A.B:C.D",
                   help="tests that fail on this machine without a mutant")
    p.add_argument("--memory-gib", type=float, default=8, help="a test may take")
    return p.parse_args()


def main():
    options = arguments()
    backup = options.build / "mutate"
    left = restore(backup)
    if left:
        print(f"mutate: {left} was still changed by a run before; put back")
    names = sources(options.sources, headers=options.headers)
    texts = {n: (ROOT / n).read_text() for n in names}
    found = [m for n in names for m in mutants_of(n, texts[n])]
    if options.kind:
        found = [m for m in found if m.kind in options.kind]
    wanted = share(choose(found, options.sample, options.each, options.seed), options.part)
    if options.minutes:  # what is left out at the end must not always be the last files
        random.Random(options.seed).shuffle(wanted)
    if options.list:
        for m in wanted:
            print(f"{m.file}:{m.line} ({m.kind})")
            print("\n".join(m.diff(texts[m.file])))
        print(f"{len(wanted)} of {len(found)} mutants in {len(names)} files")
        return 0

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file is put back
    results = read_results(options.results)
    done = {i: e for i, e in results.items() if e["result"] not in options.retry}
    ids = {m: m.id_in(texts[m.file]) for m in wanted}
    todo = [m for m in wanted if ids[m] not in done]
    begun = time.monotonic()
    judge = Judge(options.build, options.jobs, int(options.memory_gib * 2**30), options.skip)
    if todo:
        judge.baseline({m.file for m in todo})
    entries = {ids[m]: done[ids[m]] for m in wanted if ids[m] in done}
    try:
        for number, m in enumerate(todo, 1):
            begin = time.monotonic()
            if options.minutes and begin - begun > 60 * options.minutes:
                print(f"mutate: time is up, {len(todo) - number + 1} are left", flush=True)
                break
            with changed(ROOT / m.file, QUIET + m.apply(texts[m.file]), backup):
                result, by = judge.verdict(m)
            entry = {"id": ids[m], "file": m.file, "line": m.line, "kind": m.kind,
                     "diff": m.diff(texts[m.file]), "result": result, "by": by,
                     "seconds": round(time.monotonic() - begin, 1)}
            entries[entry["id"]] = entry
            print(f"{number}/{len(todo)} {m.file}:{m.line} {m.kind}: {result} {by}", flush=True)
            if options.results:
                with options.results.open("a") as out:
                    out.write(json.dumps(entry) + "\n")
    except KeyboardInterrupt:
        print("mutate: stopped; the file is as it was", file=sys.stderr)
    print("\n".join(table([entries[ids[m]] for m in wanted if ids[m] in entries])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
