#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keeps the documents honest. Run by ctest as `docs`.

tools/check_docs.py [NIBBLE]

- README.md and README.zh-TW.md have the same headings (by level), the same code blocks and the
  same commands in their tables;
- the pages of docs/guide and docs/guide/zh-TW have the same headings (by level) and shell blocks;
- every relative link of every Markdown file leads to a file;
- a row of a table that names a source file and functions names those that are in it;
- with the path of the binary: the README's command table lists what `nibble --help` lists.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README, README_ZH = ROOT / "README.md", ROOT / "README.zh-TW.md"
GUIDE = ROOT / "docs" / "guide"


def code_blocks(text):
    return re.findall(r"^```.*?^```", text, re.M | re.S)


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def heading_levels(text):
    return [len(marks) for marks in re.findall(r"^(#+) ", without_code(text), re.M)]


def shell_lines(block):
    """The block without comments, which are translated."""
    lines = (re.sub(r"\s+#.*", "", line).rstrip() for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def table_commands(text):
    return re.findall(r"^\| `([a-z]+)` \|", text, re.M)


def compare_readmes(english, chinese):
    if heading_levels(english) != heading_levels(chinese):
        yield (f"README.md has headings of levels {heading_levels(english)}, "
               f"README.zh-TW.md {heading_levels(chinese)}")
    ours, theirs = ([shell_lines(b) for b in code_blocks(t)] for t in (english, chinese))
    if ours != theirs:
        yield "the code blocks of README.md and README.zh-TW.md differ (comments aside)"
    if table_commands(english) != table_commands(chinese):
        yield (f"the command tables differ: {table_commands(english)} in README.md, "
               f"{table_commands(chinese)} in README.zh-TW.md")


def compare_guides():
    for page in sorted(GUIDE.glob("*.md")):
        twin = GUIDE / "zh-TW" / page.name
        if not twin.is_file():
            yield f"docs/guide/{page.name} has no page in docs/guide/zh-TW"
            continue
        english, chinese = page.read_text(), twin.read_text()
        if heading_levels(english) != heading_levels(chinese):
            yield f"the headings of docs/guide/{page.name} and its page in zh-TW differ"
        ours, theirs = ([shell_lines(b) for b in code_blocks(t) if b.startswith("```sh")]
                        for t in (english, chinese))
        if ours != theirs:
            yield f"the commands of docs/guide/{page.name} and its page in zh-TW differ"


def broken_links(path, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        if not (path.parent / target.split("#")[0]).exists():
            yield f"{path.relative_to(ROOT)}: link to {target}, which does not exist"


def missing_functions(path, text):
    for name, functions in re.findall(r"^\|.*\| `(src/[^`]+)` \| (`.*`) \|$", text, re.M):
        source = (ROOT / name).read_text() if (ROOT / name).is_file() else ""
        for function in re.findall(r"`([^`]+)`", functions):
            if not re.search(r"^[^/\n]*\b" + re.escape(function) + r"\(", source, re.M):
                yield f"{path.relative_to(ROOT)}: {function} is not in {name}"


def missing_commands(text, help_text):
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", help_text, re.M)
    known = re.findall(r"^  (\w+)", listed[1], re.M) if listed else []
    if not known:
        yield "nibble --help lists no commands"
    elif sorted(known) != sorted(table_commands(text)):
        yield (f"README.md's table has {sorted(table_commands(text))}, "
               f"nibble --help {sorted(known)}")


def problems(binary):
    english, chinese = README.read_text(), README_ZH.read_text()
    yield from compare_readmes(english, chinese)
    yield from compare_guides()
    for path in sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        yield from broken_links(path, path.read_text())
        yield from missing_functions(path, path.read_text())
    if binary:
        shown = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False)
        yield from missing_commands(english, shown.stdout)


if __name__ == "__main__":
    found = list(problems(sys.argv[1] if len(sys.argv) > 1 else None))
    print("\n".join(found) if found else "docs: ok")
    sys.exit(1 if found else 0)
