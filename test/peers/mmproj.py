#!/usr/bin/env python3
"""Writes a GGUF file that libmtmd takes as the eyes of a text model, with random weights: a LLaVA of one small layer.

    mmproj.py FILE N_EMBD    N_EMBD: of the text model
"""

import random
import struct
import sys

PATCH, SIDE, WIDTH, HIDDEN = 8, 32, 32, 64  # (32 / 8)^2 = 16 rows for an image


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v):
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    return struct.pack("<IIQ", 9, 6, len(v)) + struct.pack(f"<{len(v)}f", *v)


def main():
    path, n_embd = sys.argv[1], int(sys.argv[2])
    rng = random.Random(7)
    keys = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": "mlp",
        "clip.use_gelu": True,
        "clip.vision.image_size": SIDE,
        "clip.vision.patch_size": PATCH,
        "clip.vision.embedding_length": WIDTH,
        "clip.vision.feed_forward_length": HIDDEN,
        "clip.vision.projection_dim": n_embd,
        "clip.vision.block_count": 1,
        "clip.vision.attention.head_count": 2,
        "clip.vision.attention.layer_norm_epsilon": 1e-5,
        "clip.vision.image_mean": [0.5, 0.5, 0.5],
        "clip.vision.image_std": [0.5, 0.5, 0.5],
    }
    n_patch = (SIDE // PATCH) ** 2
    shapes = {  # as ggml has them: the fastest dimension first
        "v.class_embd": [WIDTH],
        "v.patch_embd.weight": [PATCH, PATCH, 3, WIDTH],
        "v.position_embd.weight": [WIDTH, n_patch + 1],
        "v.pre_ln.weight": [WIDTH],
        "v.pre_ln.bias": [WIDTH],
        "mm.0.weight": [WIDTH, n_embd],
        "mm.0.bias": [n_embd],
        "mm.2.weight": [n_embd, n_embd],
        "mm.2.bias": [n_embd],
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        shapes[f"v.blk.0.{name}.weight"] = [WIDTH, WIDTH]
        shapes[f"v.blk.0.{name}.bias"] = [WIDTH]
    for name in ("ln1", "ln2"):
        shapes[f"v.blk.0.{name}.weight"] = [WIDTH]
        shapes[f"v.blk.0.{name}.bias"] = [WIDTH]
    shapes["v.blk.0.ffn_up.weight"], shapes["v.blk.0.ffn_up.bias"] = [WIDTH, HIDDEN], [HIDDEN]
    shapes["v.blk.0.ffn_down.weight"], shapes["v.blk.0.ffn_down.bias"] = [HIDDEN, WIDTH], [WIDTH]
    infos, data = b"", b""
    for name, shape in shapes.items():
        n = 1
        for d in shape:
            n *= d
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, len(data))
        one = "ln" in name and name.endswith("weight")
        scale = 0.5 if len(shape) == 1 else 1.5 * (shape[0] if len(shape) == 2 else 192) ** -0.5
        data += struct.pack(f"<{n}f", *(1.0 if one else rng.gauss(0, scale) for _ in range(n)))
        data += bytes(-len(data) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(keys))
    head += b"".join(text(k) + value(v) for k, v in keys.items()) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


main()
