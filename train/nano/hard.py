"""Graded hard items: chains and word problems of the taught forms with larger numbers than training showed.

    python hard.py OUT_DIR [--n 200] [--seed 2027]

Writes OUT_DIR/hard_chain.jsonl and OUT_DIR/hard_problem.jsonl, n items each, an equal share of each level. All items
think first (`think`: true); the answer's form is the model's own. Training showed sums and differences of terms below
100 and word problems with starting values up to 60; here, by level:

    chains    1: first of three terms 100 to 199   2: first of four   3: the second of three   4: the last of three
              5: the first 200 to 999
    problems  1: starting values 61 to 99, counts 31 to 60   2: 100 to 300   3: counts to 99 and factors to 12
              4: 200 to 900, counts from 60                  5: counts to 150, factors to 15

Wordings, names and things are drawn as for every item of `eval`: half from what was held out of training.
"""

import argparse
import json
import os
import random

from skills_hard import COUNT, FACTOR, START, Scaled
from skills_math import number, problem_steps
from world import Split

LOW = (10, 99)
CHAINS = {1: [(100, 199), LOW, LOW], 2: [(100, 199), LOW, LOW, LOW], 3: [LOW, (100, 199), LOW], 4: [LOW, LOW, (100, 199)],
          5: [(200, 999), LOW, LOW]}
PROBLEMS = {1: {START: (61, 99), COUNT: (31, 60)}, 2: {START: (100, 300), COUNT: (31, 60)},
            3: {START: (100, 300), COUNT: (31, 99), FACTOR: (5, 12)}, 4: {START: (200, 900), COUNT: (60, 99), FACTOR: (5, 9)},
            5: {START: (200, 900), COUNT: (60, 150), FACTOR: (6, 15)}}


def chain(rng, split, level):
    acc, text = None, ""
    for low, high in CHAINS[level]:
        t = rng.randint(low, high)
        if acc is None:
            acc, text = t, str(t)
            continue
        op = "-" if t <= acc and rng.random() < 0.5 else "+"
        acc = acc + t if op == "+" else acc - t
        text += f" {op} {t}"
    q = split.of(["What is {e}?", "Calculate {e}.", "{e} =", "Work out {e} step by step.", "Solve {e}.", "Evaluate {e}.", "Tell me {e}."],
                 ["Please compute {e}."])
    return q.format(e=text), acc


def problem(rng, split, level):
    text, _, answer = problem_steps(Scaled(rng, PROBLEMS[level]), split)
    return text, answer


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
