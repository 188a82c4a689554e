#!/usr/bin/env python3
"""rotate.py IN.gguf OUT.gguf [--fold-only]: rotates the residual stream of a qwen35moe or llama model, with its norms folded.

Each norm's weight becomes 1 and is multiplied into the columns of the matrices that read its result. Then every vector x of
the residual stream becomes x R with an orthogonal R, which commutes with the norm: readers W become W R, writers R' W,
embeddings E R. R is a Hadamard matrix with random signs if the width is a power of two, else a random rotation. A tied
embedding is untied, as the last norm is folded into the head alone. The result has floats; its output is that of IN to
within rounding:

    lab/rotate.py models/chimere-nano-bf16.gguf rotated.gguf
    chimere perplexity -m models/chimere-nano-bf16.gguf -f HELD --ctx 512 --save-base base
    chimere imatrix -m rotated.gguf -f CALIBRATION -o rotated.imatrix --ctx 256 --process-output --correlations
    chimere quantize rotated.gguf out.gguf IQ3_S --pure [--imatrix rotated.imatrix]
    chimere perplexity -m out.gguf --kl-base base

Blocks for multi-token prediction are left as they are: no logit depends on them. docs/ramp.md has the figures.
"""
import argparse
import re
import struct

import numpy as np

READERS = {"attn_norm": ["attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha", "attn_q", "attn_k", "attn_v"]}
READERS["post_attention_norm"] = READERS["ffn_norm"] = [
    "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_gate_inp_shexp", "ffn_gate", "ffn_up"]
WRITERS = ["ssm_out", "attn_output", "ffn_down_exps", "ffn_down_shexp", "ffn_down"]
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of the scalar types of GGUF keys
F32, Q4_1, BF16 = 0, 3, 30


class Reader:
    """Keys as bytes, and tensors as floats: name -> array with the file's first dimension last."""

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 24
        self.version, n_tensor, n_key = struct.unpack_from("<IQQ", self.data, 4)
        self.numbers = {}
        for _ in range(n_key):
            name, kind = self.text(), self.number("<I")
            self.numbers[name] = self.skip(kind)
        self.keys, self.n_key = self.data[24:self.at], n_key
        rows = [(self.text(), [self.number("<Q") for _ in range(self.number("<I"))], self.number("<I"), self.number("<Q")) for _ in range(n_tensor)]
        start = -(-self.at // 32) * 32
        self.tensors = {name: self.floats(kind, int(np.prod(dims)), start + at).reshape(dims[::-1]) for name, dims, kind, at in rows}

    def number(self, form):
        self.at += struct.calcsize(form)
        return struct.unpack_from(form, self.data, self.at - struct.calcsize(form))[0]

    def text(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        """Moves past a value; returns it if it is a small integer."""
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.number("<I"), self.number("<Q")
            for _ in range(n if inner == 8 else 0):
                self.text()
            self.at += 0 if inner == 8 else n * SIZES[inner]
            return None
        at, self.at = self.at, self.at + SIZES[kind]
        return int.from_bytes(self.data[at:self.at], "little") if kind in (4, 5, 10, 11) else None

    def floats(self, kind, n, at):
        if kind == F32:
            return np.frombuffer(self.data, "<f4", n, at).astype(np.float64)
        if kind == BF16:
            return (np.frombuffer(self.data, "<u2", n, at).astype("<u4") << 16).view("<f4").astype(np.float64)
        assert kind == Q4_1, "expected f32, bf16 or q4_1"
        blocks = np.frombuffer(self.data, np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]), n // 32, at)
        codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], 1)
        return (codes * blocks["d"][:, None].astype(np.float64) + blocks["m"][:, None]).ravel()


def write(path, source, tensors):
    head = b"GGUF" + struct.pack("<IQQ", source.version, len(tensors), source.n_key) + source.keys
    at = 0
    for name, t in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", t.ndim)
        head += struct.pack(f"<{t.ndim}Q", *t.shape[::-1]) + struct.pack("<IQ", F32, at)
        at += -(-t.size * 4 // 32) * 32
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for t in tensors.values():
            data = t.astype("<f4").tobytes()
            f.write(data + bytes(-len(data) % 32))


def rotation(n, rng):
    if n & (n - 1):
        q, r = np.linalg.qr(rng.standard_normal((n, n)))
        return q * np.sign(np.diag(r))
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return rng.choice([-1.0, 1.0], n)[:, None] * h / np.sqrt(n)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--fold-only", action="store_true", help="R is the identity: the same norms folded, for comparison")
    args = p.parse_args()
    source = Reader(args.model)
    t = dict(source.tensors)
    n_block, n_draft = (next((v for k, v in source.numbers.items() if k.endswith(s)), 0) for s in (".block_count", ".nextn_predict_layers"))
    embd = t["token_embd.weight"]
    r = np.eye(embd.shape[1]) if args.fold_only else rotation(embd.shape[1], np.random.default_rng(38))
    t["output.weight"] = t.get("output.weight", embd) * t["output_norm.weight"] @ r
    t["token_embd.weight"] = embd @ r
    t["output_norm.weight"] = np.ones_like(t["output_norm.weight"])
    for name in source.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
        if not found or int(found[1]) >= n_block - n_draft:
            continue
        layer, role = found.groups()
        for reader in READERS.get(role, []):
            if (to := f"blk.{layer}.{reader}.weight") in t:
                t[to] = t[to] * t[name] @ r
        if role in READERS:
            t[name] = np.ones_like(t[name])
        if role in WRITERS:
            t[name] = r.T @ t[name]
    write(args.out, source, t)


main()
