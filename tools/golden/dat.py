# SPDX-License-Identifier: MIT
"""`.dat` files (docs/formats.md): one flat stream of named tensors."""
import ml_dtypes
import numpy as np

TYPES = {0: np.uint8, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.int64, 5: np.float16,
         6: np.float32, 7: np.float64, 11: np.bool_, 15: ml_dtypes.bfloat16, 100: np.uint8,
         101: np.uint8}  # E4M3 as its bytes
E4M3 = 101


def read(path):
    """{key: (type code, array)} in the order of the file."""
    data, at = path.read_bytes(), 0

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

    tensors = {}
    for _ in range(number()):
        length = number()
        key = data[at:at + length].decode()
        at += length
        code = number()
        shape = [number() for _ in range(number())]
        array = np.frombuffer(data, TYPES[code], int(np.prod(shape)), at).reshape(shape)
        at += array.nbytes
        tensors[key] = (code, array)
    if at != len(data):
        raise SystemExit(f"{path}: {len(data) - at} bytes after the last entry")
    return tensors


def leb128(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def to_bytes(tensors):
    out = [leb128(len(tensors))]
    for key, (code, array) in tensors.items():
        name = key.encode()
        out += [leb128(len(name)), name, leb128(code), leb128(array.ndim)]
        out += [leb128(n) for n in array.shape]
        out.append(np.ascontiguousarray(array).tobytes())
    return b"".join(out)
