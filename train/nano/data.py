"""Encode the training pools.

    python data.py CORPUS_DIR TOKENIZER_DIR OUT_DIR [--tokens 250e6] [--seed 1] [--workers 16]

A pool is a flat array of samples: NAME.bin (uint16) and NAME.idx (int64 offsets). The low 13 bits
of an entry are the token, the high 3 bits its loss class (LOSS_WEIGHTS). Each procedural skill is a
pool of its own, so that the trainer can mix them as it likes. Deterministic for a seed, whatever
the number of workers.
"""

import argparse
import json
import multiprocessing as mp
import os
import random
import time

import numpy as np

from chatform import completion, render

PROMPT, FULL, HALF, NONE = 0, 1, 2, 3
LOSS_WEIGHTS = [0.1, 1.0, 0.5, 0.0, 0, 0, 0, 0]
TOKEN_BITS = 13
SHARDS = 32                 # per procedural skill
MAX_SAMPLE = 2048

_tok = None
_args = None


def _init(args, words):
    global _tok, _args
    from world import widen
    widen(words)
    from tokenizers import Tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tok, _args = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json")), args


def _encode(texts):
    return [np.array(e.ids, dtype=np.uint16) for e in _tok.encode_batch_fast(texts, add_special_tokens=False)]


def _pack_samples(samples):
    """[[(text, class)]] -> (flat array, lengths); each sample ends with <|endoftext|>."""
    end = np.array([_tok.token_to_id("<|endoftext|>") | NONE << TOKEN_BITS], dtype=np.uint16)
    ids = iter(_encode([t for segments in samples for t, _ in segments]))
    out, lengths = [], []
    for segments in samples:
        parts = [next(ids) | kind << TOKEN_BITS for _, kind in segments]
        n = sum(map(len, parts)) + 1
        if n <= MAX_SAMPLE:
            out += parts + [end]
            lengths.append(n)
    return np.concatenate(out) if out else np.zeros(0, np.uint16), lengths


def _skill_job(job):
    from curriculum import training_sample
    skill, shard, n = job
    rng = random.Random(f"train/{_args.seed}/{skill}/{shard}")
    return (skill,) + _pack_samples([training_sample(skill, rng) for _ in range(n)])


def _chat_job(job):
    """Corpus rows in chat form; one in four with the thinking prompt."""
    name, seed, rows = job
    rng, samples, kind = random.Random(seed), [], HALF if name == "dialogues" else PROMPT
    for r in rows:
        think = rng.random() < (0.6 if r["thought"] else 0.15)
        samples.append([(render(r["messages"], None, think), kind), (completion(r["answer"], r["thought"], think), FULL)])
    return (name,) + _pack_samples(samples)


def _prose_job(job):
    name, docs = job
    end = np.array([_tok.token_to_id("<|endoftext|>") | FULL << TOKEN_BITS], dtype=np.uint16)
    out, lengths = [], []
    for ids in _encode(docs):
        out += [ids | FULL << TOKEN_BITS, end]
        lengths.append(len(ids) + 1)
    return name, np.concatenate(out), lengths


def _article_job(job):
    from curriculum import article_sample
    name, seed, n = job
    rng = random.Random(seed)
    return _prose_job((name, [article_sample(rng) for _ in range(n)]))


CHAT_POOLS = {"dialogues-chat": "dialogues", "dialogues-topical": "dialogues", "dialogues-task": "dialogues", "chitchat": "chitchat", "math-gsm8k": "gsm8k",
              "intent": "intent-corpus"}


def chat_pool(source):
    """The pool of a row of the corpus, by its source."""
    return CHAT_POOLS.get(source) or ("qa" if source.startswith(("qa-", "domain-")) else "stories" if source.startswith("stories") else "instructions")


def jobs(args):
    """The work, in a fixed order: largest pieces first."""
    from corpus import chat_rows, prose_documents
    from curriculum import WEIGHTS
    from curriculum import training_sample
    out = []
    by = {}
    for text, source in prose_documents(args.corpus):
        by.setdefault(source, []).append(text)
    for source, docs in by.items():
        out += [(_prose_job, (source, docs[i:i + 100])) for i in range(0, len(docs), 100)]
    by = {}
    for r in chat_rows(args.corpus):
        by.setdefault(chat_pool(r["source"]), []).append(r)
    for pool, rows in by.items():
        out += [(_chat_job, (pool, i, rows[i:i + 1000])) for i in range(0, len(rows), 1000)]
    rng = random.Random(5)
    cost = {s: np.mean([sum(len(t) for t, _ in training_sample(s, rng)) / 3 for _ in range(100)]) for s in WEIGHTS}
    samples = args.tokens / sum(WEIGHTS[s] * cost[s] for s in WEIGHTS)
    for s, w in WEIGHTS.items():
        n = int(w * samples / SHARDS) + 1
        out += [(_skill_job, (s, k, n)) for k in range(SHARDS)]
    out.append((_article_job, ("encyclopedia", 77, int(30_000 * min(1, args.tokens / 1e8)))))
    return out


def _run(job):
    return job[0](job[1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus"), ap.add_argument("tokenizer"), ap.add_argument("out")
    ap.add_argument("--tokens", type=float, default=250e6, help="procedural tokens, about")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--workers", type=int, default=os.cpu_count())
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    start, pools = time.time(), {}
    from corpus import wide_words
    with mp.Pool(args.workers, _init, (args, wide_words(args.corpus))) as pool:
        for name, flat, lengths in pool.imap(_run, jobs(args), chunksize=1):
            pools.setdefault(name, []).append((flat, lengths))
    summary = {}
    for name, parts in pools.items():
        np.concatenate([p[0] for p in parts]).tofile(os.path.join(args.out, name + ".bin"))
        lengths = np.concatenate([np.array(p[1], dtype=np.int64) for p in parts])
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tofile(os.path.join(args.out, name + ".idx"))
        summary[name] = {"samples": int(len(lengths)), "tokens": int(lengths.sum()), "longest": int(lengths.max())}
    with open(os.path.join(args.out, "summary.json.part"), "w") as f:
        json.dump(summary, f, indent=1)
    os.rename(os.path.join(args.out, "summary.json.part"), os.path.join(args.out, "summary.json"))
    total = sum(s["tokens"] for s in summary.values())
    for name, s in summary.items():
        print(f"{name:16} {s['samples']:9} samples {s['tokens']:11} tokens, mean {s['tokens'] / s['samples']:.0f}, longest {s['longest']}")
    print(f"{total / 1e6:.1f} M tokens in {time.time() - start:.0f} s with {args.workers} workers")


if __name__ == "__main__":
    main()
