"""Encode the training pools of chimere-mini, as nano's data.py does: NAME.bin (uint16: 14 bits of token, 2 of loss class) and NAME.idx.

    python mini_data.py CORPUS PACKAGES TOKENIZER OUT [--tokens 400e6]   # what is generated, about
    python mini_data.py CORPUS PACKAGES TOKENIZER --train-tokenizer
"""

import argparse
import json
import lzma
import multiprocessing as mp
import os
import random
import re
import sys
import time
import unicodedata
from glob import glob

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "nano"))
PROMPT, FULL, HALF, NONE = 0, 1, 2, 3
LOSS_WEIGHTS = [0.1, 1.0, 0.5, 0.0]
TOKEN_BITS = 14
MAX_SAMPLE = 4096
SHARDS = 64
# Shares of the tokens of rows, by family of pools.
SHARES = {"nano": 0.38, "mini": 0.36, "chat": 0.12, "talk": 0.02, "prose": 0.12}
LEFT_OUT = ("hard", "hard_verify", "fact")          # of nano's skills; the encyclopedia is another model's
CHAT_WEIGHTS = {"qa": 6, "gsm8k": 1, "instructions": 7, "stories": 2, "chitchat": 3, "dialogues": 4}
_tok = _texts = None


def _plain(text):
    return re.sub(r"[^a-z0-9]+", " ", unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()).strip()


def kept_out(text, _held=[]):
    """Whether a user's message is one of the newcomer prompts of eval/, or nearly: those are never trained on."""
    if not _held:
        with open(os.path.join(HERE, "..", "..", "eval", "newcomer", "prompts.jsonl"), encoding="utf-8") as f:
            for row in map(json.loads, f):
                last = row["messages"][-1]["content"] if "messages" in row else row["prompt"]
                _held.append((_plain(last), frozenset(_plain(last).split())))
    if len(text) > 160:
        return False
    p = _plain(text)
    words = frozenset(p.split())
    return any(p == h or len(w) > 3 and abs(len(words) - len(w)) < 4 and len(words & w) > 0.75 * len(words | w) for h, w in _held)


def packages_prose(packages, held_out=False):
    """(text, language, pool); every 50th document is held out."""
    for lang in ("fr", "en"):
        with lzma.open(os.path.join(packages, f"prose-{lang}.txt.xz"), "rt", encoding="utf-8") as f:
            for i, text in enumerate(f.read().split("\n<|doc|>\n")):
                if (i % 50 == 0) == held_out:
                    yield text, lang, "packages-" + lang


def talks():
    """Conversations written by hand: [(user wordings, answer)], one list a conversation."""
    for path in sorted(glob(os.path.join(HERE, "talk", "*.txt"))):
        with open(path, encoding="utf-8") as f:
            for block in f.read().split("---\n"):
                turns = re.findall(r"(?ms)^U: (.*?)\nA: (.*?)(?=\nU: |\Z)", block.strip())
                rows = [([w.strip() for w in u.split(" | ") if not kept_out(w.strip())], a.strip()) for u, a in turns]
                n_kept = next((i for i, (wordings, _) in enumerate(rows) if not wordings), len(rows))
                if n_kept:
                    yield rows[:n_kept]


def load_texts(corpus, packages, held_out=False):
    from corpus import prose_documents
    from mini_skills import Texts
    prose = [(t, "en") for t, s in prose_documents(corpus) if s in ("books", "textbooks", "kine")][::2] + [(t, lang) for t, lang, _ in packages_prose(packages)]
    return Texts(packages, prose, held_out)


def _init(args, words):
    global _tok, _texts
    from tokenizers import Tokenizer
    from world import widen
    widen(words)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    path = os.path.join(args.tokenizer, "tokenizer.json")
    _tok = Tokenizer.from_file(path) if os.path.exists(path) else None
    _texts = _texts or load_texts(args.corpus, args.packages)       # a forked worker has them already


def _pack(samples):
    """[[(text, class)]] -> (flat array, lengths); each sample ends with <|endoftext|>."""
    end = np.array([_tok.token_to_id("<|endoftext|>") | NONE << TOKEN_BITS], dtype=np.uint16)
    asked = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.S)
    samples = [s for s in samples if s[0][1] == FULL or not any(kept_out(u) for t, _ in s[::2] for u in asked.findall(t))]
    ids = iter([np.array(e.ids, dtype=np.uint16) for e in _tok.encode_batch_fast([t for s in samples for t, _ in s], add_special_tokens=False)])
    out, lengths = [], []
    for segments in samples:
        parts = [next(ids) | kind << TOKEN_BITS for _, kind in segments]
        n = sum(map(len, parts)) + 1
        if n <= MAX_SAMPLE or segments[0][1] == FULL:
            out += parts + [end]
            lengths.append(n)
    return np.concatenate(out) if out else np.zeros(0, np.uint16), lengths


def segments(messages, tools, thought, answer, think=False):
    from chatform import completion, render
    return [(render(messages, tools, think), PROMPT), (completion(answer, thought, think), FULL)]


def talk_sample(turns, rng):
    """One conversation; wordings by chance, every answer is learnt. Later turns follow as the template writes them."""
    from chatform import completion, render
    think = rng.random() < 0.2
    out = []
    for i, (wordings, answer) in enumerate(turns[:rng.choice([len(turns), rng.randint(1, len(turns))])]):
        u = rng.choice(wordings)
        if rng.random() < 0.15:
            u = u.rstrip(".!?") if rng.random() < 0.5 else u[0].lower() + u[1:]
        if i == 0:
            system = [{"role": "system", "content": rng.choice(["You are a helpful assistant.", "Tu es un assistant serviable.", "Answer briefly."])}] if rng.random() < 0.12 else []
            out.append((render(system + [{"role": "user", "content": u}], None, think), PROMPT))
        else:
            out.append((f"\n<|im_start|>user\n{u}<|im_end|>\n<|im_start|>assistant\n<think>\n" + ("" if think else "\n</think>\n\n"), PROMPT))
        out.append((completion(answer, "", think), FULL))
    return out


def own_skills():
    import mini_everyday
    import mini_skills
    return mini_skills.SKILLS | mini_everyday.SKILLS


def sample(kind, name, rng):
    from curriculum import training_sample
    if kind == "nano":                               # nano's skills, in the name of this model
        return [(t.replace("chimere-nano", "chimere-mini"), c) for t, c in training_sample(name, rng)]
    if kind == "mini":
        return segments(*own_skills()[name][0](rng, _texts), think=rng.random() < 0.15)
    return talk_sample(rng.choice(_talks()), rng)


def _talks(_kept=[]):
    if not _kept:
        _kept.extend(talks())
    return _kept


def _made(job):
    kind, name, shard, n = job
    rng = random.Random(f"mini/{kind}/{name}/{shard}")
    return (name,) + _pack([sample(kind, name, rng) for _ in range(n)])


def _chat(job):
    name, seed, rows = job
    rng = random.Random(seed)
    out = []
    for r in rows:
        s = segments(r["messages"], None, r["thought"], r["answer"], rng.random() < (0.6 if r["thought"] else 0.15))
        out.append([(s[0][0], HALF if name == "dialogues" else PROMPT), s[1]])
    return (name,) + _pack(out)


def _prose(job):
    name, docs = job
    return (name,) + _pack([[(d, FULL)] for d in docs])


def made_kinds():
    from curriculum import WEIGHTS
    out = [("nano", s, w * (2 if s.startswith("context_") else 1)) for s, w in WEIGHTS.items() if s not in LEFT_OUT]
    return out + [("mini", s, w) for s, (_, w) in own_skills().items()] + [("talk", "talk-by-hand", 1)]


def jobs(args):
    from corpus import chat_rows, prose_documents
    from data import chat_pool
    out, by = [], {}
    for text, source in prose_documents(args.corpus):
        by.setdefault(source, []).append(text)
    for text, _, pool in packages_prose(args.packages):
        by.setdefault(pool, []).append(text)
    for pool, docs in by.items():
        out += [(_prose, (pool, docs[i:i + 60])) for i in range(0, len(docs), 60)]
    by = {}
    for r in chat_rows(args.corpus):
        pool = chat_pool(r["source"])
        if pool in CHAT_WEIGHTS:
            by.setdefault(pool, []).append(r)
    for pool, rows in by.items():
        out += [(_chat, (pool, i, rows[i:i + 500])) for i in range(0, len(rows), 500)]
    rng, kinds = random.Random(5), []
    for kind, name, w in made_kinds():
        size = np.mean([sum(len(t) for t, _ in sample(kind, name, rng)) / 3.3 for _ in range(40)])
        kinds.append((kind, name, w * size ** 0.6 if kind == "nano" else w, size))
    for kind, name, w, size in kinds:
        per = sum(x for k, _, x, _ in kinds if k == kind)
        share = SHARES[kind] / (SHARES["nano"] + SHARES["mini"] + SHARES["talk"])
        if kind == "talk":
            share = 0.02
        n = int(args.tokens * share * w / per / size / SHARDS) + 1
        out += [(_made, (kind, name, k, n)) for k in range(SHARDS)]
    return out


def _run(job):
    return job[0](job[1])


def tokenizer_texts(args, n_bytes=26_000_000):
    from chatform import CONTROL_TOKENS, MARK_TOKENS
    from corpus import chat_rows, prose_documents
    rng = random.Random(7)
    en, fr = [t for t, _ in prose_documents(args.corpus)], []
    for t, lang, _ in packages_prose(args.packages):
        (fr if lang == "fr" else en).append(t)
    chats = ["\n".join(x["content"] for x in r["messages"]) + "\n" + r["answer"] for r in chat_rows(args.corpus)]
    for texts, share in ((en, 0.33), (fr, 0.3), (chats, 0.12)):
        rng.shuffle(texts)
        total = 0
        for t in texts:
            total += len(t)
            yield t
            if total > share * n_bytes:
                break
    kinds, total = made_kinds(), 0
    while total < 0.25 * n_bytes:
        kind, name, _ = rng.choices(kinds, [SHARES[k] * w for k, _, w in kinds])[0]
        text = "".join(t for t, _ in sample(kind, name, rng))
        for mark in CONTROL_TOKENS + MARK_TOKENS:
            text = text.replace(mark, "\n")
        total += len(text)
        yield text


class Pools:
    """Memory-mapped pools; a row is whole samples drawn by token share, its end filled with prose."""

    def __init__(self, path, seed):
        with open(os.path.join(path, "summary.json")) as f:
            summary = json.load(f)
        self.flat = {n: np.memmap(os.path.join(path, n + ".bin"), dtype=np.uint16, mode="r") for n in summary}
        self.idx = {n: np.fromfile(os.path.join(path, n + ".idx"), dtype=np.int64) for n in summary}
        self.rng = np.random.default_rng(seed)
        kinds = made_kinds()
        mean = {n: x["tokens"] / x["samples"] for n, x in summary.items()}
        # nano's weights count samples: long ones get more tokens here too, though not in proportion
        kinds = [(k, name, w * mean[name] ** 0.6 if k == "nano" else w) for k, name, w in kinds if name in mean]
        share = {name: SHARES[kind] * w / sum(x for k, _, x in kinds if k == kind) for kind, name, w in kinds}
        for name, w in CHAT_WEIGHTS.items():
            share[name] = SHARES["chat"] * w / sum(CHAT_WEIGHTS.values())
        self.prose_names = [n for n in summary if n not in share]
        prose_p = np.array([summary[n]["tokens"] * (2.0 if n == "packages-fr" else 1.0) for n in self.prose_names], float)
        self.prose_p = prose_p / prose_p.sum()
        self.names = [n for n in share if n in summary]
        p = np.array([share[n] / mean[n] for n in self.names])
        self.p = p / p.sum()
        self.left, self.order, self.at = np.zeros(0, np.uint16), {}, {}

    def next(self, name):
        if self.at.get(name, 0) >= len(self.order.get(name, ())):
            self.order[name], self.at[name] = self.rng.permutation(len(self.idx[name]) - 1), 0
        i = self.order[name][self.at[name]]
        self.at[name] += 1
        return self.flat[name][self.idx[name][i]:self.idx[name][i + 1]]

    def prose(self, n):
        while len(self.left) < n:
            self.left = np.concatenate([self.left, self.next(self.prose_names[self.rng.choice(len(self.prose_p), p=self.prose_p)])])
        out, self.left = self.left[:n], self.left[n:]
        return out

    def row(self, width, long):
        out, n, misses = [], 0, 0
        if not (long and self.rng.random() < SHARES["prose"] * 1.6):
            for k in self.rng.choice(len(self.names), 400, p=self.p):
                s = self.next(self.names[k])
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


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus"), ap.add_argument("packages"), ap.add_argument("tokenizer"), ap.add_argument("out", nargs="?")
    ap.add_argument("--tokens", type=float, default=400e6), ap.add_argument("--workers", type=int, default=os.cpu_count())
    ap.add_argument("--train-tokenizer", action="store_true")
    args = ap.parse_args()
    from corpus import wide_words
    words, start = wide_words(args.corpus), time.time()
    _init(args, words)
    if args.train_tokenizer:
        from tokenizers import pre_tokenizers, trainers
        from mini_model import N_CTX, N_VOCAB
        from tokenizer import N_MARKS, save, untrained
        tok = untrained()
        tok.train_from_iterator(tokenizer_texts(args), trainers.BpeTrainer(vocab_size=N_VOCAB - N_MARKS, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
        return save(tok, args.tokenizer, N_VOCAB, N_CTX)
    os.makedirs(args.out, exist_ok=True)
    pools = {}
    with mp.Pool(args.workers, _init, (args, words)) as pool:
        for name, flat, lengths in pool.imap_unordered(_run, jobs(args), chunksize=1):
            pools.setdefault(name, []).append((flat, lengths))
    summary = {}
    for name, parts in pools.items():
        np.concatenate([p[0] for p in parts]).tofile(os.path.join(args.out, name + ".bin"))
        lengths = np.concatenate([np.array(p[1], dtype=np.int64) for p in parts])
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tofile(os.path.join(args.out, name + ".idx"))
        summary[name] = {"samples": int(len(lengths)), "tokens": int(lengths.sum())}
    with open(os.path.join(args.out, "summary.json.part"), "w") as f:
        json.dump(summary, f, indent=1)
    os.rename(os.path.join(args.out, "summary.json.part"), os.path.join(args.out, "summary.json"))
    for name, s in summary.items():
        print(f"{name:16} {s['samples']:9} samples {s['tokens']:11} tokens")
    print(f"{sum(s['tokens'] for s in summary.values()) / 1e6:.1f} M tokens in {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
