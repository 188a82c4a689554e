#!/usr/bin/env bash
# ik_llama.cpp's types: dump of random rows against a decoder of its own, written from the description of the
# formats; interleaved rows refused by name.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

cat >ik.py <<'END'
import random, struct, subprocess, sys
T2 = [-31, -13, 1, 17, -26, -8, 6, 22]
T3 = [-63, -40, -23, -10, 1, 13, 28, 47, -59, -36, -19, -6, 5, 17, 32, 51]
T4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
      -123, -100, -79, -61, -45, -31, -18, -6, 5, 17, 29, 42, 57, 73, 93, 117]
T5 = [-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6,
      -1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121]
T5 += [v + 2 for v in T5]
PAIRS = ("e9c1 0dc1 c1d8 f6d8 0dd8 2fd8 d8e9 e9e9 01e9 0de9 1ce9 c1f6 01f6 0df6 2ff6 e901 f601 0101 0d01 1c01 d80d "
         "e90d f60d 010d 0d0d c11c e91c 011c 1c1c 2f1c e92f 0d2f").split()
i8 = lambda v: v - 256 if v > 127 else v
PAIRS = [(i8(int(p[2:], 16)), i8(int(p[:2], 16))) for p in PAIRS]
f32 = lambda v: struct.unpack("<f", struct.pack("<f", v))[0]
u16 = lambda b, at: b[at] | b[at + 1] << 8
u32 = lambda b, at: u16(b, at) | u16(b, at + 2) << 16
half = lambda b, at: struct.unpack_from("<e", b, at)[0]
nib = lambda b, at, i: b[at + i // 2] >> i % 2 * 4 & 15
split = lambda b, at, g: b[at + g % 4] >> g // 4 * 4 & 15
two = lambda b, at, i: b[at + 32 * (i // 128) + i % 32] >> 2 * (i // 32 % 4) & 3
nl = lambda b, at, i: b[at + 16 * (i // 32) + i % 16] >> i % 32 // 16 * 4 & 15
n64 = lambda b, at, i: b[at + 32 * (i // 64) + i % 32] >> i % 64 // 32 * 4 & 15
bit = lambda v, i: v >> i & 1

def trellis(x, n):
    out = []
    for _ in range(n):
        x = x * 0xCBAC1FED & 0xFFFFFFFF
        m = x & 0x3F3F3F3F
        out.append((m & 255) + (m >> 8 & 255) + (m >> 16 & 255) + (m >> 24) - 126)
    return out

def six(q, shifted):
    return -127 + 6.2568 * q - .11218 * q * q + .0011972 * q ** 3 + shifted

def scales6(b, high, low):
    return [(nib(b, low, g) | (b[high + g // 4] >> 2 * (g % 4) & 3) << 4) - 32 for g in range(16)]

# Each returns integer scales per 16 weights and values of one super-block.
def iq2_k(b):
    x = u16(b, 2)
    return [nib(b, 4, g) - 8 for g in range(16)], [T2[4 * bit(x, i // 16) + two(b, 12, i)] for i in range(256)]
def iq3_k(b):
    x, h = u16(b, 2), u16(b, 4)
    s = [(2 * nib(b, 6, g) + 1) * (-1 if bit(h, g) else 1) for g in range(16)]
    return s, [T3[8 * bit(x, i // 16) + (two(b, 14, i) | bit(b[78 + i % 32], i // 32) << 2)] for i in range(256)]
def iq4_k(b):
    x = u16(b, 2)
    return scales6(b, 4, 8), [T4[16 * bit(x, i // 16) + nl(b, 16, i)] for i in range(256)]
def iq5_k(b):
    x = u16(b, 2)
    return scales6(b, 4, 8), [T5[32 * bit(x, i // 16) + (n64(b, 16, i) | bit(b[144 + i % 32], i // 32) << 4)]
                              for i in range(256)]
def iq6_k(b):
    x = u16(b, 2)
    def code(i):
        pair = b[148 + 32 * (i // 128) + i % 32] >> 4 * (i // 64 % 2)
        return n64(b, 20, i) | (pair >> (2 if i // 32 % 2 else 0) & 3) << 4
    return [i8(b[4 + g]) for g in range(16)], [six(code(i), bit(x, i // 16)) for i in range(256)]
def twice(s): return [v for v in s for _ in range(2)]
def iq2_ks(b):
    x = u16(b, 0)
    s = [(nib(b, 2, g) | bit(x, 8 + g) << 4) - 16 for g in range(8)]
    return twice(s), [T2[4 * bit(x, i // 32) + two(b, 6, i)] for i in range(256)]
def iq3_ks(b):
    x = u16(b, 0)
    s = [(split(b, 2, g) | bit(x, g) << 4) - 16 for g in range(8)]
    return twice(s), [T3[8 * bit(x, 8 + i // 32) + (two(b, 6, i) | bit(b[70 + i % 32], i // 32) << 2)]
                      for i in range(256)]
def iq2_kl(b):
    h, v = u16(b, 0), []
    s = [(split(b, 2, g) | (h >> 2 * g & 3) << 4) - 32 for g in range(8)]
    for g in range(8):
        for j in range(16):
            v += PAIRS[(b[6 + 16 * (g // 2) + j] >> g % 2 * 4 & 15) | bit(b[70 + j], g) << 4]
    return twice(s), v
def iq4_ks(b):
    return twice([(b[g] & 254) - 127 for g in range(8)]), [T4[16 * (b[i // 32] & 1) + nl(b, 8, i)] for i in range(256)]
def iq5_ks(b):
    return (twice([(b[g] & 254) - 127 for g in range(8)]),
            [T5[32 * (b[i // 32] & 1) + (n64(b, 8, i) | bit(b[136 + i % 32], i // 32) << 4)] for i in range(256)])
def iq4_kss(b):
    s, v = [], []
    for g in range(8):
        w = [u16(b, 16 * g + 2 * k) for k in range(8)]
        h = sum((w[k] & 1) << k for k in range(8))
        s.append((h & 254) - 127)
        raw = b"".join(struct.pack("<H", (x & 0xFFFE) ^ (x & 0xFFFE) >> 1) for x in w)
        v += [T4[16 * (h & 1) + (raw[j % 16] >> j // 16 * 4 & 15)] for j in range(32)]
    return twice(s), v
def iq1_kt(b):
    v = []
    for k in range(32):
        g, i = k // 4, k % 4
        v += trellis(4096 + (b[8 + k] | b[40 + 4 * (g % 4) + i] << 8 - 4 * (g // 4) & 0xF00 | b[g] << 8 - i & 0x1000), 8)
    return twice([T4[b[g] & 15] for g in range(8)]), v
def iq2_kt(b):
    return (twice([T4[split(b, 0, g)] for g in range(8)]),
            [x for k in range(32) for x in trellis(4096 + u16(b, 4 + 2 * k), 8)])
def iq3_kt(b):
    v = [x for k in range(32) for x in trellis(4096 + u16(b, 4 + 2 * k), 8)]
    return (twice([split(b, 0, g) for g in range(8)]),
            [-abs(x) if bit(b[68 + i % 32], i // 32) else abs(x) for i, x in enumerate(v)])
def iq4_kt(b):
    s, v = [], []
    for g in range(8):
        h = u32(b, 4 * g)
        s.append(((h & 255) >> 1) - 64)
        for i in range(8):
            j = 8 * g + i
            x = b[32 + j] | b[96 + j % 32] << 8 - 4 * (j // 32) & 0xF00 | (h >> 8 + 3 * i & 7) << 12
            v += trellis(4096 + x + 32768 * (h & 1), 4)
    return twice(s), v

# type: id, bytes of a block, bytes of the row's scale
TYPES = {"iq2_k": (137, 76, 0), "iq3_k": (138, 110, 0), "iq4_k": (139, 144, 0), "iq5_k": (140, 176, 0),
         "iq6_k": (141, 212, 0), "iq4_ks": (144, 136, 4), "iq2_ks": (145, 70, 2), "iq4_kss": (146, 128, 4),
         "iq5_ks": (152, 168, 4), "iq2_kt": (153, 68, 4), "iq3_kt": (154, 100, 4), "iq4_kt": (155, 128, 4),
         "iq3_ks": (156, 102, 2), "iq2_kl": (157, 86, 2), "iq1_kt": (158, 56, 4)}
ROWS, WIDTH = 3, 512
rnd = random.Random(5)

def row_of(name):
    id, block, head = TYPES[name]
    out, want = b"", []
    d = f32(rnd.uniform(.001, .1)) if head == 4 else struct.unpack("<e", struct.pack("<e", rnd.uniform(.001, .1)))[0]
    if head: out += struct.pack("<f" if head == 4 else "<e", d)
    for _ in range(WIDTH // 256):
        b = bytearray(rnd.randbytes(block))
        if not head: b[:2] = struct.pack("<e", d)
        s, v = globals()[name](bytes(b))
        want += [f32(f32(d * s[i // 16]) * v[i]) for i in range(256)]
        out += bytes(b)
    return out, want

def gguf(path, tensors):
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    at, data = 0, b""
    for name, id, body in tensors:
        head += text(name) + struct.pack("<IQQIQ", 2, WIDTH, ROWS, id, len(data))
        data += body + b"\0" * (-len(body) % 32)
    open(path, "wb").write(head + b"\0" * (-len(head) % 32) + data)

tensors, wanted = [], {}
for name in TYPES:
    rows = [row_of(name) for _ in range(ROWS)]
    tensors.append((name + ".weight", TYPES[name][0], b"".join(r[0] for r in rows)))
    wanted[name] = [v for r in rows for v in r[1]]
gguf("ik.gguf", tensors)
for name, want in wanted.items():
    got = subprocess.run([sys.argv[1], "dump", "ik.gguf", name + ".weight"], stdout=subprocess.PIPE, check=True).stdout
    got = struct.unpack("<%df" % len(want), got)
    limit = 5e-7 * max(map(abs, want)) if name == "iq6_k" else 0 # its polynomial is in single precision
    for i, (a, b) in enumerate(zip(got, want)):
        assert abs(a - b) <= limit, (name, i, a, b)
gguf("r4.gguf", [("a.weight", 339, b"\0" * 4096)])
END
python3 ik.py "$CHIMERE"
refuses 1 "got interleaved rows of iq4_k (id 339)" "$CHIMERE" inspect r4.gguf
