# SPDX-License-Identifier: MIT
"""NVFP4 by the rules of docs/numerics.md, written from that page and not from src/quant. Rounding
to E2M1 and E4M3 is that of ml_dtypes."""
import ml_dtypes
import numpy as np

BLOCK = 16


def e4m3_encode(x):
    """Bytes of fp32 values: nearest even, saturating at 448."""
    clipped = np.clip(np.asarray(x, np.float32), -448, 448)
    return clipped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def e4m3_values(byte):
    return np.asarray(byte, np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def e2m1_magnitudes(x):
    """Codes 0..7 of values >= 0."""
    clipped = np.minimum(np.asarray(x, np.float32), np.float32(6))
    return clipped.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 7


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def magnitudes(x, byte):
    """Of blocks x [blocks, 16] at the scales of `byte` [blocks]."""
    scale = e4m3_values(byte)
    scale = np.where(scale > 0, scale, np.float32(1))[:, None]  # where it is 0 so is x
    return e2m1_magnitudes((np.abs(x) / scale).astype(np.float32))


def byte_of(amax, divisor):
    byte = e4m3_encode(amax / np.float32(divisor))
    return np.where(amax > 0, np.maximum(byte, 1), 0).astype(np.uint8)


def squared_error(x, byte, code):
    """fp32, in the rule's order. Squares are added in double and rounded to fp32 each time, which
    is a fused multiply-add but for double roundings."""
    e = E2M1[code] * e4m3_values(byte)[:, None] - np.abs(x)
    halves = []
    for half in (e[:, :8], e[:, 8:]):
        total = np.zeros(len(x), np.float32)
        for i in range(8):
            square = np.square(half[:, i].astype(np.float64))
            total = (square + total.astype(np.float64)).astype(np.float32)
        halves.append(total)
    return halves[0] + halves[1]


def absmax(x, amax):
    byte = byte_of(amax, 6)
    return byte, magnitudes(x, byte)


def four_over_six(x, amax):
    six, code6 = absmax(x, amax)
    four = byte_of(amax, 4)
    code4 = magnitudes(x, four)
    better = (E2M1[code4].max(1) == 4) & (
        squared_error(x, four, code4) < squared_error(x, six, code6))
    byte = np.where(better, four, six)
    code = np.where(better[:, None], code4, code6)
    return np.where(code.any(1), byte, 0).astype(np.uint8), code


def torchao(x, amax):
    byte = e4m3_encode(np.maximum(amax / np.float32(6), np.float32(2) ** -6))
    return byte, magnitudes(x, byte)


RULES = {"absmax": absmax, "four_over_six": four_over_six, "torchao": torchao}


def quantize(x, rule):
    """x fp32 [rows, cols] -> codes u8 [rows, cols/2], scales u8 [rows, cols/16]."""
    rows, cols = x.shape
    if rule == "torchao":
        x = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, BLOCK)
    byte, code = RULES[rule](blocks, np.abs(blocks).max(1))
    code = code.astype(np.uint8) | (np.signbit(blocks) * np.uint8(8))
    packed = code[:, 0::2] | code[:, 1::2] << 4
    return packed.reshape(rows, cols // 2), byte.reshape(rows, cols // BLOCK)


def dequantize(codes, scales):
    rows = len(codes)
    low, high = codes & 15, codes >> 4
    code = np.stack([low, high], -1).reshape(rows, -1)
    value = np.where(code & 8, -E2M1[code & 7], E2M1[code & 7])
    return value * np.repeat(e4m3_values(scales), BLOCK, axis=1)
