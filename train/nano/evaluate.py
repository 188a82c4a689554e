"""Batched greedy evaluation with transformers, MTP acceptance, and bits per byte of held-out text.

    python evaluate.py HF_DIR ITEMS.jsonl... [--n 200] [--corpus DIR] [--out FILE]
"""

import argparse
import json
import math
import os
from collections import defaultdict

import torch

import model as m
from chatform import IM_END, render
from score import score


@torch.no_grad()
def generate(lm, prompts, n_new, eos, pad, device):
    """Greedy continuations of token lists of about equal length; left padding is masked."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), pad, dtype=torch.long)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)
    for i, p in enumerate(prompts):
        ids[i, width - len(p):] = torch.tensor(p)
        mask[i, width - len(p):] = 1
    ids, mask, cache = ids.to(device), mask.to(device), None
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    out = []
    for step in range(n_new):
        r = lm(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = r.past_key_values
        tok = r.logits[:, -1].argmax(-1)
        tok = torch.where(done, torch.full_like(tok, eos), tok)
        out.append(tok)
        done |= tok == eos
        if step % 8 == 7 and bool(done.all()):
            break
        ids = tok[:, None]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
    rows = torch.stack(out, 1).tolist()
    return [r[:r.index(eos) + 1] if eos in r else r for r in rows]


def answers(nano, tok, items, device, batch=1200):
    """[(text, prompt ids, new ids)] in the order of the items."""
    eos, pad = tok.token_to_id(IM_END), tok.token_to_id("<|endoftext|>")
    prompts = [tok.encode(render(it["messages"], it.get("tools"), it["think"]), add_special_tokens=False).ids for it in items]
    order = sorted(range(len(items)), key=lambda i: (items[i]["max_tokens"] > 100, len(prompts[i])))
    out = [None] * len(items)
    for s in range(0, len(order), batch):
        group = order[s:s + batch]
        limit = max(items[i]["max_tokens"] for i in group)
        for i, new in zip(group, generate(nano.lm, [prompts[i] for i in group], limit, eos, pad, device)):
            new = new[:items[i]["max_tokens"]]
            text = tok.decode(new, skip_special_tokens=False)
            out[i] = (text.split(IM_END)[0], prompts[i], new)
    return out


@torch.no_grad()
def mtp_acceptance(nano, rows, device, batch=64):
    """Share of the trunk's greedy tokens that MTP predicts one step ahead, over the generated part."""
    hit = total = 0
    for s in range(0, len(rows), batch):
        part = rows[s:s + batch]
        width = max(len(p) + len(n) for _, p, n in part)
        ids = torch.zeros(len(part), width, dtype=torch.long)
        want = torch.zeros(len(part), width, dtype=torch.bool)
        for i, (_, p, n) in enumerate(part):
            ids[i, :len(p) + len(n)] = torch.tensor(p + n)
            want[i, len(p) + 1:len(p) + len(n)] = True           # the first new token has no draft
        ids, want = ids.to(device), want.to(device)
        h = nano.lm.model(input_ids=ids, use_cache=False).last_hidden_state
        x = nano.mtp_input(h[:, :-2], ids[:, 1:-1])
        cos, sin = nano.rope(x.shape[1], device, x.dtype, start=1)
        y, _ = m.mtp_forward(nano, x, cos, sin)
        draft = (y @ nano.lm.model.embed_tokens.weight.t()).argmax(-1)
        ok = (draft == ids[:, 2:]) & want[:, 2:]
        hit, total = hit + int(ok.sum()), total + int(want[:, 2:].sum())
    return hit / max(total, 1)


@torch.no_grad()
def bits_per_byte(nano, tok, texts, device, n_ctx=m.N_CTX, batch=16):
    """Windows of n_ctx with half a window of context; <|endoftext|> before the first token."""
    end, rows, n_byte = tok.token_to_id("<|endoftext|>"), [], 0
    for t in texts:
        ids = [end] + tok.encode(t, add_special_tokens=False).ids
        n_byte += len(t.encode())
        start = 0
        while True:
            fresh = 0 if start == 0 else n_ctx // 2
            rows.append((ids[start:start + n_ctx + 1], fresh))
            if start + n_ctx + 1 >= len(ids):
                break
            start += n_ctx // 2
    rows.sort(key=lambda r: len(r[0]))
    nll = 0.0
    for s in range(0, len(rows), batch):
        part = rows[s:s + batch]
        width = max(len(r) for r, _ in part)
        ids = torch.full((len(part), width), end, dtype=torch.long)
        want = torch.zeros(len(part), width - 1, dtype=torch.bool)
        for i, (r, fresh) in enumerate(part):
            ids[i, :len(r)] = torch.tensor(r)
            want[i, fresh:len(r) - 1] = True
        ids, want = ids.to(device), want.to(device)
        logits = nano.lm(input_ids=ids[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        nll += float(loss[want].sum())
    return nll / math.log(2) / n_byte


def summarise(items, texts):
    """{skill: {"n", "right", "valid"}}; verification also gets its balanced accuracy."""
    out = defaultdict(lambda: defaultdict(list))
    for it, (text, _, _) in zip(items, texts):
        s = score(it, text)
        row = out[it["skill"]]
        row["right"].append(s["right"])
        if "valid" in s:
            row["valid"].append(s["valid"])
        if "want" in s:
            row["right_" + s["want"]].append(s["right"])
    table = {}
    for skill, row in out.items():
        table[skill] = {"n": len(row["right"])}
        for k, v in row.items():
            table[skill][k] = round(sum(v) / len(v), 4)
        if "right_yes" in row:
            table[skill]["balanced"] = round((table[skill]["right_yes"] + table[skill]["right_no"]) / 2, 4)
    return table


def load(hf_dir, device, dtype=torch.bfloat16):
    from safetensors.torch import load_file
    from transformers import AutoConfig
    c = AutoConfig.from_pretrained(hf_dir)
    nano = m.Nano(m.config(**{k: getattr(c, k) for k in ("num_hidden_layers", "hidden_size", "num_experts")}))
    weights = load_file(os.path.join(hf_dir, "model.safetensors"))
    nano.mtp.load_state_dict(mtp_from_export(weights))
    nano.lm.load_state_dict({k: v for k, v in weights.items() if not k.startswith("mtp.")} | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    m.use_fast_ops(True)
    return nano.to(device, dtype).eval()


def mtp_from_export(weights):
    return {k[4:]: v for k, v in weights.items() if k.startswith("mtp.")}


def evaluate_files(nano, tok, paths, n, device, out=None, extra=None):
    """Table over item files; answers are kept in `out` for comparison with other engines."""
    items = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            items += [json.loads(line) for line in list(f)[:n]]
    rows = answers(nano, tok, items, device)
    result = {"skills": summarise(items, rows), "mtp": round(mtp_acceptance(nano, rows, device), 4)} | (extra or {})
    for skill, row in result["skills"].items():
        print(f"{skill:18}", " ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    print("mtp acceptance", result["mtp"], flush=True)
    if out:
        with open(out, "w", encoding="utf-8") as f:
            json.dump(result | {"answers": [{"id": it["id"], "text": r[0]} for it, r in zip(items, rows)]}, f, ensure_ascii=False)
    return result


def main():
    from tokenizers import Tokenizer
    ap = argparse.ArgumentParser()
    ap.add_argument("hf"), ap.add_argument("items", nargs="*")
    ap.add_argument("--n", type=int, default=200), ap.add_argument("--corpus"), ap.add_argument("--out")
    args = ap.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    nano, tok = load(args.hf, device), Tokenizer.from_file(os.path.join(args.hf, "tokenizer.json"))
    extra = {}
    if args.corpus:
        from corpus import prose_documents
        extra["bits_per_byte"] = bits_per_byte(nano, tok, [t for t, _ in prose_documents(args.corpus, held_out=True)], device)
        print("bits per byte", extra["bits_per_byte"])
    if args.items:
        evaluate_files(nano, tok, args.items, args.n, device, args.out, extra)


if __name__ == "__main__":
    main()
