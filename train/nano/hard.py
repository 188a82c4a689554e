"""Graded hard items: chains and word problems of the taught forms with numbers that one step often gets wrong.

    python hard.py OUT_DIR [--n 200] [--seed 2027]

Writes OUT_DIR/hard_chain.jsonl and OUT_DIR/hard_problem.jsonl, n items each, an equal share of each level. All items
think first (`think`: true); the answer's form is the model's own. The levels are those of CHAINS and PROBLEMS: ranges of
the terms of a chain (a pair of ranges is a product), and what stands for the ranges of a word problem.

Wordings, names and things are drawn as for every item of `eval`: half from what was held out of training.
"""

import argparse
import json
import os
import random

import skills_hard
from skills_hard import COUNT, FACTOR, START
from skills_math import number
from world import Split

TENS, HUNDREDS, THOUSANDS = (11, 99), (100, 999), (1000, 9999)
CHAINS = {1: [THOUSANDS, THOUSANDS, THOUSANDS, HUNDREDS], 2: [(TENS, TENS), HUNDREDS, HUNDREDS], 3: [HUNDREDS, (TENS, TENS), THOUSANDS],
          4: [(TENS, TENS), THOUSANDS, THOUSANDS, HUNDREDS], 5: [(HUNDREDS, (2, 9)), HUNDREDS, HUNDREDS]}
PROBLEMS = {1: {START: THOUSANDS, COUNT: HUNDREDS, FACTOR: (2, 9)}, 2: {START: HUNDREDS, COUNT: TENS, FACTOR: TENS},
            3: {START: THOUSANDS, COUNT: (60, 99), FACTOR: (30, 99)}, 4: {START: THOUSANDS, COUNT: (60, 99), FACTOR: (60, 99)},
            5: {START: THOUSANDS, COUNT: HUNDREDS, FACTOR: (6, 9)}}


def chain(rng, split, level):
    acc, terms = 0, []
    for r in CHAINS[level]:
        t = tuple(rng.randint(*x) for x in r) if isinstance(r[0], tuple) else rng.randint(*r)
        v = t[0] * t[1] if isinstance(t, tuple) else t
        sign = "-" if terms and v <= acc and rng.random() < 0.5 else "+"
        acc += v if sign == "+" else -v
        terms.append((sign, t))
    q = split.of(["What is {e}?", "Calculate {e}.", "{e} =", "Work out {e} step by step.", "Solve {e}.", "Evaluate {e}.", "Tell me {e}."],
                 ["Please compute {e}."])
    return q.format(e=skills_hard.chain_text(terms)), acc


def problem(rng, split, level):
    text, path = skills_hard.problem(rng, split, PROBLEMS[level])
    return text, skills_hard.run(path)[-1][3]


def rows(skill, make, n, seed):
    rng = random.Random(f"{skill}/{seed}")
    split, seen = Split(rng, "eval"), set()
    while len(seen) < n:
        i = len(seen)
        level = i % 5 + 1
        text, answer = make(rng, split, level)
        if answer < 0 or text in seen:
            continue
        seen.add(text)
        yield {"id": f"{skill}-{seed}-{i}", "skill": skill, "level": level, "messages": [{"role": "user", "content": text}], "think": True,
               "max_tokens": 320, "check": number(answer)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out"), ap.add_argument("--n", type=int, default=200), ap.add_argument("--seed", type=int, default=2027)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for skill, make in (("hard_chain", chain), ("hard_problem", problem)):
        with open(os.path.join(args.out, skill + ".jsonl"), "w", encoding="utf-8") as f:
            for row in rows(skill, make, args.n, args.seed):
                f.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
