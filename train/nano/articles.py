"""Articles of the withheld part of the invented encyclopedia, and questions on it.

    python articles.py OUT_DIR [--seed 1]

Writes same/NAME.txt (statements in the wording nearest to the questions), other/NAME.txt (paraphrases), mixed/NAME.txt
(half of the statements in each), lacking/NAME.txt (one fact left out) and lacking.jsonl (items that ask for that fact, which are right
if the answer says that it is not known), noise/N.txt (articles about entities that no question asks for), and questions.jsonl: for every
fact all its question wordings, the held-out one marked. Retrieval and n-gram memory are measured on these; training never sees them.
"""

import argparse
import json
import os
import random

from world import KINDS, Entity, encyclopedia


def write(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name.replace(" ", "_") + ".txt"), "w", encoding="utf-8") as f:
        f.write(text + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out"), ap.add_argument("--seed", type=int, default=1), ap.add_argument("--noise", type=int, default=200)
    args = ap.parse_args()
    rng, (_, withheld) = random.Random(args.seed), encyclopedia()
    drop = random.Random(args.seed + 1)  # its own numbers, so that the other files stay the same
    rows, lacking = [], []
    for e in withheld:
        write(os.path.join(args.out, "same"), e.name, e.article(rng, wording=0))
        write(os.path.join(args.out, "other"), e.name, e.article(rng, wording=1))
        write(os.path.join(args.out, "mixed"), e.name, e.article(rng))
        for attr, _, _, questions in KINDS[e.kind]:
            rows.append({"entity": e.name, "kind": e.kind, "attribute": attr, "answer": e.values[attr],
                         "questions": [q.format(e=e.name) for q in questions[:-1]], "held_out": questions[-1].format(e=e.name)})
        attr, _, _, questions = drop.choice(KINDS[e.kind])
        write(os.path.join(args.out, "lacking"), e.name, e.article(drop, [a for a in e.values if a != attr]))
        for k, q in enumerate(questions):
            lacking.append({"id": f"lacking-{args.seed}-{e.name}-{k}", "skill": "not_known_number" if e.values[attr][:1].isdigit() else "not_known_name",
                            "messages": [{"role": "user", "content": q.format(e=e.name)}], "think": False, "max_tokens": 32,
                            "check": {"kind": "contains", "answer": ["ot known"]}})
    for i in range(args.noise):
        write(os.path.join(args.out, "noise"), str(i), Entity(rng).article(rng))
    with open(os.path.join(args.out, "questions.jsonl"), "w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    with open(os.path.join(args.out, "lacking.jsonl"), "w", encoding="utf-8") as f:
        for r in lacking:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    print(len(withheld), "entities,", len(rows), "facts")


if __name__ == "__main__":
    main()
