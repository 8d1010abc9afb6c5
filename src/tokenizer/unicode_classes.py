#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes unicode_classes.inc: the character classes of the pre-tokeniser, frozen at Unicode 16.

Frozen, because token ids must not change with the Unicode version of an installed library. 16 is
what the regular expressions of Hugging Face tokenizers 0.23 know.
Run: pip install unicodedata2==16.0.0; python3 unicode_classes.py > unicode_classes.inc
"""
import unicodedata2 as u

assert u.unidata_version == "16.0.0"
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(keep):
    out = []
    for c in ALL:
        if keep(c):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


seconds = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
for c in ALL:
    parts = u.decomposition(chr(c)).split()
    if len(parts) == 2 and not parts[0].startswith("<"):
        seconds.add(int(parts[1], 16))


def nfc_unsafe(c):
    s = chr(c)
    return u.combining(s) != 0 or u.normalize("NFC", s) != s or c in seconds


TABLES = [
    ("kLetters", "general category L", lambda c: u.category(chr(c))[0] == "L"),
    ("kNumbers", "general category N", lambda c: u.category(chr(c))[0] == "N"),
    ("kNfcUnsafe", "may change, move or compose under NFC; everything else is a boundary", nfc_unsafe),
]
print("// SPDX-License-Identifier: MIT")
print("// Unicode 16.0.0 ranges, first and last code point. Written by unicode_classes.py.")
for name, what, keep in TABLES:
    print(f"\n// {what}\nconstexpr CodePointRange {name}[] = {{")
    line = "   "
    for a, b in ranges(keep):
        item = f" {{0x{a:x}, 0x{b:x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")
