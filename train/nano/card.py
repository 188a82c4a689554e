"""Table of the model card from a run of our engine: chimere eval --json >RUN; python card.py RUN EVAL_DIR"""

import json
import math
import os
import sys

GOALS = {"add_sub": "95 %", "product": "85 %", "tool_calculator": "98 %", "tool_call": "90 %", "tool_multi": "90 %", "context_answer": "80 %",
         "json_schema": "90 % valid", "intent": "90 %", "verify": "85 % balanced"}


def interval(p, n, z=1.96):
    """Wilson's interval, in per cent."""
    mid, half = (p + z * z / 2 / n) / (1 + z * z / n), z * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n) / (1 + z * z / n)
    return f"{100 * (mid - half):.0f}-{100 * (mid + half):.0f}"


def share(rows, key):
    return sum(bool(r[key]) for r in rows) / len(rows)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        rows = json.load(f)["items"]
    wants = {}
    with open(os.path.join(sys.argv[2], "verify.jsonl"), encoding="utf-8") as f:
        for item in map(json.loads, f):
            wants[item["id"]] = item["check"]["answer"]
    print("| Skill | Right, % | 95 % interval | Also | Goal |\n|---|---:|---:|---|---|")
    for skill in sorted({r["skill"] for r in rows}):
        mine = [r for r in rows if r["skill"] == skill]
        also = [f"valid {100 * share(mine, 'valid'):.1f} %"] if "valid" in mine[0] else []
        if skill == "verify":
            parts = [[r for r in mine if wants[r["id"]] == w] for w in ("yes", "no")]
            also.append(f"balanced {50 * sum(share(p, 'right') for p in parts):.1f} %")
        print(f"| {skill} | {100 * share(mine, 'right'):.1f} | {interval(share(mine, 'right'), len(mine))} | {', '.join(also)} | {GOALS.get(skill, '')} |")
    calls = [r for r in rows if r["skill"] in ("tool_calculator", "tool_call", "tool_multi", "tool_none")]
    print(f"| tool-call validity, all four kinds | {100 * share(calls, 'valid'):.1f} | | | 97 % |")


if __name__ == "__main__":
    main()
