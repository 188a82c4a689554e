"""Tables of the model card from a checkpoint's eval.json and place.json: python card.py CKPT_DIR"""

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


def main():
    with open(os.path.join(sys.argv[1], "eval.json")) as f:
        result = json.load(f)
    with open(os.path.join(sys.argv[1], "place.json")) as f:
        place = json.load(f)
    print("| Skill | Right, % | 95 % interval | Also | Goal |\n|---|---:|---:|---|---|")
    valid = []
    for skill, r in result["skills"].items():
        also = [f"valid {100 * r['valid']:.1f} %"] if "valid" in r else []
        if "balanced" in r:
            also.append(f"balanced {100 * r['balanced']:.1f} %")
        if skill.startswith("tool_") and "valid" in r:
            valid.append(r["valid"])
        print(f"| {skill} | {100 * r['right']:.1f} | {interval(r['right'], r['n'])} | {', '.join(also)} | {GOALS.get(skill, '')} |")
    print(f"| tool-call validity, all four kinds | {100 * sum(valid) / len(valid):.1f} | | | 97 % |")
    print(f"| MTP first draft accepted | {100 * result['mtp']:.1f} | | over these answers | 60 % |")
    for source, bits in place.get("bits", {}).items():
        print(f"| held-out {source} | {bits:.2f} bits per byte | | first 60 documents of each | 2.0 |")
    print(f"\n{place['step']} steps, {place['tokens'] / 1e6:.0f} M tokens")


if __name__ == "__main__":
    main()
