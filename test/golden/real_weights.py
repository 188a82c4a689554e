#!/usr/bin/env python3
"""Compares chimere on published weights with test/data/real.json (test/golden/real.py).

Usage: real_weights.py CHIMERE MODELS_DIR REAL.json SCRATCH_DIR; exits with 77 if no model is there.
"""
import json
import os
import struct
import subprocess
import sys

program, models, spec, scratch = sys.argv[1:]
n_run = 0


def missing(name):
    if os.path.exists(os.path.join(models, name)):
        return False
    print(f"skip: {name}, script/test-models fetches it")
    return True


def decoder(want):
    """All products in f32: with dequantised weights nothing but rounding may differ."""
    plain = os.path.join(scratch, "plain.gguf")
    subprocess.run([program, "quantize", os.path.join(models, want["file"]), plain, "F32"],
                   capture_output=True, check=True)
    run = subprocess.run([program, "logits", "-q", "-m", plain, "--all", "--cache-type-k", "f32", "--cache-type-v", "f32",
                          "--tokens", ",".join(map(str, want["tokens"]))], capture_output=True, check=True)
    os.remove(plain)
    n = len(run.stdout) // 4 // len(want["tokens"])
    worst = 0
    for t, (ids, logits, best) in enumerate(zip(want["ids"], want["logits"], want["best"])):
        row = struct.unpack_from(f"<{n}f", run.stdout, t * n * 4)
        worst = max(worst, max(abs(row[i] - x) for i, x in zip(ids, logits)) / want["range"])
        top = max(range(n), key=row.__getitem__)
        if top != best and row[top] - row[best] > 1e-5 * want["range"]:
            sys.exit(f"{want['file']}, position {t}: token {top}, not {best}")
    print(f"{want['file']}: {worst:.1e} of the range, {len(want['tokens'])} positions")
    if not worst <= 1e-4:
        sys.exit("logits differ")


def encoder(want):
    file = os.path.join(scratch, "encoder.gguf")
    subprocess.run([program, "convert", os.path.join(models, want["folder"]), file, "--type", "f32"],
                   capture_output=True, check=True)
    run = subprocess.run([program, "embed", "-q", "-m", file], input="\n".join(want["texts"]) + "\n", capture_output=True,
                         check=True, text=True)
    worst = 0
    for line, vector in zip(run.stdout.strip().split("\n"), want["vectors"], strict=True):
        got = json.loads(line)["embedding"]
        worst = max(worst, max(abs(a - b) for a, b in zip(got, vector, strict=True)))
    print(f"{want['folder']}: {worst:.1e}")
    if not worst <= 1e-5:
        sys.exit("vectors differ")


with open(spec) as f:
    all_of = json.load(f)
for kind, check, name in (("decoders", decoder, "file"), ("encoders", encoder, "folder")):
    for item in all_of[kind]:
        if not missing(item[name]):
            check(item)
            n_run += 1
sys.exit(0 if n_run else 77)
