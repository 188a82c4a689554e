"""Score against tokens an item of saved runs of `chimere eval --strategy S --json`, as SVG.

    python plot_runs.py OUT.svg RUN.json...        # the name of a run is its file's
"""

import json
import math
import os
import sys

W, H, LEFT, RIGHT, TOP, BOTTOM = 760, 440, 62, 170, 24, 52


def main():
    out, *files = sys.argv[1:]
    points = []
    for f in files:
        t = json.load(open(f, encoding="utf-8"))["total"]
        name = os.path.basename(f)[:-5].replace("__", ", ").replace("_", " ")
        points.append((max(t["n_tokens"], 1), 100 * t["score"], 100 * t["low"], 100 * t["high"], name))
    points.sort()
    xs = [math.log2(p[0]) for p in points]
    x0, x1 = math.floor(min(xs) * 2) / 2, math.ceil(max(xs) * 2 + 0.01) / 2
    y0, y1 = 5 * math.floor(min(p[2] for p in points) / 5), 5 * math.ceil(max(p[3] for p in points) / 5)

    def px(v):
        return LEFT + (math.log2(v) - x0) / (x1 - x0) * (W - LEFT - RIGHT)

    def py(v):
        return H - BOTTOM - (v - y0) / (y1 - y0) * (H - TOP - BOTTOM)

    s = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" font-size="12" fill="#888">']
    step = 5 if y1 - y0 <= 50 else 10
    for y in range(y0, y1 + 1, step):
        s.append(f'<path d="M{LEFT} {py(y):.1f}H{W - RIGHT}" stroke="#888" stroke-opacity=".3"/>'
                 f'<text x="{LEFT - 8}" y="{py(y) + 4:.1f}" text-anchor="end">{y} %</text>')
    e = math.ceil(x0)
    while e <= x1:
        s.append(f'<path d="M{px(2 ** e):.1f} {TOP}V{H - BOTTOM}" stroke="#888" stroke-opacity=".2"/>'
                 f'<text x="{px(2 ** e):.1f}" y="{H - BOTTOM + 18}" text-anchor="middle">{2 ** e}</text>')
        e += 1
    s.append(f'<text x="{(LEFT + W - RIGHT) / 2}" y="{H - 12}" text-anchor="middle">tokens an item: thinking, answers, checks</text>')
    ends = []
    for n, score, low, high, name in points:
        x, y = px(n), py(score)
        label = y + 4
        while any(abs(label - o) < 13 and abs(x - ox) < 150 for ox, o in ends):
            label -= 13
        ends.append((x, label))
        s.append(f'<path d="M{x:.1f} {py(low):.1f}V{py(high):.1f}" stroke="#3b82c4" stroke-opacity=".5" stroke-width="2"/>'
                 f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#3b82c4"/><text x="{x + 9:.1f}" y="{label:.1f}">{name}</text>')
    s.append("</svg>")
    with open(out, "w", encoding="utf-8") as f:
        f.write("\n".join(s) + "\n")


if __name__ == "__main__":
    main()
