"""Train chimere-nano in legs.

    python train.py POOLS TOKENIZER OUT --seconds 500 --to 0.35 [--resume CKPT_DIR] [--corpus DIR]

A leg runs until `seconds` after its start and ends at the share `--to` of the schedule; the next leg
resumes from the checkpoint (float32 weights in parts of at most 15 MB, and the schedule's place).
Optimiser moments are kept only on the machine's own disk (--state); without them a leg warms up again.
The mix of skills follows development items (own seed, not those of eval/): weak skills get more.
"""

import argparse
import json
import math
import multiprocessing as mp
import os
import time

import numpy as np
import torch

import model as m
from data import HALF, LOSS_WEIGHTS, TOKEN_BITS

TOKEN_MASK = (1 << TOKEN_BITS) - 1

SHORT, LONG = (64, 512), (16, 2048)          # rows and tokens a row of the two halves of a step
# Shares of what fills a row. Prose also fills the end of rows.
PROSE_ROWS = 0.12                             # of the long rows
PROSE_WEIGHTS = {"books": 0.62, "textbooks": 0.14, "kine": 0.08, "code": 0.08, "encyclopedia": 0.08}
CORPUS_CHAT = {"qa": 6, "intent-corpus": 2, "gsm8k": 2, "instructions": 5, "stories": 2, "chitchat": 3, "dialogues": 6}


class Pools:
    """Memory-mapped pools; draws whole samples, or stretches of prose."""

    def __init__(self, path, seed):
        with open(os.path.join(path, "summary.json")) as f:
            names = list(json.load(f))
        self.flat = {n: np.memmap(os.path.join(path, n + ".bin"), dtype=np.uint16, mode="r") for n in names}
        self.idx = {n: np.fromfile(os.path.join(path, n + ".idx"), dtype=np.int64) for n in names}
        self.rng = np.random.default_rng(seed)
        self.prose_names = [n for n in PROSE_WEIGHTS if n in names]
        self.prose_p = np.array([PROSE_WEIGHTS[n] for n in self.prose_names])
        self.prose_p /= self.prose_p.sum()
        self.left = np.zeros(0, np.uint16)
        self.order = {n: self.rng.permutation(len(self.idx[n]) - 1) for n in names}
        self.at = dict.fromkeys(names, 0)

    def next(self, name):
        """Each sample of a pool once, then again in a new order."""
        order, at = self.order[name], self.at[name]
        if at == len(order):
            order = self.order[name] = self.rng.permutation(len(order))
            at = 0
        self.at[name] = at + 1
        i = order[at]
        return self.flat[name][self.idx[name][i]:self.idx[name][i + 1]]

    def prose(self, n):
        while len(self.left) < n:
            self.left = np.concatenate([self.left, self.next(self.prose_names[self.rng.choice(len(self.prose_p), p=self.prose_p)])])
        out, self.left = self.left[:n], self.left[n:]
        return out & TOKEN_MASK | HALF << TOKEN_BITS

    def row(self, width, names, p, prose):
        out, n = [], 0
        if not prose:
            misses = 0
            for name in self.rng.choice(len(names), 200, p=p):
                s = self.next(names[name])
                if n + len(s) > width:
                    misses += 1
                    if misses == 8 or width - n < 24:
                        break
                    continue
                out.append(s)
                n += len(s)
        if n < width:
            out.append(self.prose(width - n))
        return np.concatenate(out)


def loader(path, seed, names, shared, queue):
    os.nice(2)
    pools = Pools(path, seed)
    while True:
        p = np.array(shared[:])
        p /= p.sum()
        short = np.stack([pools.row(SHORT[1] + 2, names, p, False) for _ in range(SHORT[0])])
        n_prose = int(PROSE_ROWS * LONG[0] + pools.rng.random())
        long = np.stack([pools.row(LONG[1] + 2, names, p, i < n_prose) for i in range(LONG[0])])
        queue.put((short, long))


# ---- optimiser: Muon for matrices, Adam for the rest, float32 masters, bfloat16 working weights ------

@torch.compile(dynamic=False)
def orthogonalise(g):
    """Newton-Schulz, five steps, on a stack of matrices with rows <= columns."""
    x = g.bfloat16()
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True).bfloat16() + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.float()


class Optimiser:
    def __init__(self, nano, masters):
        self.params = {n: p for n, p in nano.named_parameters()}
        self.master = masters
        self.muon, self.adam = {}, []
        for n, p in self.params.items():
            matrix = p.ndim >= 2 and min(p.shape[-2:]) >= 32 and "embed" not in n and "conv1d" not in n
            if matrix:
                shape = tuple(p.shape[-2:])
                self.muon.setdefault((min(shape), max(shape)), []).append(n)
            else:
                self.adam.append(n)
        self.moment = {n: torch.zeros_like(w) for n, w in self.master.items()}
        self.second = {n: torch.zeros_like(self.master[n]) for n in self.adam}
        self.t = 0

    @torch.no_grad()
    def step(self, lr):
        self.t += 1
        for (lo, hi), names in self.muon.items():
            gs = [self.params[n].grad.float() for n in names]
            ms = [self.moment[n] for n in names]
            torch._foreach_lerp_(ms, gs, 0.05)
            us = torch._foreach_lerp(gs, ms, 0.95)
            flat = [u.reshape(-1, *u.shape[-2:]) for u in us]
            turned = [f.shape[-2] > f.shape[-1] for f in flat]
            stack = torch.cat([f.transpose(-1, -2) if t else f for f, t in zip(flat, turned)])
            stack = orthogonalise(stack) * (0.2 * hi ** 0.5)
            parts = stack.split([f.shape[0] for f in flat])
            ups = [(x.transpose(-1, -2) if t else x).reshape(self.master[n].shape) for x, t, n in zip(parts, turned, names)]
            ws = [self.master[n] for n in names]
            torch._foreach_mul_(ws, 1 - 0.05 * lr)
            torch._foreach_add_(ws, ups, alpha=-lr)
        gs = [self.params[n].grad.float() for n in self.adam]
        norm = torch.stack(torch._foreach_norm(gs)).norm()
        scale = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gs, scale)
        ms, vs, ws = [self.moment[n] for n in self.adam], [self.second[n] for n in self.adam], [self.master[n] for n in self.adam]
        torch._foreach_lerp_(ms, gs, 0.1)
        torch._foreach_mul_(vs, 0.97)
        torch._foreach_addcmul_(vs, gs, gs, 0.03)
        c1, c2 = 1 - 0.9 ** self.t, 1 - 0.97 ** self.t
        den = torch._foreach_sqrt(vs)
        torch._foreach_div_(den, c2 ** 0.5)
        torch._foreach_add_(den, 1e-9)
        torch._foreach_addcdiv_(ws, ms, den, value=-lr * 0.8 / c1)
        names = list(self.params)
        torch._foreach_copy_([self.params[n] for n in names], [self.master[n] for n in names])
        for p in self.params.values():
            p.grad = None
        return norm

    def state(self):
        return {"moment": self.moment, "second": self.second, "t": self.t}

    def load(self, s):
        for k in ("moment", "second"):
            for n, v in s[k].items():
                getattr(self, k)[n].copy_(v)
        self.t = s["t"]


def save_parts(out, masters, place):
    """Float32 weights in parts of at most 15 MB."""
    os.makedirs(out, exist_ok=True)
    blob = torch.cat([w.detach().float().flatten().cpu() for w in masters.values()]).numpy()
    step = 15_000_000 // 4
    for i in range(0, len(blob), step):
        blob[i:i + step].tofile(os.path.join(out, f"weights.{i // step}.f32"))
    with open(os.path.join(out, "place.json"), "w") as f:
        json.dump(place | {"names": {n: list(w.shape) for n, w in masters.items()}}, f)


def load_parts(path):
    with open(os.path.join(path, "place.json")) as f:
        place = json.load(f)
    parts = sorted(p for p in os.listdir(path) if p.startswith("weights."))
    blob = torch.from_numpy(np.concatenate([np.fromfile(os.path.join(path, p), dtype=np.float32) for p in parts]))
    out, at = {}, 0
    for n, shape in place.pop("names").items():
        k = math.prod(shape)
        out[n], at = blob[at:at + k].view(shape).clone(), at + k
    assert at == len(blob)
    return out, place


def rate(x, warm):
    """Warm-up, level, then down to 2 % over the second half."""
    return min(1.0, warm) * (1.0 if x < 0.45 else 0.02 + 0.98 * (1 - (x - 0.45) / 0.55) ** 1.2)


class Steps:
    """Forward, loss and backward of one half of a step."""

    def __init__(self, nano, device, compiled):
        self.nano, self.device = nano, device
        self.lut = torch.tensor(LOSS_WEIGHTS, device=device)
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.layer, self.loss, self.mtp_in = wrap(m.layer_forward), wrap(m.token_loss), wrap(type(nano).mtp_input)

    def run(self, rows, mtp_weight=0.2, aux_weight=0.002):
        nano, x = self.nano, torch.from_numpy(rows.astype(np.int32)).to(self.device, non_blocking=True).long()
        ids, w = x & ((1 << TOKEN_BITS) - 1), self.lut[x >> TOKEN_BITS]
        n = ids.shape[1] - 2
        h = nano.lm.model.embed_tokens(ids[:, :n])
        cos, sin = nano.rope(n, self.device, h.dtype)
        aux = 0.0
        for layer in nano.lm.model.layers:
            h, a = self.layer(layer, h, cos, sin)
            aux = aux + a
        h = nano.lm.model.norm(h)
        head = nano.lm.model.embed_tokens.weight
        w1, w2 = w[:, 1:n + 1].contiguous(), w[:, 2:].contiguous()
        loss, hit, _ = self.loss(h, head, ids[:, 1:n + 1].contiguous(), w1)
        y = self.mtp_in(nano, h, ids[:, 1:n + 1])
        cos, sin = nano.rope(n, self.device, h.dtype, start=1)
        y, a = self.layer(nano.mtp.layers[0], y, cos, sin)
        loss2, hit2, _ = self.loss(nano.mtp.norm(y), head, ids[:, 2:].contiguous(), w2)
        s1, s2 = w1.sum(), w2.sum()
        n_full = (w1 > 0.9).sum()
        total = 0.5 * (loss / s1 + mtp_weight * loss2 / s2 + aux_weight * (aux + a))
        total.backward()
        return torch.stack([loss.detach() / s1, loss2.detach() / s2, hit.detach() / n_full, hit2.detach() / n_full, (aux + a).detach() / 36])


def develop(nano, tok, device, n, seed):
    from curriculum import EVAL_SKILLS, eval_items
    from evaluate import answers, mtp_acceptance, summarise
    from skills_hard import HARD
    nano.eval()
    items = [it for s in [*EVAL_SKILLS, *HARD] if s != "fact_withheld" for it in eval_items(s, n, seed)]
    rows = answers(nano, tok, items, device)
    table, accept = summarise(items, rows), mtp_acceptance(nano, rows, device)
    nano.train()
    return table, accept, [(it["id"], it["messages"][-1]["content"][-120:], r[0][:160]) for it, r in zip(items, rows) if it["id"].endswith("-0")]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pools"), ap.add_argument("tokenizer"), ap.add_argument("out")
    ap.add_argument("--seconds", type=float, required=True), ap.add_argument("--to", type=float, required=True)
    ap.add_argument("--resume"), ap.add_argument("--state", help="file of optimiser moments, kept between legs on one machine"), ap.add_argument("--corpus")
    ap.add_argument("--seed", type=int, default=1), ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--steps", type=int, default=10 ** 9), ap.add_argument("--small", action="store_true", help="tiny run on a CPU")
    ap.add_argument("--eval-every", type=float, default=170), ap.add_argument("--dev", type=int, default=32)
    ap.add_argument("--start-at", type=float, help="place in the schedule, instead of the checkpoint's")
    ap.add_argument("--items", help="folder of items to evaluate on at the end"), ap.add_argument("--margin", type=float, default=45)
    args = ap.parse_args()
    start = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    global SHORT, LONG
    if args.small:
        SHORT, LONG = (4, 128), (1, 512)
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    m.use_fast_ops(True)
    nano = m.Nano(m.config())
    place = {"x": 0.0, "step": 0, "tokens": 0, "factors": {}, "curve": [], "dev": []}
    if args.resume:
        weights, place = load_parts(args.resume)
        nano.load_state_dict(weights | {"lm.lm_head.weight": weights["lm.model.embed_tokens.weight"]})
    if args.start_at is not None:
        place["x"] = args.start_at
    masters = {n: p.detach().float().to(device).clone() for n, p in nano.named_parameters()}
    nano = nano.to(device, torch.bfloat16).train()
    opt, steps = Optimiser(nano, masters), Steps(nano, device, not args.small)
    warm_from = place["step"]
    if args.resume and args.state and os.path.exists(args.state):
        opt.load(torch.load(args.state, map_location=device))
        warm_from -= 10 ** 6

    # compile while the pools are still being written
    for shape in (SHORT, LONG):
        steps.run(np.full((shape[0], shape[1] + 2), 1 << TOKEN_BITS, dtype=np.uint16))
    if device == "cuda":
        torch.cuda.synchronize()
    for p in nano.parameters():
        p.grad = None
    print(f"compiled after {time.time() - start:.0f} s, {nano.n_weights()} weights", flush=True)
    while not os.path.exists(os.path.join(args.pools, "summary.json")):
        time.sleep(0.5)
    print(f"pools ready after {time.time() - start:.0f} s", flush=True)

    from curriculum import SESSIONS, WEIGHTS
    base = WEIGHTS | CORPUS_CHAT
    names = list(base)
    shared = mp.Array("d", [base[n] * place["factors"].get(n, 1.0) for n in names], lock=False)
    queue = mp.Queue(12)
    workers = [mp.Process(target=loader, args=(args.pools, args.seed * 1000 + place["step"] * 10 + i, names, shared, queue), daemon=True) for i in range(1 if args.small else 6)]
    for w in workers:
        w.start()

    def develop_and_adapt(final=False):
        t = time.time()
        try:
            table, accept, shown = develop(nano, tok, device, 2 if args.small else args.dev, 555)
        except RuntimeError as e:                     # an evaluation that fails must not cost the leg
            print("dev failed:", e, flush=True)
            nano.train()
            return
        for s, row in table.items():
            if s == "hard":                           # what is hard stays hard
                continue
            place["factors"][s] = min(2.0, 0.5 + 2.5 * (1 - row.get("balanced", row["right"])))
        for s, members in SESSIONS.items():
            place["factors"][s] = max(place["factors"][k] for k in members)
        for i, s in enumerate(names):
            shared[i] = base[s] * place["factors"].get(s, 1.0)
        place["dev"].append({"step": place["step"], "tokens": place["tokens"], "mtp": round(accept, 4), "skills": {s: r["right"] for s, r in table.items()}})
        print(f"dev at {place['step']}: mtp {accept:.3f}, {time.time() - t:.0f} s; " + " ".join(f"{s} {r['right']:.2f}" for s, r in table.items()), flush=True)
        if final:
            for s in shown:
                print("   ", s, flush=True)

    t0, x0, last_dev, tally = time.time(), place["x"], time.time(), []
    deadline = start + args.seconds - (args.margin if device == "cuda" else 5)
    first = place["step"]
    while time.time() < deadline and place["step"] - first < args.steps:
        place["x"] = x0 + (args.to - x0) * min(1.0, (time.time() - t0) / (deadline - t0))
        short, long = queue.get()
        a = steps.run(short)
        b = steps.run(long)
        lr = args.lr * rate(place["x"], (place["step"] - warm_from + 1) / 300)
        norm = opt.step(lr)
        place["step"] += 1
        place["tokens"] += SHORT[0] * SHORT[1] + LONG[0] * LONG[1]
        tally.append(torch.cat([a, b, norm[None]]))
        if place["step"] % 100 == 0 or args.small:
            r = [round(v, 4) for v in torch.stack(tally).mean(0).tolist()]
            tally = []
            place["curve"].append([place["step"], place["tokens"]] + r)
            speed = (place["step"] - first) * (SHORT[0] * SHORT[1] + LONG[0] * LONG[1]) / (time.time() - t0)
            print(f"step {place['step']} x {place['x']:.3f} lr {lr:.5f} loss {r[0]:.3f} {r[5]:.3f} mtp {r[1]:.3f} {r[6]:.3f} hit {r[2]:.3f} {r[7]:.3f} "
                  f"mtp hit {r[3]:.3f} aux {r[4]:.3f} norm {r[10]:.2f} | {speed / 1e3:.0f} k tok/s, queue {queue.qsize()}", flush=True)
        if time.time() - last_dev > args.eval_every and deadline - time.time() > 60:
            develop_and_adapt()
            last_dev = time.time()
    place["x"] = args.to
    save_parts(args.out, masters, place)
    if args.state:
        torch.save(opt.state(), args.state)
    print(f"saved after {time.time() - start:.0f} s", flush=True)
    for w in workers:
        w.terminate()
    if not args.items:
        develop_and_adapt(final=True)
    if args.corpus:
        from corpus import prose_documents
        from evaluate import bits_per_byte
        held = {}
        for text, source in prose_documents(args.corpus, held_out=True):
            held.setdefault(source, []).append(text)
        nano.eval()
        bits = {s: round(bits_per_byte(nano, tok, d[:60], device), 4) for s, d in held.items()}
        place["bits"] = bits
        print("bits per byte", bits, flush=True)
    if args.items:
        from evaluate import evaluate_files
        nano.eval()
        evaluate_files(nano, tok, [os.path.join(args.items, f) for f in sorted(os.listdir(args.items)) if f.endswith(".jsonl")], 200, device,
                       os.path.join(args.out, "eval.json"))
    save_parts(args.out, masters, place)
    print(f"done after {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
