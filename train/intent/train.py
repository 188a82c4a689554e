#!/usr/bin/env python3
"""Trains the classifier of routes and difficulty, and writes src/odo/decide/classify_table.c.

    python3 train/intent/train.py [--more FILE.jsonl] [--out src/odo/decide/classify_table.c]

Learns from phrases.py (topics in request forms), the seen half of eval/odo and, with --more, from an owner's corrections
(items with expect.route, expect.difficulty). Sentences of the unseen half are refused. Needs numpy; seven minutes on one core.

Features: hashed words, pairs of words and n-grams of letters (3 to 5, with the word's edges), each present or not, divided
by the root of their number. Two linear heads: five routes, three classes of difficulty. classify.c computes the same.
"""
import argparse
import json
import random
import re
import unicodedata
from pathlib import Path

import numpy as np

from phrases import FORMS, TOPICS

ROUTES = ["code", "kine", "cyber", "research", "default"]
LEVELS = ["low", "medium", "high"]
N_BUCKET = 8192
N_SHAPE = 6  # dense features of the text's shape, weighted in the difficulty head alone
ROOT = Path(__file__).resolve().parents[2]


def fold(text):
    text = text.replace("’", "'").replace("œ", "oe").replace("Œ", "OE").replace("ß", "ss")
    text = unicodedata.normalize("NFD", text)
    return "".join(c for c in text if not unicodedata.combining(c)).lower()


def words_of(text):
    """Runs of ASCII letters and digits and of bytes above 127, at most 256 words of 32 bytes."""
    raw = fold(text).encode()
    return [w[:32] for w in re.findall(rb"[a-z0-9\x80-\xff]+", raw)[:256]]


def fnv(kind, data):
    h = 2166136261
    for b in bytes([kind]) + data:
        h = (h ^ b) * 16777619 & 0xFFFFFFFF
    return h


def buckets(text):
    found = set()
    words = words_of(text)
    for i, w in enumerate(words):
        found.add(fnv(1, w) % N_BUCKET)
        if i + 1 < len(words):
            found.add(fnv(2, w + b" " + words[i + 1]) % N_BUCKET)
        edged = b" " + w + b" "
        for n in (3, 4, 5):
            for k in range(len(edged) - n + 1):
                found.add(fnv(n, edged[k:k + n]) % N_BUCKET)
    return sorted(found)


def shape(text):
    """Each 0..1: length in words, long text, commas and colons, sentences, a question mark, words per sentence."""
    n = len(words_of(text))
    marks = sum(text.count(c) for c in ",:;")
    ends = max(1, sum(text.count(c) for c in ".?!"))
    return [min(n, 40) / 40, min(n, 200) / 200, min(marks, 6) / 6, min(ends, 6) / 6, float("?" in text),
            min(n / ends, 40) / 40]


def compose(rng, per_form):
    out = []
    for (route, lang), topics in TOPICS.items():
        topics = [t.strip() for t in topics.replace("\n", "|").split("|") if t.strip()]
        for (kind, level, form_lang), forms in FORMS.items():
            if form_lang != lang or kind not in ("any", route):
                continue
            for form in (f.strip() for f in forms.replace("\n", "|").split("|") if f.strip()):
                for topic in rng.sample(topics, min(len(topics), per_form)):
                    text = form.replace("{t}", topic)
                    # half of the sentences without the article, as people write
                    if rng.random() < 0.4:
                        bare = re.sub(r"^(an?|the|une?|le|la|les|des|du|my|mon|ma|mes) |^l'", "", topic)
                        text = form.replace("{t}", bare)
                    out.append((text[:1].upper() + text[1:] if rng.random() < 0.8 else text.lower(), route, level))
    return out


def read(path):
    items = []
    for line in Path(path).read_text().splitlines():
        item = json.loads(line)
        expect = item["expect"]
        items.append((item["messages"][-1]["content"], expect.get("route"), expect.get("difficulty")))
    return items


def matrix(texts):
    x = np.zeros((len(texts), N_BUCKET + N_SHAPE), np.float32)
    for row, text in zip(x, texts):
        b = buckets(text)
        row[b] = 1 / np.sqrt(len(b)) if b else 0
        row[N_BUCKET:] = shape(text)
    return x


def fit(x, y, weight, n_class, use_shape, l2, steps=250):
    """Softmax regression by Adam on all sentences at once."""
    w = np.zeros((x.shape[1], n_class), np.float32)
    b = np.zeros(n_class, np.float32)
    target = np.eye(n_class, dtype=np.float32)[y]
    weight = (weight / weight.sum()).astype(np.float32)[:, None]
    mask = np.ones((x.shape[1], 1), np.float32)
    if not use_shape:
        mask[N_BUCKET:] = 0
    moments = [np.zeros_like(w), np.zeros_like(w), np.zeros_like(b), np.zeros_like(b)]
    for step in range(1, steps + 1):
        z = x @ w + b
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        g = (p - target) * weight
        grads = (x.T @ g * mask + l2 * w, g.sum(0))
        for i, (param, grad) in enumerate(zip((w, b), grads)):
            m, v = moments[2 * i], moments[2 * i + 1]
            m *= 0.9
            m += 0.1 * grad
            v *= 0.99
            v += 0.01 * grad * grad
            param -= 0.3 * (m / (1 - 0.9 ** step)) / (np.sqrt(v / (1 - 0.99 ** step)) + 1e-8) * (1 - step / (steps + 1))
    return w, b


def softmax(z):
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def temperature(z, y):
    """The divisor of the logits that makes held-out probabilities honest."""
    best = min(np.linspace(0.3, 4, 75), key=lambda t: -np.log(softmax(z / t)[np.arange(len(y)), y] + 1e-9).mean())
    return float(best)


def train(sentences, labelled, labelled_weight):
    texts = [t for t, _, _ in sentences + labelled]
    x = matrix(texts)
    routes = np.array([ROUTES.index(r) for _, r, _ in sentences + labelled])
    levels = np.array([LEVELS.index(d) for _, _, d in sentences + labelled])
    weight = np.array([1.0] * len(sentences) + [labelled_weight] * len(labelled))
    w1, b1 = fit(x, routes, weight, len(ROUTES), False, 2e-5)
    w2, b2 = fit(x, levels, weight, len(LEVELS), True, 2e-5)
    return w1, b1, w2, b2


def quantise(w):
    scale = float(np.abs(w).max()) / 127
    return np.clip(np.round(w / scale), -127, 127).astype(int), scale


def write(path, model, temps, n_sentence):
    w1, b1, w2, b2 = model
    table = np.concatenate([w1[:N_BUCKET] / temps[0], w2[:N_BUCKET] / temps[1]], 1)
    q1, s1 = quantise(table[:, :5])
    q2, s2 = quantise(table[:, 5:])
    q = np.concatenate([q1, q2], 1)
    rows = "\n".join("".join("{" + ",".join(map(str, r)) + "}," for r in q[i:i + 4]) for i in range(0, N_BUCKET, 4))
    num = lambda v: ", ".join(f"{float(x):.6f}F" for x in v)
    shape_rows = ", ".join("{" + num(r) + "}" for r in w2[N_BUCKET:] / temps[1])
    path.write_text(f"""/* classify_table.c: weights of classify.c. Written by train/intent/train.py from {n_sentence} sentences. */
#include "odo/decide/classify_impl.h"

/* clang-format off */
const char *const classify_routes[CLASSIFY_N_ROUTE] = {{{", ".join(f'"{r}"' for r in ROUTES)}}};
const float classify_scale[2] = {{{s1:.8f}F, {s2:.8f}F}};
const float classify_bias[CLASSIFY_N_OUT] = {{{num(b1 / temps[0])}, {num(b2 / temps[1])}}};
const float classify_shape[CLASSIFY_N_SHAPE][3] = {{{shape_rows}}};
const signed char classify_weights[CLASSIFY_N_BUCKET][CLASSIFY_N_OUT] = {{
{rows}
}};
/* clang-format on */
""")


def report(name, model, items):
    w1, b1, w2, b2 = model
    x = matrix([t for t, _, _ in items])
    r = (x @ w1 + b1).argmax(1)
    d = (x @ w2 + b2).argmax(1)
    right = np.mean([ROUTES[k] == item[1] for k, item in zip(r, items)])
    classes = [np.mean([LEVELS[k] == c for k, item in zip(d, items) if item[2] == c]) for c in LEVELS]
    print(f"{name}: routes {100 * right:.1f} %, difficulty " + ", ".join(f"{c} {100 * v:.0f} %" for c, v in zip(LEVELS, classes)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--more", action="append", default=[])
    parser.add_argument("--out", default=str(ROOT / "src/odo/decide/classify_table.c"))
    parser.add_argument("--per-form", type=int, default=14)
    args = parser.parse_args()
    rng = random.Random(7)
    unseen = {fold(t) for t, _, _ in read(ROOT / "eval/odo/routes_unseen.jsonl")}
    sentences = compose(rng, args.per_form)
    seen = read(ROOT / "eval/odo/routes_seen.jsonl")
    for path in args.more:
        seen += read(path)
    sentences = [s for s in sentences if fold(s[0]) not in unseen]
    for text, _, _ in seen:
        if fold(text) in unseen:
            raise SystemExit(f"a sentence of the unseen half: {text}")
    rng.shuffle(seen)
    held = []
    for k in range(3):  # by thirds: what the seen half alone would be held out for
        fold_items = seen[k::3]
        model = train(sentences, [s for i, s in enumerate(seen) if i % 3 != k], 8)
        report(f"held-out third {k + 1}", model, fold_items)
        x = matrix([t for t, _, _ in fold_items])
        held.append((x @ model[0] + model[1], x @ model[2] + model[3], fold_items))
    z1 = np.concatenate([h[0] for h in held])
    z2 = np.concatenate([h[1] for h in held])
    items = [i for h in held for i in h[2]]
    temps = (temperature(z1, np.array([ROUTES.index(i[1]) for i in items])),
             temperature(z2, np.array([LEVELS.index(i[2]) for i in items])))
    model = train(sentences, seen, 8)
    write(Path(args.out), model, temps, len(sentences) + len(seen))
    print(f"temperatures {temps[0]:.2f}, {temps[1]:.2f}; {len(sentences)} composed, {len(seen)} labelled")


if __name__ == "__main__":
    main()
