#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes docs/ops-support.md: which backend has been tested with which op, types and sizes.

tools/make_ops_support.py                           write the page from docs/ops-support/*.json
tools/make_ops_support.py --check                   exit 1 when it is not up to date, or when an op
                                                    of backend.h has no test (ctest `ops_support`)
tools/make_ops_support.py record cpu FILE [...]     merge what tests have written into cpu.json, and
                                                    write the page; likewise `record cuda`
    --on TEXT                                       the machine, for the page

Tests write such a FILE when asked to (tests/support/op_coverage.h), all into one if need be:

NIBBLE_OPS_COVERAGE=/tmp/cpu build/tests/ops/test_ops
NIBBLE_OPS_COVERAGE=/tmp/cpu build/tests/generate/test_generate
"""
import argparse
import json
import pathlib
import re
import sys
import textwrap

import make_ops_doc

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "docs/ops-support"
PAGE = ROOT / "docs/ops-support.md"
BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}
INTRO = """# Which backend takes what

Made by `tools/make_ops_support.py` from what the tests of ops and engines really called
(`docs/ops-support/*.json`); do not edit. A row is what passing tests have run, no more: the
contracts are in [ops.md](ops.md), the bounds in [numerics.md](numerics.md). `act` is the compute
type; operands not named have it, or f32 where they are statistics, norm weights or rotation
tables. A line of types stands for every combination of what it lists. `activations bf16` leaves
the input of a product as it is. Letters are those of ops.md. "strided" and "unaligned" name the
operands that were, in some test, columns of something wider, or rows that do not begin at
multiples of 16 bytes.
"""
# Why there is nothing to record.
BESIDE = {
    **dict.fromkeys(("name", "traits", "linear_kernels", "decode_way"),
                    "what a backend says of itself"),
    **dict.fromkeys(("allocate", "reserve", "available_memory", "available_host_memory",
                     "memory_is_host", "device_memory", "device_memory_reader", "host_update_bytes", "upload", "download", "packed_bytes"),
                    "memory and bytes, whatever they mean"),
    **dict.fromkeys(("sync", "repeat", "make_hand_over", "mark_updates", "await_updates"),
                    "about when ops run, not what they compute"),
    "rows_of": "a view, the same on every backend",
    "adamw_step": "`adamw_steps` of one",
    "note": "a name for a recording",
}
NOT_THERE = {
    ("decode_step", "cpu"): "the plain sequence of ops",
    ("linear_wgrad_squares", "cpu"): "returns false: `linear_wgrad`, then `sum_squares`",
}
NOTES = {
    "linear": "`activations nvfp4` runs on FP4 tensor cores from compute capability 10.0 (packed "
              "weights, in % 32 == 0, out % 8 == 0, 16-bit act, over 64 tokens) and "
              "is emulated exactly elsewhere. `int8` is a mode of the CPU.",
    "linear_swiglu": "As `linear`.",
    "sample": "CUDA: f32 logits only, which its head writes.",
    "attention": "CUDA: heads of at most 4096.",
    "attention_back": "CUDA: heads of at most 4096.",
    "decode_step": "One launch on CUDA: one sequence, bf16, packed weights, compute capability "
                   "9.0 ([ADR 0012](adr/0012-decode-in-one-launch.md)); else the plain sequence of "
                   "ops.",
}
ORDER = ("f64", "f32", "fp32", "bf16", "f16", "f8_e4m3", "int8", "int8-linear", "nvfp4", "none",
         "no")
SIZES = ("N", "H", "Hq", "Hkv", "D", "C", "F", "V", "Vc", "in", "out")
FIRST = ("act", "x", "logits", "master", "w", "src", "table", "cache")


def op_sections(source):
    for section, ops in make_ops_doc.operations(make_ops_doc.public_part(source)):
        yield section, [re.search(r"(\w+)\(", signature)[1] for signature, _ in ops]


# --- Recording ---

def merged(lines):
    """One call for each op and combination of types, with the range of its sizes."""
    calls = {}
    for line in lines:
        key = (line["op"], tuple(sorted(line["types"].items())))
        call = calls.setdefault(key, {"op": line["op"], "types": dict(key[1]), "sizes": {},
                                      "strided": [], "unaligned": []})
        for name, (low, high) in line["sizes"].items():
            known = call["sizes"].get(name, [low, high])
            call["sizes"][name] = [min(known[0], low), max(known[1], high)]
        for name in ("strided", "unaligned"):
            call[name] = sorted({*call[name], *line[name]})
    return [calls[key] for key in sorted(calls)]


def record(backend, files, on):
    lines = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    calls = ",\n".join(json.dumps(call) for call in merged(lines))
    DATA.mkdir(exist_ok=True)
    (DATA / f"{backend}.json").write_text(f'{{"on": {json.dumps(on)}, "calls": [\n{calls}\n]}}\n')


def read_data(folder):
    """{backend: (machine, calls)} of those that have been recorded."""
    data = {}
    for backend in BACKENDS:
        file = folder / f"{backend}.json"
        if file.exists():
            content = json.loads(file.read_text())
            data[backend] = (content["on"], content["calls"])
    return data


# --- The page ---

def boxes(calls):
    """The combinations of types as few products of sets: [{field: set of values}]."""
    fields = sorted({f for call in calls for f in call["types"]},
                    key=lambda f: (FIRST.index(f) if f in FIRST else len(FIRST), f))
    found = {tuple(frozenset({call["types"].get(f, "act")}) for f in fields) for call in calls}
    count = None
    while count != len(found):
        count = len(found)
        for i in range(len(fields)):
            groups = {}
            for box in sorted(found, key=lambda b: [sorted(s) for s in b]):
                groups.setdefault(box[:i] + box[i + 1:], set()).update(box[i])
            found = {rest[:i] + (frozenset(values),) + rest[i:] for rest, values in groups.items()}
    rows = [dict(zip(fields, box)) for box in found]
    return sorted(rows, key=lambda box: [list(map(rank, in_order(s))) for s in box.values()])


def rank(value):
    first = value.split(" ")[0]
    return (ORDER.index(first) if first in ORDER else len(ORDER), value)


def size_rank(item):
    return (SIZES.index(item[0]) if item[0] in SIZES else len(SIZES), item[0])


def in_order(values):
    return sorted(values, key=rank)


def box_text(box):
    return "; ".join(f"{field} {', '.join(in_order(values))}" for field, values in box.items()
                     if values != {"act"})


def cell(op, backend, data):
    if backend not in data:
        return "not yet recorded"
    calls = [call for call in data[backend][1] if call["op"] == op]
    if not calls:
        return NOT_THERE.get((op, backend), "no test")
    lines = [box_text(box) for box in boxes(calls)]
    sizes = {}
    for call in calls:
        for name, (low, high) in call["sizes"].items():
            known = sizes.get(name, (low, high))
            sizes[name] = (min(known[0], low), max(known[1], high))
    lines.append(", ".join(f"{name} {low}" if low == high else f"{name} {low}..{high}"
                           for name, (low, high) in sorted(sizes.items(), key=size_rank)))
    for word in ("strided", "unaligned"):
        names = sorted({name for call in calls for name in call[word]})
        if names:
            lines.append(f"{word}: {', '.join(names)}")
    return "<br>".join(lines)


def make_page(source, data):
    page = INTRO
    for backend, title in BACKENDS.items():
        on = data[backend][0] if backend in data else None
        page += f"\n{title}: {f'recorded on {on}' if on else 'not yet recorded'}.\n"
    beside = {}
    for section, ops in op_sections(source):
        ops_here = [op for op in ops if op not in BESIDE]
        for op in ops:
            if op in BESIDE:
                beside.setdefault(BESIDE[op], []).append(op)
        if not ops_here:
            continue
        page += f"\n## {section}\n\n| op | {' | '.join(BACKENDS.values())} | notes |\n"
        page += "|---" * (len(BACKENDS) + 2) + "|\n"
        for op in ops_here:
            cells = " | ".join(cell(op, backend, data) for backend in BACKENDS)
            page += f"| `{op}` | {cells} | {NOTES.get(op, '')} |\n"
    page += "\n## Beside the ops\n\nNothing to record of these functions of the interface:\n\n"
    for why, ops in beside.items():
        page += textwrap.fill(
            f"- {', '.join(f'`{op}`' for op in ops)}: {why}", 100, subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False) + "\n"
    return page


def problems(source, data, page):
    there = [op for _, ops in op_sections(source) for op in ops]
    recorded = {call["op"] for _, calls in data.values() for call in calls}
    for name in sorted(recorded | set(BESIDE) | set(NOTES) | {op for op, _ in NOT_THERE}):
        if name not in there:
            yield f"{name} is no op of backend.h"
    on_cpu = {call["op"] for call in data["cpu"][1]} if "cpu" in data else set()
    for op in there:
        if op not in on_cpu and op not in BESIDE and (op, "cpu") not in NOT_THERE:
            yield f"{op} has not been recorded: run its tests and `record cpu`"
        if f"`{op}`" not in page:
            yield f"{op} does not appear on the page"
    if page != make_page(source, data):
        yield "the page is not up to date: run tools/make_ops_support.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--on", default="an unnamed machine")
    parser.add_argument("record", nargs="*", help="record cpu|cuda FILE ...")
    a = parser.parse_args()
    source = make_ops_doc.HEADER.read_text()
    if a.record:
        if len(a.record) < 3 or a.record[0] != "record" or a.record[1] not in BACKENDS:
            parser.error("record cpu|cuda FILE ...")
        record(a.record[1], map(pathlib.Path, a.record[2:]), a.on)
    if not a.check:
        PAGE.write_text(make_page(source, read_data(DATA)))
    found = list(problems(source, read_data(DATA), PAGE.read_text() if PAGE.exists() else ""))
    print("\n".join(f"ops_support: {line}" for line in found) if found else "ops_support: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
