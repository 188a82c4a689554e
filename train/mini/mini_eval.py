"""Items that chimere-mini never saw: reading in our own wordings over held-out passages, and the corpus' held-out rows in foreign ones.

    python mini_eval.py CORPUS PACKAGES OUT_DIR [--n 200]

Writes read_en, read_fr, planted, translate (own wordings) and foreign_read, foreign_chat (wordings of other people), in the
form of eval/ (contains: right if the answer is in the text).
"""

import argparse
import json
import os
import random
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nano"))


def item(name, i, messages, answer, max_tokens=64):
    answer = re.sub(r"[.!]+$", "", answer.strip())
    return {"id": f"{name}-{i}", "skill": name, "messages": messages, "think": False, "max_tokens": max_tokens, "check": {"kind": "contains", "answer": [answer]}}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus"), ap.add_argument("packages"), ap.add_argument("out"), ap.add_argument("--n", type=int, default=200)
    args = ap.parse_args()
    from corpus import chat_rows
    from mini_data import load_texts
    from mini_skills import planted, reading
    T, rng, sets = load_texts(args.corpus, args.packages, held_out=True), random.Random(41), {}
    for name, make, keep in (("read_en", reading, lambda q, a: "Que" not in q and "Qu'" not in q and "___" not in q and "text say about" not in q and not re.search("[éèàç]", a)),
                             ("read_fr", reading, lambda q, a: re.search("Que dit|Qu'est|Qui a|Pourquoi|En quelle|Que s'est", q) and "___" not in q), ("planted", planted, lambda q, a: True)):
        rows = sets.setdefault(name, [])
        while len(rows) < args.n:
            messages, _, _, answer = make(rng, T)
            if keep(messages[-1]["content"], answer):
                rows.append(item(name, len(rows), messages, answer, 96))
    for r in chat_rows(args.corpus, held_out=True):
        name = {"t0-adversarial_qa": "foreign_read", "t0-ropes": "foreign_read", "qa-facts": "foreign_facts", "qa-trivia": "foreign_facts"}.get(r["source"])
        rows = sets.setdefault(name, [])
        if name and len(rows) < args.n and len(r["answer"]) < 80:
            rows.append(item(name, len(rows), r["messages"], r["answer"]))
    os.makedirs(args.out, exist_ok=True)
    for name, rows in sets.items():
        if name:
            with open(os.path.join(args.out, name + ".jsonl"), "w", encoding="utf-8") as f:
                f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
            print(name, len(rows))


if __name__ == "__main__":
    main()
