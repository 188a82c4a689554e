"""Train chimere-mini in legs, on one GPU or on all of a machine.

    python mini_train.py POOLS TOKENIZER OUT --seconds 560 --to 0.5 [--resume CKPT_DIR] [--state FILE]
    torchrun --standalone --nproc-per-node 8 mini_train.py ...

A leg runs until `seconds` after its start and ends at the share `--to` of the schedule. OUT gets the weights in parts of
less than 15 MB: the four-bit grid and, in further four bits, what a later leg needs of the rest (mini_model.pack).
--state keeps everything, moments too, in a file of that machine; a leg that finds it there continues exactly.
"""

import argparse
import json
import math
import multiprocessing as mp
import os
import time

import numpy as np
import torch

import mini_model as mm
from mini_data import LOSS_WEIGHTS, TOKEN_BITS, Pools

import model as m   # nano's
from train import Optimiser

PART = 14_500_000
GRID_FROM = 0.55


class GridOptimiser(Optimiser):
    """Muon and Adam as for nano; from GRID_FROM on the working weights are the masters rounded to the grid."""

    def __init__(self, net, masters):
        super().__init__(net, masters)
        self.rounded = [n for n, w in masters.items() if mm.rounds(n, w)]

    @torch.no_grad()
    def to_grid(self):
        ws = [self.master[n] for n in self.rounded]
        flat = mm.on_grid(torch.cat([w.reshape(-1) for w in ws]))
        torch._foreach_copy_([self.params[n] for n in self.rounded], [x.view(w.shape) for x, w in zip(flat.split([w.numel() for w in ws]), ws)])


def save_parts(out, masters, place):
    os.makedirs(out, exist_ok=True)
    rounded = [n for n, w in masters.items() if mm.rounds(n, w)]
    d, q, r = mm.pack(torch.cat([masters[n].float().reshape(-1) for n in rounded]).cpu())
    q, r = (x.view(-1)[0::2] | x.view(-1)[1::2] << 4 for x in (q, r))
    rest = torch.cat([w.float().reshape(-1) for n, w in masters.items() if n not in rounded]).cpu()
    blob = b"".join(x.contiguous().numpy().tobytes() for x in (rest, d.half(), q, r))
    for i in range(0, len(blob), PART):
        with open(os.path.join(out, f"weights.{i // PART}"), "wb") as f:
            f.write(blob[i:i + PART])
    with open(os.path.join(out, "place.json"), "w") as f:
        json.dump(place | {"names": {n: list(w.shape) for n, w in masters.items()}}, f)


def load_parts(path, exact=False):
    """{name: float32 tensor}, place. exact: the values of the grid, as published; else the finer ones, to train on."""
    with open(os.path.join(path, "place.json")) as f:
        place = json.load(f)
    shapes = {n: tuple(s) for n, s in place.pop("names").items()}
    blob = b"".join(open(os.path.join(path, p), "rb").read() for p in sorted(x for x in os.listdir(path) if x.startswith("weights.")))
    empty = {n: torch.empty(s, device="meta") for n, s in shapes.items()}
    rounded = [n for n in shapes if mm.rounds(n, empty[n])]
    n_rest, n_grid = sum(empty[n].numel() for n in shapes if n not in rounded), sum(empty[n].numel() for n in rounded)
    at, out = 0, {}

    def take(count, kind):
        nonlocal at
        x = np.frombuffer(blob, dtype=kind, count=count, offset=at)
        at += x.nbytes
        return torch.from_numpy(x.copy())

    rest, d, q, r = take(n_rest, np.float32), take(n_grid // mm.BLOCK, np.float16), take(n_grid // 2, np.uint8), take(n_grid // 2, np.uint8)
    q, r = (torch.stack([x & 15, x >> 4], 1).view(-1, mm.BLOCK) for x in (q, r))
    flat = mm.unpack(d, q, None if exact else r)
    for names, values in (([n for n in shapes if n not in rounded], rest), (rounded, flat)):
        for n, x in zip(names, values.split([empty[n].numel() for n in names])):
            out[n] = x.view(shapes[n])
    return {n: out[n] for n in shapes}, place


class Steps:
    """Forward, loss and backward of one batch of rows; the prediction block is applied twice."""

    def __init__(self, net, device, compiled):
        self.net, self.device = net, device
        self.lut = torch.tensor(LOSS_WEIGHTS, device=device)
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.layer, self.loss, self.join = wrap(m.layer_forward), wrap(m.token_loss), wrap(type(net).mtp_input)

    def run(self, rows, depth_weights=(0.2, 0.1), aux_weight=0.001):
        net, x = self.net, torch.from_numpy(rows.astype(np.int32)).to(self.device, non_blocking=True).long()
        ids, w = x & ((1 << TOKEN_BITS) - 1), self.lut[x >> TOKEN_BITS]
        n = ids.shape[1] - 3
        h = net.lm.model.embed_tokens(ids[:, :n])
        head = net.lm.model.embed_tokens.weight
        cos, sin = net.rope(n, self.device, h.dtype)
        aux = 0.0
        for layer in net.lm.model.layers:
            h, a = self.layer(layer, h, cos, sin)
            aux = aux + a
        h = net.lm.model.norm(h)
        total, shown = 0.0, []
        for depth in range(3):
            if depth:
                y = self.join(net, h, ids[:, depth:n + depth].contiguous())
                cos, sin = net.rope(n, self.device, h.dtype, start=depth)
                y, a = self.layer(net.mtp.layers[0], y, cos, sin)
                h, aux = net.mtp.norm(y), aux + a
            wd = w[:, depth + 1:n + depth + 1].contiguous()
            loss, hit, _ = self.loss(h, head, ids[:, depth + 1:n + depth + 1].contiguous(), wd)
            loss = loss / wd.sum()
            total = total + loss * (depth_weights[depth - 1] if depth else 1.0)
            shown += [loss.detach(), hit.detach() / (wd > 0.9).sum().clamp(min=1)]
        (0.5 * (total + aux_weight * aux)).backward()
        return torch.stack([*shown, aux.detach()])


def rate(x, warm):
    return min(1.0, warm) * (1.0 if x < 0.5 else 0.02 + 0.98 * (1 - (x - 0.5) / 0.5))


def loader(path, seed, shapes, queue):
    os.nice(2)
    pools = Pools(path, seed)
    while True:
        queue.put([np.stack([pools.row(width + 3, width > 2000) for _ in range(n)]) for n, width in shapes])


@torch.no_grad()
def reduce_grads(net):
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])
    torch.distributed.all_reduce(flat, op=torch.distributed.ReduceOp.SUM)
    flat /= torch.distributed.get_world_size()
    torch._foreach_copy_(grads, [x.view(g.shape) for x, g in zip(flat.split([g.numel() for g in grads]), grads)])


PROMPTS = ["Hello! Who are you?", "Bonjour, comment vas-tu ?", "Why do birds sing?", "Explique-moi ce qu'est un volcan.", "Write a short email to invite a colleague to lunch.",
           "Raconte une histoire courte avec un renard.", "What is 17 + 25?", "Combien font 12 fois 8 ?", "What is the capital of Italy?", "Quelle est la capitale du Japon ?",
           "Translate into French: The dog sleeps under the table.", "Traduis en anglais : J'aime lire le soir.", "Give me three ideas for a rainy day.", "Donne-moi une recette simple.",
           "Who will win the lottery?", "Text: The bridge was built in 1931 by a team of forty workers.\n\nWhen was the bridge built?"]


def look(net, tok, device, items, out):
    """What the model says to a few prompts, and its scores on nano's items."""
    from evaluate import answers, evaluate_files
    net.eval()
    rows = answers(net, tok, [{"messages": [{"role": "user", "content": p}], "think": False, "max_tokens": 120} for p in PROMPTS], device)
    for p, r in zip(PROMPTS, rows):
        print("   ", repr(p), "->", repr(r[0]), flush=True)
    if items:
        evaluate_files(net, tok, [os.path.join(items, f) for f in sorted(os.listdir(items)) if f.endswith(".jsonl")], 24, device, os.path.join(out, "eval.json"))
    net.train()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pools"), ap.add_argument("tokenizer"), ap.add_argument("out")
    ap.add_argument("--seconds", type=float, required=True), ap.add_argument("--to", type=float, required=True)
    ap.add_argument("--resume"), ap.add_argument("--state"), ap.add_argument("--items")
    ap.add_argument("--seed", type=int, default=1), ap.add_argument("--lr", type=float, default=4e-3), ap.add_argument("--margin", type=float, default=50)
    ap.add_argument("--start-at", type=float, help="place in the schedule, instead of the checkpoint's")
    ap.add_argument("--small", action="store_true", help="a tiny model and batch, for a processor"), ap.add_argument("--steps", type=int, default=10 ** 9)
    args = ap.parse_args()
    start = time.time()
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    if device != "cpu":
        torch.cuda.set_device(device)
    if world > 1:
        torch.distributed.init_process_group("nccl" if device != "cpu" else "gloo")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    shapes = [(2, 128), (1, 512)] if args.small else [(64, 512), (8, 4096)]
    per_step = world * sum(a * b for a, b in shapes)
    m.use_fast_ops(True)
    net = m.Nano(mm.config(**({"hidden_size": 128, "num_hidden_layers": 3, "num_experts": 8, "num_attention_heads": 2} if args.small else {})))
    place, saved = {"x": 0.0, "step": 0, "tokens": 0, "curve": []}, None
    if args.state and os.path.exists(args.state):
        saved = torch.load(args.state, map_location="cpu", weights_only=False)
        weights, place = saved["masters"], saved["place"]
    elif args.resume:
        weights, place = load_parts(args.resume)
    if place["step"]:
        net.load_state_dict(weights | {"lm.lm_head.weight": weights["lm.model.embed_tokens.weight"]})
        place["x"] = place["x"] if args.start_at is None else args.start_at
    masters = {n: p.detach().float().to(device).clone() for n, p in net.named_parameters()}
    net = net.to(device, torch.bfloat16).train()
    opt, steps = GridOptimiser(net, masters), Steps(net, device, not args.small)
    warm_from = place["step"]
    if saved:
        opt.load(saved["opt"])
        warm_from -= 10 ** 6
    for n, width in shapes:                          # compile while the pools are still being written
        steps.run(np.full((n, width + 3), 1 << TOKEN_BITS, dtype=np.uint16))
    for p in net.parameters():
        p.grad = None
    if rank == 0:
        print(f"compiled after {time.time() - start:.0f} s, {net.n_weights()} weights", flush=True)
    while not os.path.exists(os.path.join(args.pools, "summary.json")):
        time.sleep(0.5)
        if time.time() - start > 0.6 * args.seconds:
            raise SystemExit("no pools: see the log of mini_data.py")
    queue = mp.Queue(6)
    workers = [mp.Process(target=loader, args=(args.pools, args.seed * 10 ** 6 + place["step"] * 100 + rank * 10 + i, shapes, queue), daemon=True) for i in range(1 if args.small else 5)]
    for w in workers:
        w.start()
    if world > 1:
        torch.distributed.barrier()
    if rank == 0:
        print(f"data ready after {time.time() - start:.0f} s", flush=True)
    t0, x0, first, tally = time.time(), place["x"], place["step"], []
    length = max(1.0, start + args.seconds - args.margin - t0)
    stop = torch.zeros(1, device=device)
    try:
        while True:
            if world == 1:
                share = min(1.0, (time.time() - t0) / length)
            elif place["step"] % 10 == 0:            # all ranks end together, at the first one's word
                stop[0] = min(1.0, (time.time() - t0) / length)
                torch.distributed.broadcast(stop, 0)
                share = stop.item()
            if share >= 1 or place["step"] - first >= args.steps:
                break
            place["x"] = x0 + (args.to - x0) * share
            parts = [steps.run(rows) for rows in queue.get()]
            if world > 1:
                reduce_grads(net)
            norm = opt.step(args.lr * rate(place["x"], (place["step"] - warm_from + 1) / 200))
            if place["x"] >= GRID_FROM:
                opt.to_grid()
            place["step"], place["tokens"] = place["step"] + 1, place["tokens"] + per_step
            tally.append(torch.cat([*parts, norm[None]]))
            if rank == 0 and (place["step"] % 50 == 0 or args.small):
                r = [round(v, 3) for v in torch.stack(tally).mean(0).tolist()]
                tally = []
                place["curve"].append([place["step"], place["tokens"]] + r)
                speed = (place["step"] - first) * per_step / (time.time() - t0)
                print(f"step {place['step']} x {place['x']:.3f} loss {r[0]} {r[7]} hit {r[1]} {r[8]} mtp {r[2]} {r[4]} hit {r[3]} {r[5]} aux {r[6]} norm {r[-1]} | {speed / 1e3:.0f} k tok/s, queue {queue.qsize()}", flush=True)
        place["x"] = args.to
    except RuntimeError as e:                        # what was trained so far must not be lost
        print(f"rank {rank}: stopped at step {place['step']}:", e, flush=True)
    if rank == 0:
        save_parts(args.out, masters, place)
        if args.state:
            torch.save({"masters": masters, "place": place, "opt": opt.state()}, args.state + ".part")
            os.rename(args.state + ".part", args.state)
        print(f"saved after {time.time() - start:.0f} s: {place['tokens'] / 1e6:.0f} M tokens", flush=True)
    for w in workers:
        w.terminate()
    if rank == 0:
        from tokenizers import Tokenizer
        try:
            opt.to_grid()
            look(net, Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json")), device, args.items, args.out)
        except Exception as e:                       # a look that fails must not cost the leg
            print("look failed:", repr(e), flush=True)
        print(f"done after {time.time() - start:.0f} s", flush=True)
    if world > 1:
        torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
