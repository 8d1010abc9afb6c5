#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the tests of a ctest JUnit report and says why each skipped one was skipped.

tools/summarize_tests.py REPORT.xml      exit 1 when a test failed or the report is empty
"""
import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(case):
    """The message of GTEST_SKIP(), of `[  SKIPPED ] why`, or what ctest says."""
    output = case.findtext("system-out") or ""
    # GoogleTest: "<file>:<line>: Skipped", the message, an empty line or the verdict.
    found = re.search(r": Skipped\n(.*?)\n?(?:\n\n|\[  SKIPPED \])", output, re.S)
    if found and found[1].strip():
        return " ".join(found[1].split())
    found = re.search(r"^\[  SKIPPED \] (?!\d+ test)(.+)$", output, re.M)
    if found and not re.fullmatch(r"\S+ \(\d+ ms\)", found[1]):
        return found[1].strip()
    skipped = case.find("skipped")
    return (skipped.get("message") if skipped is not None else None) or "no reason given"


def summarize(root):
    """Returns (lines to print, number of failures)."""
    passed, failed, skipped = 0, [], {}
    for case in root.iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled"):
            skipped.setdefault(skip_reason(case), []).append(case.get("name"))
        else:
            failed.append(case.get("name"))
    lines = []
    for reason, names in sorted(skipped.items()):
        lines.append(f"skipped: {reason}")
        lines += [f"    {name}" for name in sorted(names)]
    lines += [f"FAILED: {name}" for name in sorted(failed)]
    n_skipped = sum(map(len, skipped.values()))
    lines.append(f"{passed} passed, {len(failed)} failed, {n_skipped} skipped")
    return lines, len(failed) if passed + len(failed) + n_skipped else 1


if __name__ == "__main__":
    text, failures = summarize(ElementTree.parse(sys.argv[1]).getroot())
    print("\n".join(text))
    sys.exit(1 if failures else 0)
