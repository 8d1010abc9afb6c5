# SPDX-License-Identifier: MIT
"""`.dat` files as arrays, and back."""
import ml_dtypes
import numpy as np

import dat_file

TYPES = {0: np.uint8, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.int64, 5: np.float16,
         6: np.float32, 7: np.float64, 11: np.bool_, 15: ml_dtypes.bfloat16, 100: np.uint8,
         101: np.uint8}  # E4M3 as its bytes
E4M3 = 101


def read(path):
    """{key: (type code, array)} in the order of the file."""
    return {key: (code, np.frombuffer(data, TYPES[code]).reshape(shape))
            for key, code, shape, data in dat_file.entries(path)}


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
