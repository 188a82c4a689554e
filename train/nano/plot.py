"""Training curves as one SVG, from a checkpoint's place.json.

    python plot.py CKPT_DIR OUT.svg
"""

import json
import os
import sys

W, H, LEFT, TOP = 760, 300, 60, 30
SKILLS = ["add_sub", "product", "verify", "tool_call", "context_answer", "json_schema", "intent", "fact"]
COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#e08e0b", "#4d4d4d", "#00a6a6", "#a0522d"]


def panel(title, series, y0, lo, hi, x_max, unit):
    """series: [(name, colour, [(x, y)])]; axes from lo to hi."""
    px = lambda x: LEFT + x / x_max * (W - LEFT - 150)
    py = lambda y: y0 + TOP + (1 - (min(max(y, lo), hi) - lo) / (hi - lo)) * (H - 2 * TOP)
    out = [f'<text x="{LEFT}" y="{y0 + 18}" font-weight="bold">{title}</text>']
    for k in range(6):
        y = lo + (hi - lo) * k / 5
        out.append(f'<line x1="{LEFT}" x2="{W - 150}" y1="{py(y):.1f}" y2="{py(y):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{py(y) + 4:.1f}" text-anchor="end">{y:.1f}</text>')
    for k in range(0, int(x_max) + 1, 200):
        out.append(f'<text x="{px(k):.1f}" y="{y0 + H - 12}" text-anchor="middle">{k}</text>')
    out.append(f'<text x="{W - 150}" y="{y0 + H - 12}">{unit}</text>')
    for i, (name, colour, points) in enumerate(series):
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(f'<text x="{W - 140}" y="{y0 + TOP + 16 * i + 10}" fill="{colour}">{name}</text>')
    return out


def main():
    with open(os.path.join(sys.argv[1], "place.json")) as f:
        place = json.load(f)
    curve, dev = place["curve"], place["dev"]
    x = [row[1] / 1e6 for row in curve]
    end = max(x)
    loss = [("rows of 512", COLOURS[0], list(zip(x, [r[2] for r in curve]))), ("rows of 2,048", COLOURS[1], list(zip(x, [r[7] for r in curve]))),
            ("MTP, 512", COLOURS[2], list(zip(x, [r[3] for r in curve])))]
    marks = [(s, c, [(d["tokens"] / 1e6, d["skills"][s]) for d in dev]) for s, c in zip(SKILLS, COLOURS)]
    marks.append(("MTP acceptance", "#999999", [(d["tokens"] / 1e6, d["mtp"]) for d in dev]))
    body = panel("Weighted training loss, nats a token", loss, 0, 0.5, 3.5, end, "M tokens")
    body += panel("Development items right (greedy), share", marks, H, 0.0, 1.0, end, "M tokens")
    with open(sys.argv[2], "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{2 * H}" viewBox="0 0 {W} {2 * H}" font-family="sans-serif" font-size="12">'
                f'<rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n')


if __name__ == "__main__":
    main()
