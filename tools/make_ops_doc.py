#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes docs/ops.md from the contracts in src/backend/backend.h.

tools/make_ops_doc.py            write docs/ops.md
tools/make_ops_doc.py --check    exit 1 when it is not up to date (ctest `ops_doc`)
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "src/backend/backend.h"
PAGE = ROOT / "docs/ops.md"
INTRO = """# The op set

Generated from `src/backend/backend.h` by `tools/make_ops_doc.py`; do not edit. These are all
operations a backend provides. Why there are so few, and why so coarse:
[ADR 0001](adr/0001-backend-interface.md).
"""


def comment_text(lines):
    return " ".join(line.strip().removeprefix("//").strip() for line in lines)


def wrap(text):
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def public_part(source):
    body = re.search(r"class Backend \{\n public:\n(.*?)\n protected:", source, re.S)
    if not body:
        sys.exit(f"{HEADER}: class Backend has no public part followed by a protected one")
    return body[1]


def operations(body):
    """Yields (section, [(signature, contract)])."""
    section, ops, comment, pending, inside = "General", [], [], "", False
    for line in body.splitlines():
        text = line.strip()
        if inside:  # a function's body
            inside = text != "}"
            continue
        heading = re.fullmatch(r"// --- (.+) ---", text)
        if heading:
            if ops:
                yield section, ops
            section, ops, comment = heading[1], [], []
        elif not pending and text.startswith("//"):
            comment.append(text)
        elif not text:
            comment = []
        else:
            code, _, trailing = text.partition("  // ")
            if pending:
                code = pending + " " + code
            if not re.search(r"[;{}]\s*$", code):
                pending = code
                continue
            pending = ""
            inside = code.rstrip().endswith("{")
            signature = re.sub(r"\s*(\{.*\}|\{|=\s*0;|;)\s*$", "", code).removeprefix("virtual ")
            if "~Backend" not in signature:
                contract = comment_text(comment)
                if trailing:
                    contract = " ".join(filter(None, [contract, trailing]))
                ops.append((signature, contract))
            comment = []
    if ops:
        yield section, ops


def make_page(source):
    page = INTRO
    header = re.match(r"// SPDX[^\n]*\n((?://[^\n]*\n)+)", source)
    for paragraph in comment_text(header[1].splitlines()).split("  ") if header else []:
        page += f"\n{wrap(paragraph)}\n"
    for section, ops in operations(public_part(source)):
        page += f"\n## {section}\n"
        for signature, contract in ops:
            name = re.search(r"(\w+)\(", signature)[1]
            code = textwrap.fill(signature + ";", 100, subsequent_indent="    ")
            page += f"\n### {name}\n\n```cpp\n{code}\n```\n"
            if contract:
                page += f"\n{wrap(contract)}\n"
    return page


if __name__ == "__main__":
    wanted = make_page(HEADER.read_text())
    if sys.argv[1:] == ["--check"]:
        found = PAGE.read_text() if PAGE.exists() else ""
        if found != wanted:
            sys.exit(f"{PAGE} does not match {HEADER.name}: run tools/make_ops_doc.py")
        print("ops_doc: ok")
    else:
        PAGE.write_text(wanted)
