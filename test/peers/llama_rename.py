#!/usr/bin/env python3
"""Copies a GGUF file under another architecture: llama_rename.py IN OUT ARCH. Keys ARCH.* follow; tensors stay."""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, ALIGNMENT = 8, 9, 32


def string_end(data, at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def value_end(data, at, kind):
    if kind == STRING:
        return string_end(data, at)
    if kind != ARRAY:
        return at + SIZES[kind]
    item, n = struct.unpack_from("<IQ", data, at)
    at += 12
    if item != STRING:
        return at + n * SIZES[item]
    for _ in range(n):
        at = string_end(data, at)
    return at


def packed(text):
    return struct.pack("<Q", len(text)) + text


def main(source, target, arch):
    data = open(source, "rb").read()
    n_tensor, n_kv = struct.unpack_from("<QQ", data, 8)
    at, out, old = 24, [data[:24]], b""
    for _ in range(n_kv):
        end = string_end(data, at)
        key, kind = data[at + 8:end], struct.unpack_from("<I", data, end)[0]
        value = data[end + 4:value_end(data, end + 4, kind)]
        if key == b"general.architecture":
            old, value = value[8:], packed(arch)
        if old and key.startswith(old + b"."):
            key = arch + key[len(old):]
        out.append(packed(key) + struct.pack("<I", kind) + value)
        at = value_end(data, end + 4, kind)
    directory = at
    for _ in range(n_tensor):
        at = string_end(data, at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4 + 8
    out.append(data[directory:at])
    head = b"".join(out)
    pad = -len(head) % ALIGNMENT
    with open(target, "wb") as f:
        f.write(head + bytes(pad) + data[at + -at % ALIGNMENT:])


main(sys.argv[1], sys.argv[2], sys.argv[3].encode())
