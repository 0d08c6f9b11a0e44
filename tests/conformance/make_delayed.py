#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_delayed.py SEED DIR: writes a delayed.tsv with all it names, of random weights.

The arithmetic is Python's own: a product of two fp32 values is exact in a double, and struct rounds
it to fp32 to nearest even; float8 codes are found by search among all values of the format.
"""
import bisect
import pathlib
import random
import struct
import sys

STEPS = 6
HISTORY = 16
ONES = {"e4m3fn": (4, 3, 7, 448.0), "e5m2": (5, 2, 15, 57344.0)}
SHAPES = {"f32": (61, 7), "bf16": (5, 33), "f16": (64, 48)}


def fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits(value):
    return struct.pack(">f", value).hex()


def to_bf16(value):
    """The fp32 value of a bf16, to nearest even."""
    raw = struct.unpack("<I", struct.pack("<f", value))[0]
    raw = (raw + 0x7FFF + (raw >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", raw))[0]


def to_f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


ROUND = {"f32": fp32, "bf16": to_bf16, "f16": to_f16}
PACK = {
    "f32": lambda value: struct.pack("<f", value),
    "bf16": lambda value: struct.pack("<f", value)[2:],
    "f16": lambda value: struct.pack("<e", value),
}


class Format:
    """All finite values of a float8 format that are not negative: code i is the i-th of them."""

    def __init__(self, name):
        exponent_bits, mantissa_bits, bias, self.largest = ONES[name]
        self.values = []
        for code in range(128):
            exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
            whole = mantissa if exponent == 0 else mantissa + (1 << mantissa_bits)
            value = whole * 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
            if value <= self.largest:
                self.values.append(value)
        assert self.values[-1] == self.largest and exponent_bits + mantissa_bits == 7

    def code(self, value):
        sign = 0x80 if struct.pack(">f", value)[0] & 0x80 else 0
        size = min(abs(value), self.largest)
        above = bisect.bisect_left(self.values, size)
        if self.values[above] == size:
            return sign | above
        middle = (self.values[above - 1] + self.values[above]) / 2
        up = size > middle or (size == middle and above % 2 == 0)
        return sign | (above if up else above - 1)


def scale_of(amax, dtype, format_):
    scale = format_.largest / max(amax, 1e-12)
    return fp32(min(scale, 65504.0) if dtype == "f16" else scale)


def run(rng, dtype, name, directory, index):
    format_, (rows, cols) = Format(name), SHAPES[dtype]
    history, scale = [0.0] * HISTORY, None
    for step in range(STEPS):
        spread = 10 ** rng.uniform(-2, 2)
        weight = [ROUND[dtype](rng.gauss(0, spread)) for _ in range(rows * cols)]
        amax = max(abs(value) for value in weight)
        if scale is None:
            history[0] = amax
            scale = scale_of(amax, dtype, format_)
        used = scale
        stem = f"delayed_{dtype}_{name}_{step}"
        (directory / f"{stem}.in").write_bytes(b"".join(map(PACK[dtype], weight)))
        codes = bytes(format_.code(fp32(value * used)) for value in weight)
        (directory / f"{stem}.{name}").write_bytes(codes)
        history = [amax] + history[:-1]
        scale = scale_of(max(history), dtype, format_)
        index.write("\t".join([dtype, str(step), str(rows), str(cols), f"{stem}.in",
                               f"{stem}.{name}", bits(used), bits(amax), bits(scale),
                               ",".join(map(bits, history))]) + "\n")


def main():
    rng, directory = random.Random(int(sys.argv[1])), pathlib.Path(sys.argv[2])
    with open(directory / "delayed.tsv", "w", encoding="ascii") as index:
        for name in ONES:
            for dtype in SHAPES:
                run(rng, dtype, name, directory, index)


if __name__ == "__main__":
    main()
