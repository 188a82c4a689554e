#!/usr/bin/env python3
"""Trains a LoRA adapter by gradients, on answers that `chimere night export` wrote.

    python train/lora/train.py --model MODEL.gguf --data ANSWERS.jsonl --out ADAPTER.gguf [--hf FOLDER] [--minutes N]

Lines of --form sft train by likelihood of the answer's tokens, lines of --form dpo by direct preference optimisation
(Rafailov et al., arXiv:2305.18290). Every tenth line is held out: the weights with the smallest held-out loss are kept,
and nothing is written if that loss is not below the one without an adapter. Needs torch, transformers and gguf.
"""
import argparse
import copy
import json
import math
import os
import sys
import time

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HELD_OUT = 10
NEAR = 0.3  # of the norm: a quantised matrix is the checkpoint's, if they differ by less


class Lora(torch.nn.Module):
    """y = W x + alpha / rank * B A x, alpha = rank; W is frozen."""

    def __init__(self, base, rank, generator):
        super().__init__()
        self.base = base
        self.a = torch.nn.Parameter(torch.empty(rank, base.in_features).normal_(0, base.in_features**-0.5, generator=generator))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank))
        self.on = True

    def forward(self, x):
        y = self.base(x)
        return y + (x @ self.a.T) @ self.b.T if self.on else y


# ---- names and order of rows in the file ----

def paired(rows, n_head):
    """Rows of queries or keys as files of the llama family have them: rotary pairs are adjacent."""
    return rows.reshape(n_head, 2, rows.shape[0] // n_head // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def row_order(weight, tensor, heads):
    """How the file orders the rows of a matrix: a function, or None if the file has another matrix."""
    stored = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(weight.shape) \
        if tensor.n_elements == weight.size else None
    if stored is None:
        return None
    orders = [lambda rows: rows]
    orders += [lambda rows, n=n: paired(rows, n) for n in heads if n and weight.shape[0] % (2 * n) == 0]
    for order in orders:
        if np.linalg.norm(order(weight) - stored) < NEAR * np.linalg.norm(stored):
            return order
    return None


def attach(model, file, rank, generator):
    """Replaces linear layers that the file has; returns [(name in the file, order of rows, layer)]."""
    arch = bytes(file.fields["general.architecture"].parts[-1]).decode()
    kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    names = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
    tensors = {t.name: t for t in file.tensors}
    heads = {getattr(model.config, k, 0) for k in ("num_attention_heads", "num_key_value_heads")}
    found, left_out = [], []
    for path, layer in list(model.named_modules()):
        if not isinstance(layer, torch.nn.Linear) or "lm_head" in path:
            continue
        name = names.get_name(path)
        tensor = tensors.get(f"{name}.weight")
        order = tensor is not None and row_order(layer.weight.detach().numpy(), tensor, heads)
        if not order:
            left_out.append(path)
            continue
        parent, _, child = path.rpartition(".")
        lora = Lora(layer, rank, generator)
        setattr(model.get_submodule(parent), child, lora)
        found.append((name, order, lora))
    if left_out:
        print(f"left out, as the file has no such matrix: {len(left_out)}, for example {left_out[0]}")
    if not found:
        sys.exit("no matrix of the checkpoint is in the file: is --hf the model that --model was made from?")
    return arch, found


def write(path, arch, rank, found):
    out = gguf.GGUFWriter(f"{path}.part", arch)
    out.add_string("general.type", "adapter")
    out.add_string("adapter.type", "lora")
    out.add_float32("adapter.lora.alpha", float(rank))
    for name, order, lora in found:
        out.add_tensor(f"{name}.weight.lora_a", lora.a.detach().numpy().astype(np.float32))
        out.add_tensor(f"{name}.weight.lora_b", np.ascontiguousarray(order(lora.b.detach().numpy())).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    os.replace(f"{path}.part", path)


# ---- answers ----

def read(path, tokenizer, n_ctx):
    """[(tokens, start of the answer)] per line, twice for pairs: the better one first."""
    lines = []
    with open(path, encoding="utf-8") as f:
        for number, text in enumerate(f, 1):
            try:
                line = json.loads(text)
                question = line["messages"][0]["content"] if "messages" in line else line["prompt"]
                answers = [line["messages"][1]["content"]] if "messages" in line else [line["chosen"], line["rejected"]]
            except (ValueError, KeyError, IndexError, TypeError):
                sys.exit(f"{path}:{number}: expected a line of chimere night export")
            user = [{"role": "user", "content": question}]
            start = tokenizer.apply_chat_template(user, add_generation_prompt=True, tokenize=False)
            head = tokenizer(start, add_special_tokens=False)["input_ids"]
            both = []
            for answer in answers:
                rest = tokenizer(answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
                both.append((torch.tensor(head + rest), len(head)))
            if max(len(t) for t, _ in both) <= n_ctx:
                lines.append(both)
    if len({len(b) for b in lines}) > 1:
        sys.exit(f"{path}: answers and pairs in one file")
    return lines


def log_probability(model, tokens, start):
    """Sum over the answer's tokens, in nats."""
    logits = model(tokens[None, :-1], use_cache=False).logits[0, start - 1:].float()
    return torch.log_softmax(logits, -1).gather(1, tokens[start:, None]).sum()


def loss_of(model, both, found, beta):
    if len(both) == 1:
        return -log_probability(model, *both[0]) / (len(both[0][0]) - both[0][1])
    with torch.no_grad():
        for _, _, lora in found:
            lora.on = False
        base = [log_probability(model, *b) for b in both]
        for _, _, lora in found:
            lora.on = True
    own = [log_probability(model, *b) for b in both]
    return -torch.nn.functional.logsigmoid(beta * ((own[0] - base[0]) - (own[1] - base[1])))


def held_out_loss(model, lines, found, beta):
    with torch.no_grad():
        return np.array([loss_of(model, both, found, beta).item() for both in lines])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True, help="the file that will run with the adapter")
    p.add_argument("--hf", help="folder of the checkpoint that it was made from (default: weights from the file)")
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--rank", type=int, default=8)
    p.add_argument("--rate", type=float, default=2e-4)
    p.add_argument("--beta", type=float, default=0.1, help="of pairs: how far the model may move")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--ctx", type=int, default=1024)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    file = gguf.GGUFReader(a.model)
    where = {"pretrained_model_name_or_path": a.hf} if a.hf else {
        "pretrained_model_name_or_path": os.path.dirname(os.path.abspath(a.model)), "gguf_file": os.path.basename(a.model)}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(a.seed)
    arch, found = attach(model, file, a.rank, generator)
    lines = read(a.data, tokenizer, a.ctx)
    held, train = lines[::HELD_OUT], [x for i, x in enumerate(lines) if i % HELD_OUT]
    if not train or len(held) < 2:
        sys.exit(f"{a.data}: {len(lines)} lines of at most {a.ctx} tokens; at least {HELD_OUT + 2} are needed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    lines_to = [[[(t.to(device), s) for t, s in b] for b in part] for part in (held, train)]
    held, train = lines_to
    parameters = [q for _, _, lora in found for q in (lora.a, lora.b)]
    for q in parameters:
        q.requires_grad_(True)
    step = torch.optim.AdamW(parameters, lr=a.rate, weight_decay=0)
    before = best = held_out_loss(model, held, found, a.beta)
    kept, started = None, time.time()
    print(f"{len(found)} matrices, {len(train)} lines, {len(held)} held out: loss {before.mean():.4f}", flush=True)
    n_step = math.ceil(len(train) / a.batch) * a.epochs
    for epoch in range(a.epochs):
        for i, k in enumerate(torch.randperm(len(train), generator=generator).tolist()):
            (loss_of(model, train[k], found, a.beta) / a.batch).backward()
            if (i + 1) % a.batch and i + 1 < len(train):
                continue
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            step.step()
            step.zero_grad()
            if time.time() - started > 60 * a.minutes:
                break
        now = held_out_loss(model, held, found, a.beta)
        print(f"epoch {epoch + 1} of {a.epochs} ({n_step} steps): held out {now.mean():.4f}, {time.time() - started:.0f} s", flush=True)
        if now.mean() < best.mean():
            best, kept = now, copy.deepcopy([q.detach().cpu() for q in parameters])
        if time.time() - started > 60 * a.minutes:
            break
    gain = before - best
    error = gain.std(ddof=1) / math.sqrt(len(gain))
    if not kept:
        sys.exit("no gain on held-out lines: nothing is written")
    with torch.no_grad():
        for q, v in zip(parameters, kept):
            q.copy_(v)
    model.cpu()
    write(a.out, arch, a.rank, found)
    print(f"held out: {before.mean():.4f} to {best.mean():.4f}, better by {gain.mean():.4f} +- {error:.4f}; {a.out}")


if __name__ == "__main__":
    main()
