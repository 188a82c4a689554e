"""Write evaluation items: eval/SKILL.jsonl.

    python make_eval.py OUT_DIR [--n 200] [--seed 2027] [--skill NAME]...
"""

import argparse
import json
import os

from curriculum import EVAL_SKILLS, eval_items


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out"), ap.add_argument("--n", type=int, default=200), ap.add_argument("--seed", type=int, default=2027)
    ap.add_argument("--skill", action="append")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for skill in args.skill or EVAL_SKILLS:
        with open(os.path.join(args.out, skill + ".jsonl"), "w", encoding="utf-8") as f:
            for row in eval_items(skill, args.n, args.seed):
                f.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
