#!/usr/bin/env python3
"""Trains a drafter for a model: one command, on a processor or a GPU.

    python train/dflash/train.py --chimere build/release/chimere --out DIR [--model FILE] [--prompts N] [--steps N]

1. DIR/answers.jsonl: the model answers the prompts through `chimere serve`, greedily and at temperature 1 in turn.
2. DIR/taps: hidden states of its layers by `chimere taps`, of the file as it is, quantised or not.
3. Blocks at random anchors in the answers, D-PACE weights (model.py); the head and the embedding are the model's.
4. DIR/drafter.gguf, which `--draft` opens, and tokens per round on held-out prompts.

Every step goes on where it was cut off, but for the third. Needs torch and numpy.
"""
import argparse
import concurrent.futures
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import time
import urllib.request

import numpy as np
import torch

from model import Drafter, dpace, export, tokens_per_round

HERE = os.path.dirname(os.path.abspath(__file__))
HELD_OUT = 10  # every tenth prompt is not trained on


# ---- answers ----

def questions_of(path):
    rows = [json.loads(line) for line in open(path)]
    return [row["messages"][0]["content"] for row in rows]


def post(address, path, body):
    request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply: return json.load(reply)


def answer(address, i, prompt, o):
    text = post(address, "/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
    tokens = post(address, "/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]
    reply = post(address, "/completion", {"prompt": tokens, "n_predict": o.answer, "return_tokens": True, "seed": i,
                                          "temperature": i % 2, "top_k": 0, "top_p": 1})
    return {"i": i, "tokens": tokens + reply["tokens"], "n_prompt": len(tokens)}


def regenerate(o, prompts):
    path = f"{o.out}/answers.jsonl"
    there = {}
    if os.path.exists(path):
        for line in open(path):
            if line.endswith("\n"): there[json.loads(line)["i"]] = line
    todo = [i for i in range(len(prompts)) if i not in there]
    if todo:
        server = subprocess.Popen([o.chimere, "serve", "-m", o.model, "--device", o.engine, "--port", "0", "-q", "--parallel", "8",
                                   "-c", "2048"], stdout=subprocess.PIPE, text=True)
        try:
            line = server.stdout.readline()
            address = re.search(r"http://([\w.:\[\]]+)", line)
            if not address: sys.exit(f"no server: {line}")
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for row in pool.map(lambda i: answer(address[1], i, prompts[i], o), todo):
                    there[row["i"]] = json.dumps(row) + "\n"
                    if len(there) % 64 == 0: write_lines(path, there)
        finally:
            server.terminate()
            server.wait()
            write_lines(path, there)
    return [json.loads(there[i]) for i in range(len(prompts))]


def write_lines(path, there):
    with open(path + ".new", "w") as f: f.writelines(there[i] for i in sorted(there))
    os.replace(path + ".new", path)


# ---- hidden states ----

def read_shard(path):
    """(layers, [(tokens, n_prompt, rows [n, taps * width])]) of a shard, by src/model/taps.h."""
    data = open(path, "rb").read()
    assert data[:8] == b"chtaps01", path
    width, vocab, n_tap, n_text, n_tok, model, content, kind, batch, zero = struct.unpack_from("<4I3Q2IQ", data, 8)
    at = 64
    layers = np.frombuffer(data, "<u4", n_tap, at)
    at += 4 * n_tap
    sizes = np.frombuffer(data, "<u4", 2 * n_text, at).reshape(n_text, 2)
    at += 8 * n_text
    tokens = np.frombuffer(data, "<i4", n_tok, at)
    at += 4 * n_tok
    raw = np.frombuffer(data, {0: "<f4", 1: "<f2", 30: "<u2"}[kind], n_tok * n_tap * width, at)
    if kind == 30: raw = (raw.astype("<u4") << 16).view("<f4")
    rows, texts, first = raw.astype(np.float32).reshape(n_tok, n_tap * width), [], 0
    for n, n_prompt in sizes.tolist():
        texts.append((torch.from_numpy(tokens[first:first + n].astype(np.int64)), n_prompt, torch.from_numpy(rows[first:first + n])))
        first += n
    return layers.tolist(), texts


def record(o, answers):
    lines = f"{o.out}/tokens.jsonl"
    with open(lines, "w") as f:
        for a in answers: f.write(json.dumps({"tokens": a["tokens"], "n_prompt": a["n_prompt"]}) + "\n")
    more = ["--layers", o.layers] if o.layers else []
    subprocess.run([o.chimere, "taps", "-m", o.model, "--device", o.engine, "--tokens", lines, "-o", f"{o.out}/taps", *more], check=True)
    texts, layers = [], None
    for name in sorted(os.listdir(f"{o.out}/taps")):
        if name.endswith(".bin"):
            layers, some = read_shard(f"{o.out}/taps/{name}")
            texts += some
    return layers, texts


def tensor(o, name):
    """Of the model's file, as floats; None if it has none of that name."""
    run = subprocess.run([o.chimere, "dump", o.model, name], capture_output=True)
    return None if run.returncode else torch.from_numpy(np.frombuffer(run.stdout, "<f4").copy())


# ---- training ----

def block_of(text, anchors, block):
    """Token ids in front of each block and the labels [N, block - 1] of its masks, -1 behind the end."""
    tokens = text[0]
    at = anchors[:, None] + torch.arange(1, block)[None]
    labels = torch.where(at < len(tokens), tokens[at.clamp(max=len(tokens) - 1)], -1)
    return tokens[anchors], labels


def logits_of(model, text, anchors, embed, head, device):
    c = model.c
    first, labels = block_of(text, anchors, c["block"])
    ids = torch.full((len(anchors), c["block"]), c["mask"])
    ids[:, 0] = first
    hidden = model(text[2].to(device), anchors.to(device), embed[ids.to(device)])[:, 1:]
    return hidden @ head.T, labels.to(device)


def anchors_of(text, n, rng):
    """Positions whose token and the next one are the model's own, n at most, sorted."""
    there = range(text[1], len(text[0]) - 1)
    return torch.tensor(sorted(rng.sample(there, min(n, len(there)))))


@torch.no_grad()
def evaluate(model, texts, embed, head, device, rng):
    total, n = 0.0, 0
    for text in texts:
        anchors = anchors_of(text, 32, rng)
        if not len(anchors): continue
        rounds = tokens_per_round(*logits_of(model, text, anchors, embed, head, device))
        total, n = total + rounds.sum().item(), n + len(rounds)
    return total / max(n, 1)


def train(o, model, texts, held, embed, head, device):
    rng = random.Random(o.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.01, betas=(0.9, 0.95))
    warm = max(1, o.steps // 25)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / warm) * (0.5 + 0.5 * math.cos(math.pi * min(1, s / o.steps))))
    start, mean = time.time(), None
    texts = [t for t in texts if len(t[0]) - t[1] > 2]
    for step in range(o.steps):
        optimizer.zero_grad()
        for text in rng.sample(texts, min(o.batch, len(texts))):
            loss = dpace(*logits_of(model, text, anchors_of(text, o.anchors, rng), embed, head, device))
            (loss / o.batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        if (step + 1) % max(1, o.steps // 10) == 0:
            print(f"step {step + 1}: loss {mean:.3f}, {evaluate(model, held[:40], embed, head, device, random.Random(1)):.3f} "
                  f"tokens per round held out, {time.time() - start:.0f} s", flush=True)


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--chimere", default="build/release/chimere")
    p.add_argument("--model", default="models/chimere-nano-bf16.gguf")
    p.add_argument("--out", required=True)
    p.add_argument("--questions", help="lines that `chimere night export` wrote, in place of prompts.txt: the day's questions")
    p.add_argument("--prompts", type=int, default=0, help="the first N; 0: all")
    p.add_argument("--answer", type=int, default=160, help="tokens of an answer at most")
    p.add_argument("--layers", help="of the model, counted from 0 (default: those of chimere taps)")
    p.add_argument("--depth", type=int, default=2, help="layers of the drafter")
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--head", type=int, default=64, help="size of a head")
    p.add_argument("--ff", type=int, default=0, help="hidden size; 0: twice the width")
    p.add_argument("--block", type=int, default=8)
    p.add_argument("--mask", type=int, default=-1, help="token of the masks; -1: the last one")
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--batch", type=int, default=8, help="texts of a step")
    p.add_argument("--anchors", type=int, default=32, help="blocks of a text")
    p.add_argument("--rate", type=float, default=1.5e-3)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="of the training")
    p.add_argument("--engine", default="auto", help="device of chimere: cpu, cuda or auto")
    return p.parse_args()


def main():
    o = options()
    os.makedirs(o.out, exist_ok=True)
    torch.manual_seed(o.seed)
    prompts = questions_of(o.questions) if o.questions else open(f"{HERE}/prompts.txt").read().splitlines()
    prompts = prompts[:o.prompts] if o.prompts else prompts
    if len(prompts) < HELD_OUT: sys.exit(f"{len(prompts)} prompts; at least {HELD_OUT} are needed")
    layers, texts = record(o, regenerate(o, prompts))
    width = texts[0][2].shape[1] // len(layers)
    embed = tensor(o, "token_embd.weight").view(-1, width).to(o.device)
    head = tensor(o, "output.weight")
    head = embed if head is None else head.view(-1, width).to(o.device)
    if len(texts) != len(prompts): sys.exit("texts were cut: shorten --answer")
    held = [t for i, t in enumerate(texts) if i % HELD_OUT == HELD_OUT - 1]
    rest = [t for i, t in enumerate(texts) if i % HELD_OUT != HELD_OUT - 1]
    c = dict(width=width, layers=o.depth, heads=o.heads, kv_heads=o.kv_heads, head=o.head, ff=o.ff or 2 * width, taps=layers,
             block=o.block, mask=o.mask if o.mask >= 0 else len(embed) - 1, base=10000.0, eps=1e-6, windows=[0] * o.depth)
    model = Drafter(c)
    # begin with a third of the loudness that the head knows, and with layers that speak louder than the mask, which a tied
    # head would otherwise predict
    with torch.no_grad():
        model.output_norm.copy_(tensor(o, "output_norm.weight") / 3)
        for l in model.layers: l.ffn_down.weight.mul_(3)
    model.to(o.device)
    print(f"{len(rest)} texts, {len(held)} held out, {sum(p.numel() for p in model.parameters())} weights", flush=True)
    train(o, model, rest, held, embed, head, o.device)
    export(model, f"{o.out}/drafter.gguf")
    rounds = evaluate(model, held, embed, head, o.device, random.Random(1))
    print(f"{o.out}/drafter.gguf: {rounds:.3f} tokens per round of {o.block} held out, the model's own token included")


if __name__ == "__main__": main()
