#!/usr/bin/env python3
"""How well the experts of the next layer can be predicted, and what that would gain with experts on disk.

    git apply lab/predict.patch && cmake --build build/release --target chimere && git apply -R lab/predict.patch
    ROWS=rows chimere trace -m MODEL.gguf -f TEXT -o record      # appends to rows; once per text
    lab/predict.py MODEL.gguf rows

The patched program writes each layer's rows before and after its experts. All predictors are for layer l, and are
given the rows of layer l - 1, so that reads can start a layer earlier:

    previous   the experts of the token before
    router     the router and norm of layer l on the rows before the experts of layer l - 1 (no training)
    after      the same on the rows after them: only the mixer of layer l is between
    ridge      a linear map of the rows before the experts to the router's logits
    mlp        one hidden layer of 512, trained on the choice (logistic loss)

Trained predictors see the first four fifths of the rows; recall is that of the last fifth. The simulation serves reads
one after another, r times as long as the computation of a layer, from a pool with LRU eviction; predicted experts are
read after those that are needed now.
"""
import argparse
import collections
import struct

import numpy as np

class Gguf:
    """The f32 tensors and the numbers of a GGUF file."""

    def __init__(self, path):
        self.data, self.at = memoryview(open(path, "rb").read()), 0
        magic, _, n_tensor, n_kv = self.take("<4sIQQ")
        assert magic == b"GGUF"
        self.keys = {}
        for _ in range(n_kv):
            name = self.text()
            self.keys[name] = self.value(self.take("<I")[0])
        rows = []
        for _ in range(n_tensor):
            name, n_dim = self.text(), self.take("<I")[0]
            rows.append((name, self.take("<%dQ" % n_dim), *self.take("<IQ")))
        start = -(-self.at // 32) * 32
        self.tensors = {}
        for name, dims, kind, offset in rows:
            n = int(np.prod(dims))
            if kind == 0:
                flat = np.frombuffer(self.data, "<f4", n, start + offset)
            elif kind == 30:
                flat = (np.frombuffer(self.data, "<u2", n, start + offset).astype("<u4") << 16).view("<f4")
            else:
                continue
            self.tensors[name] = flat.reshape(dims[::-1])

    def take(self, form):
        got = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return got

    def text(self):
        n = self.take("<Q")[0]
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.take("<IQ")
            return [self.value(kind) for _ in range(n)]
        return self.take("<" + {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
                                12: "d"}[kind])[0]


def read_rows(path, n_embd, n_layer):
    """[n_layer] of rows before and after the experts, [n_tok, n_embd]."""
    data = np.fromfile(path, "<f4")
    heads = data.view("<i4")
    before, after = [[] for _ in range(n_layer)], [[] for _ in range(n_layer)]
    at = 0
    while at < len(data):
        il, n = int(heads[at]), int(heads[at + 1])
        at += 2
        size = n * n_embd
        if il < n_layer:
            before[il].append(data[at:at + size].reshape(n, n_embd))
            after[il].append(data[at + size:at + 2 * size].reshape(n, n_embd))
        at += 2 * size
    return [np.concatenate(x) for x in before], [np.concatenate(x) for x in after]


def norm(x, eps):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps)


def best(scores, n):
    n = min(n, scores.shape[1])
    return np.argpartition(-scores, n - 1, axis=1)[:, :n]


def ranked(scores, n):
    return np.argsort(-scores, axis=1)[:, :n]


def one_hot(ids, n):
    out = np.zeros((len(ids), n), "f4")
    np.put_along_axis(out, ids, 1, axis=1)
    return out


def recall(scores, chosen, n):
    return float(np.take_along_axis(chosen, best(scores, n), axis=1).sum() / chosen.sum())


def ridge(x, y, strength):
    x = np.hstack([x, np.ones((len(x), 1), "f4")])
    w = np.linalg.solve(x.T @ x + strength * len(x) * np.eye(x.shape[1], dtype="f4"), x.T @ y)
    return lambda q: np.hstack([q, np.ones((len(q), 1), "f4")]) @ w


def mlp(x, chosen, epochs, rng, n_hidden=512, batch=256, rate=1e-3):
    w = [rng.normal(0, x.shape[1] ** -.5, (x.shape[1], n_hidden)).astype("f4"), np.zeros(n_hidden, "f4"),
         rng.normal(0, n_hidden ** -.5, (n_hidden, chosen.shape[1])).astype("f4"), np.zeros(chosen.shape[1], "f4")]
    m, v, step = [np.zeros_like(p) for p in w], [np.zeros_like(p) for p in w], 0
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x), batch):
            i = order[at:at + batch]
            h = np.maximum(x[i] @ w[0] + w[1], 0)
            g = (1 / (1 + np.exp(-(h @ w[2] + w[3]))) - chosen[i]) / len(i)
            gh = (g @ w[2].T) * (h > 0)
            step += 1
            for k, d in enumerate((x[i].T @ gh, gh.sum(0), h.T @ g, g.sum(0))):
                m[k] += .1 * (d - m[k])
                v[k] += .001 * (d * d - v[k])
                w[k] -= (rate * (1 - epoch / epochs) * (m[k] / (1 - .9 ** step))
                         / (np.sqrt(v[k] / (1 - .999 ** step)) + 1e-8))
    return lambda q: np.maximum(q @ w[0] + w[1], 0) @ w[2] + w[3]


def simulate(chosen, guesses, n_slot, r, n_guess):
    """Time per token in units of a layer's computation; reads per token. guesses[l]: ranked ids, None: no prediction."""
    pools = [collections.OrderedDict() for _ in chosen]
    now = disk = 0.0
    n_read = 0

    def read(pool, x):
        nonlocal disk, n_read
        if x in pool:
            return
        if len(pool) == n_slot:
            pool.popitem(last=False)
        disk = max(disk, now) + r
        pool[x] = disk  # when it is there
        n_read += 1

    for t in range(len(chosen[0])):
        for il, pool in enumerate(pools):
            needed = chosen[il][t]
            for x in needed:  # those that are there are not evicted by those that are not
                if x in pool:
                    pool.move_to_end(x)
            for x in needed:
                read(pool, x)
            if il + 1 < len(pools) and guesses[il + 1] is not None and n_guess:
                for x in guesses[il + 1][t][:n_guess]:
                    read(pools[il + 1], x)
            now = max([now] + [pool[x] for x in needed]) + 1
    return now / len(chosen[0]), n_read / len(chosen[0])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("model")
    args.add_argument("rows")
    args.add_argument("--epochs", type=int, default=6)
    args.add_argument("--tokens", type=int, default=3000, help="of the simulation")
    a = args.parse_args()
    g = Gguf(a.model)
    arch = g.keys["general.architecture"]
    key = lambda name: g.keys["%s.%s" % (arch, name)]
    n_layer = key("block_count") - g.keys.get(arch + ".nextn_predict_layers", 0)
    n_expert, n_used, eps = key("expert_count"), key("expert_used_count"), key("attention.layer_norm_rms_epsilon")
    before, after = read_rows(a.rows, key("embedding_length"), n_layer)
    n_tok, rng = len(before[0]), np.random.default_rng(1)
    cut = n_tok * 4 // 5
    print("%d tokens, %d layers, %d of %d experts" % (n_tok, n_layer, n_used, n_expert))
    weight = [g.tensors["blk.%d.post_attention_norm.weight" % i] for i in range(n_layer)]
    router = [g.tensors["blk.%d.ffn_gate_inp.weight" % i] for i in range(n_layer)]
    logits = [(norm(before[i], eps) * weight[i]) @ router[i].T for i in range(n_layer)]
    ids = [best(x, n_used) for x in logits]
    chosen = [one_hot(x, n_expert) for x in ids]
    sums = collections.defaultdict(list)
    guesses = {"router": [None], "ridge": [None], "mlp": [None]}
    for il in range(1, n_layer):
        x = norm(before[il - 1], eps)
        linear = ridge(x[:cut], logits[il][:cut], 1e-3)
        network = mlp(x[:cut], chosen[il][:cut], a.epochs, rng)
        made = {"previous": chosen[il][cut - 1:-1], "router": (x[cut:] * weight[il]) @ router[il].T,
                "after": (norm(after[il - 1][cut:], eps) * weight[il]) @ router[il].T,
                "ridge": linear(x[cut:]), "mlp": network(x[cut:])}
        for name, scores in made.items():
            sums[name].append([recall(scores, chosen[il][cut:], n) for n in (n_used, 2 * n_used, 3 * n_used)])
            if name in guesses:
                guesses[name].append(ranked(scores, n_used))
        print("layer %d: %s" % (il, ", ".join("%s %.3f" % (n, s[-1][0]) for n, s in sums.items())), flush=True)
    for name, rows in sums.items():
        print("%-9s recall at %d, %d, %d: %s" % (name, n_used, 2 * n_used, 3 * n_used,
                                                 " ".join("%.3f" % x for x in np.mean(rows, axis=0))))
    test = [x[cut:cut + a.tokens].tolist() for x in ids]
    for share in (.25, .4):
        n_slot = int(n_expert * share)
        for r in (.25, 1, 4):
            time, reads = simulate(test, [None] * n_layer, n_slot, r, 0)
            line = ["%.2f reads per token" % reads]
            for name, guess in guesses.items():
                for n in (n_used // 2, n_used):
                    if n_slot < 2 * n_used:
                        continue
                    other, more = simulate(test, guess, n_slot, r, n)
                    line.append("%s %d: speed x %.3f, reads x %.2f" % (name, n, time / other, more / reads))
            print("pool %d %%, a read takes %g layers: %s" % (100 * share, r, "; ".join(line)), flush=True)


main()
