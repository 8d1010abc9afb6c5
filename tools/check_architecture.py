#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds docs/architecture.md against the code (ctest `architecture`).

tools/check_architecture.py          exit 1 where folders of src, the layer table of
                                     tools/check_layers.py, and the page's table and picture differ
tools/check_architecture.py --fix    writes what follows from the layer table into the page: the
                                     column "may include" and the picture

A room is a folder directly below src, or below src/backends or src/serve. What its files include, what it links
and how many there may be is checked by tools/check_layers.py.
"""
import pathlib
import re
import sys

from check_layers import ALLOWED

HOUSES = {"backends", "serve"}  # folders whose folders are the rooms
ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/architecture.md"
ROW = re.compile(r"^\| `([\w/]+)` \|(.*)\| ([^|]*) \|$", re.M)
PICTURE = re.compile(r"(<!-- picture of the rooms[^\n]*-->\n```text\n)(.*?)(```\n)", re.S)


def folders(src):
    found = set()
    for f in sorted(src.iterdir()):
        if f.is_dir():
            found |= {f"{f.name}/{g.name}" for g in f.iterdir() if g.is_dir()} \
                if f.name in HOUSES else {f.name}
    return found


def may_include(room, allowed):
    """The last column of a room's row; lower rooms first, as the layer table lists them."""
    if "*" in allowed[room]:
        return "everything"
    below = {"core", *allowed[room]} - {room}
    return ", ".join(r for r in allowed if r in below) or "nothing of nibble"


def floors(allowed):
    """Rooms by height: each one above all it may include. Those that may include everything come
    last, one above the other."""
    height = {}

    def of(room):
        if room not in height:
            below = {"core", *allowed[room]} - {room}
            height[room] = 1 + max((of(r) for r in below), default=-1)
        return height[room]

    top = 1 + max((of(r) for r in allowed if "*" not in allowed[r]), default=-1)
    for n, room in enumerate(r for r in allowed if "*" in allowed[r]):
        height[room] = top + n
    return [[r for r in allowed if height[r] == h] for h in sorted(set(height.values()))]


def picture(allowed):
    lines = ["   ".join(f"{room:13}" for room in floor).rstrip() for floor in floors(allowed)]
    width = max(map(len, lines))
    edge = "+" + "-" * (width + 2) + "+\n"
    return edge + "".join(f"| {line:{width}} |\n{edge}" for line in reversed(lines))


def fixed(page, allowed):
    def row(m):
        column = may_include(m[1], allowed) if m[1] in allowed else m[3]
        return f"| `{m[1]}` |{m[2]}| {column} |"

    return PICTURE.sub(lambda m: m[1] + picture(allowed) + m[3], ROW.sub(row, page))


def problems(src, page, allowed):
    rows = [m[1] for m in ROW.finditer(page)]
    for room in sorted(folders(src) | set(allowed) | set(rows)):
        if room not in folders(src):
            yield f"{room}: there is no such folder in {src}"
        if room not in allowed:
            yield f"{room}: not in the layer table of tools/check_layers.py"
        if rows.count(room) != 1:
            yield f"{room}: {rows.count(room)} rows in the table of rooms, expected one"
    for m in ROW.finditer(page):
        if m[1] in allowed and m[3] != may_include(m[1], allowed):
            yield (f"{m[1]}: the page says it may include '{m[3]}', tools/check_layers.py "
                   f"'{may_include(m[1], allowed)}': tools/check_architecture.py --fix")
    drawn = PICTURE.search(page)
    if not drawn:
        yield "the page has no picture of the rooms"
    elif drawn[2] != picture(allowed):
        yield "the picture does not show the layer table: tools/check_architecture.py --fix"


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        PAGE.write_text(fixed(PAGE.read_text(), ALLOWED))
    found = list(problems(ROOT / "src", PAGE.read_text(), ALLOWED))
    print("\n".join(f"{PAGE}: {line}" for line in found) if found else "architecture: ok")
    sys.exit(1 if found else 0)
