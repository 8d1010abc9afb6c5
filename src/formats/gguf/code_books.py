#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes code_books.inc: the code books of GGUF's IQ types, which are part of the format.

A row is one number: the places of its values in the book's list of values, the first in the lowest
bits (two bits a value for IQ1 and IQ2, three for IQ3).
Run: pip install gguf==0.19.0; python3 code_books.py > code_books.inc
"""
import gguf.quants as q

BOOKS = [("kIq2Xxs", q.IQ2_XXS), ("kIq2Xs", q.IQ2_XS), ("kIq2S", q.IQ2_S),
         ("kIq3Xxs", q.IQ3_XXS), ("kIq3S", q.IQ3_S), ("kIq1S", q.IQ1_S)]

print("// SPDX-License-Identifier: MIT")
print("// Made by code_books.py. Not edited by hand.")
for name, book in BOOKS:
    book.init_grid()
    values = list(book.grid_map)
    bits = 2 if len(values) <= 4 else 3
    rows = book.grid.reshape(book.grid_shape).tolist()
    packed = [sum(values.index(v) << bits * i for i, v in enumerate(row)) for row in rows]
    print(f"constexpr uint16_t {name}[{len(packed)}] = {{")
    line = "   "
    for p in packed:
        item = f" {p},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "};")
