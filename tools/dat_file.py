# SPDX-License-Identifier: MIT
"""Reads `.dat` files (docs/formats.md): one flat stream of named tensors. Standard library only."""
import math
import pathlib

# Bytes of an element, by type code.
SIZES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 11: 1, 15: 2, 100: 1, 101: 1}


def entries(path):
    """Yields (key, type code, shape, bytes) in the order of the file."""
    data, at = pathlib.Path(path).read_bytes(), 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    for _ in range(number()):
        length = number()
        key = data[at:at + length].decode()
        at += length
        code = number()
        shape = [number() for _ in range(number())]
        n_bytes = SIZES[code] * math.prod(shape)
        yield key, code, shape, data[at:at + n_bytes]
        at += n_bytes
    if at != len(data):
        raise SystemExit(f"{path}: {len(data) - at} bytes after the last entry")
