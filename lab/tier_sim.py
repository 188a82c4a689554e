#!/usr/bin/env python3
"""Replays a record of `chimere trace` through pools of several sizes and prints the hit rates.

    lab/tier_sim.py TRACE [--slots N,N,...] [--policy lru,decayed,best] [--skip TOKENS] [--json]
    lab/tier_sim.py TRACE --shares [--slots N,N,...] [--json]
    lab/tier_sim.py TRACE --processor LAYERS,STEP,COPY,READ,JOIN [--slots N,N,...] [--skip TOKENS] [--json]

A hit is a distinct expert of one layer's batch that is in the layer's pool when the batch begins, as the
engine counts. Policies: lru; decayed, which is the engine's (last use + 4 log2(1 + uses that halve every 256
tokens)); best, the offline optimum: who is needed last goes. --skip leaves the first tokens out of the count.

--shares compares three ways to divide the slots among the layers: the same number for each; by marginal hits, each slot
going to the layer that gains the most hits by it; and by uses, as the engine does, each layer having as many slots as it
uses different experts in T tokens, by its counts. The first half of the tokens decides, the second half counts; one token
at a time, LRU.

--processor compares three ways to serve misses by the tokens per second that they allow: the device copies all; the
processor computes all; of a layer's misses, as many each as finish first. LAYERS of the model, of which the trace may
have fewer; STEP: ms of a step without misses; in microseconds, COPY of an expert over the bus, READ of one by the
processor, JOIN of a layer that waits for the processor. An expert that the processor computes is copied as well, for
later tokens, and that costs nothing here: the last two are upper bounds.

Written from docs/tiers.md alone, so that it can check the engine's counters (test/cli/test_tiers.sh).
"""
import argparse
import json
import math
import struct
import sys
from bisect import bisect_right


def read(path):
    """-> (n_layer, n_expert, [batch]), batch: per layer a list of rows of experts."""
    data = open(path, "rb").read()
    magic, version, n_layer, n_expert, n_used = struct.unpack_from("<8sIIII", data)
    if magic != b"CHIMROUT" or version != 1:
        sys.exit(f"{path}: expected a file of chimere trace")
    width = 1 if n_expert <= 256 else 2
    at, batches = 24, []
    while at < len(data):
        (n_tok,) = struct.unpack_from("<I", data, at)
        at += 4
        if not 0 < n_tok * n_layer * n_used * width <= len(data) - at:
            sys.exit(f"{path}: expected whole batches of tokens, the file ends within one")
        batch = []
        for _ in range(n_layer):
            n = n_tok * n_used
            ids = data[at : at + n] if width == 1 else struct.unpack_from(f"<{n}H", data, at)
            at += n * width
            batch.append([ids[i : i + n_used] for i in range(0, n, n_used)])
        batches.append(batch)
    return n_layer, n_expert, batches


class Layer:
    """One layer's pool."""

    def __init__(self, policy, n_slot, future):
        self.policy, self.n_slot = policy, n_slot
        self.pool, self.last, self.count, self.clock = set(), {}, {}, 0
        self.future = future  # expert -> batches that use it, ascending; for best

    def decayed(self, x):
        return self.count[x] * 2 ** (-(self.clock - self.last[x]) / 256)

    def score(self, x, i_batch):
        if self.policy == "lru":
            return self.last[x]
        if self.policy == "decayed":
            return self.last[x] + 4 * math.log2(1 + self.decayed(x))
        uses = self.future[x]
        k = bisect_right(uses, i_batch)
        return -uses[k] if k < len(uses) else -math.inf

    def run(self, rows, i_batch):
        """-> (hits, misses)"""
        uses, used_at = {}, {}
        for t, row in enumerate(rows):
            for x in row:
                uses[x] = uses.get(x, 0) + 1
                used_at[x] = self.clock + t
        hits = sum(x in self.pool for x in uses)
        for x in uses:
            old = self.decayed(x) if x in self.last else 0
            self.count[x] = uses[x] + old
            self.last[x] = used_at[x]
        self.clock += len(rows)
        keep = set(uses)
        if len(keep) > self.n_slot:  # the pool cannot hold the batch: the best of it stay
            self.pool = set(sorted(keep, key=lambda x: -self.score(x, i_batch))[: self.n_slot])
            return hits, len(uses) - hits
        others = sorted(self.pool - keep, key=lambda x: self.score(x, i_batch), reverse=True)
        self.pool = keep | set(others[: self.n_slot - len(keep)])
        return hits, len(uses) - hits


def simulate(batches, n_layer, policy, n_slot, skip):
    hits = misses = 0
    for il in range(n_layer):
        future = {}
        if policy == "best":
            for i, b in enumerate(batches):
                for x in {x for row in b[il] for x in row}:
                    future.setdefault(x, []).append(i)
        layer, n_tok = Layer(policy, n_slot, future), 0
        for i, b in enumerate(batches):
            h, m = layer.run(b[il], i)
            if n_tok >= skip:
                hits, misses = hits + h, misses + m
            n_tok += len(b[il])
    return hits, misses


def distances(rows, n_expert):
    """-> [[uses whose expert was the d-th most recently used] of both halves]; LRU with n slots hits those of d < n."""
    found, recent = [[0] * (n_expert + 1), [0] * (n_expert + 1)], []
    for t, row in enumerate(rows):
        for x in row:
            d = recent.index(x) if x in recent else n_expert
            found[2 * t // len(rows)][d] += 1
        recent = list(row) + [x for x in recent if x not in row]
    return found


def by_uses(counts, n_used, least, n_slot):
    """-> slots of each layer, for the T with which they are n_slot together"""
    n_expert, low, high = len(counts[0]), 0.0, 32.0
    rates = [[min(1, (1 + n) / (sum(c) + n_expert) * n_used) for n in c] for c in counts]
    for _ in range(40):
        t = 2 ** ((low + high) / 2)
        own = [max(least, int(sum(1 - (1 - p) ** t for p in r))) for r in rates]
        low, high = ((low + high) / 2, high) if sum(own) <= n_slot else (low, (low + high) / 2)
    own = [max(least, int(sum(1 - (1 - p) ** 2**low for p in r))) for r in rates]
    while sum(own) < n_slot:
        for il in range(len(own)):
            own[il] += own[il] < n_expert and sum(own) < n_slot
    return own


def shares(batches, n_layer, n_expert, n_slot):
    """-> hit rates with equal shares, by marginal hits and by uses, and the smallest and largest of the last two"""
    streams = [[row for b in batches for row in b[il]] for il in range(n_layer)]
    layers = [distances(rows, n_expert) for rows in streams]
    n_used = len(batches[0][0][0])
    least = min(n_slot, n_used)
    counts = [[0] * n_expert for _ in streams]
    for rows, c in zip(streams, counts):
        for row in rows[: len(rows) // 2]:
            for x in row:
                c[x] += 1
    used = by_uses(counts, n_used, least, n_slot * n_layer)
    own = [least] * n_layer
    for _ in range(n_layer * (n_slot - least)):
        # curves are not quite concave: look ahead to the end of a plateau
        gain = [
            max((sum(first[n : n + k]) / k for k in (1, 2, 4, 8) if n + k <= n_expert), default=-1)
            for n, (first, _) in zip(own, layers)
        ]
        own[gain.index(max(gain))] += 1
    n = sum(sum(second) for _, second in layers)
    return [
        sum(sum(second[:n_slot]) for _, second in layers) / n,
        sum(sum(second[:k]) for k, (_, second) in zip(own, layers)) / n,
        sum(sum(second[:k]) for k, (_, second) in zip(used, layers)) / n,
        [min(own), max(own)],
        [min(used), max(used)],
    ]


def speeds(batches, n_layer, n_slot, skip, model):
    """-> tokens per second if all misses are copied, if the processor computes them, and if both share them"""
    n_model, step, copy, read, join = model
    waits, n = [0, 0, 0], 0
    for il in range(n_layer):
        layer, n_tok = Layer("decayed", n_slot, {}), 0
        for i, b in enumerate(batches):
            _, m = layer.run(b[il], i)
            n_tok += len(b[il])
            if n_tok <= skip:
                continue
            n += len(b[il])
            if not m:
                continue
            shared = [max(k * copy, (m - k) * read + join if k < m else 0) for k in range(m + 1)]
            for i_way, us in enumerate((m * copy, m * read + join, min(shared))):
                waits[i_way] += us
    return [1e3 / (step + 1e-3 * w / n * n_model) for w in waits]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace")
    p.add_argument("--slots", help="experts that a layer's pool holds (default: eighths of all)")
    p.add_argument("--policy", default="lru,decayed,best")
    p.add_argument("--skip", type=int, default=0)
    p.add_argument("--shares", action="store_true")
    p.add_argument("--processor")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    n_layer, n_expert, batches = read(a.trace)
    slots = [int(s) for s in a.slots.split(",")] if a.slots else [n_expert * i // 8 for i in range(1, 9)]
    if a.shares:
        rows = {n: shares(batches, n_layer, n_expert, n) for n in slots}
        if a.json:
            json.dump(rows, sys.stdout)
            return
        for n, (equal, moved, used, m, u) in rows.items():
            print(
                f"{n:5} slots a layer: {100 * equal:.2f}% equal; {100 * moved:.2f}% by marginal hits, {m[0]} to {m[1]} slots; "
                f"{100 * used:.2f}% by uses, {u[0]} to {u[1]} slots"
            )
        return
    if a.processor:
        model = [float(x) for x in a.processor.split(",")]
        rows = {n: speeds(batches, n_layer, n, a.skip, model) for n in slots}
        if a.json:
            json.dump(rows, sys.stdout)
            return
        for n, (copied, computed, shared) in rows.items():
            print(f"{n:5} slots a layer: {copied:.1f} tokens per second copied, {computed:.1f} computed, {shared:.1f} shared")
        return
    policies = a.policy.split(",")
    rows = []
    for n_slot in slots:
        row = {"slots": n_slot}
        for policy in policies:
            row[policy] = simulate(batches, n_layer, policy, n_slot, a.skip)
        rows.append(row)
    if a.json:
        json.dump(rows, sys.stdout)
        return
    print("slots " + "".join(f"{p:>10}" for p in policies))
    for row in rows:
        rates = [row[p][0] / max(1, sum(row[p])) for p in policies]
        print(f"{row['slots']:5} " + "".join(f"{100 * r:9.1f}%" for r in rates))


if __name__ == "__main__":
    main()
