#!/usr/bin/env python3
"""Draws the layers, the path of a forward pass and the four lifetimes.

    tools/draw_house.py > docs/house.svg

The layers come from tools/layers.txt; a folder is drawn solid once it has code.
"""
from pathlib import Path

WIDTH, HEIGHT = 920, 690
SANS = "ui-sans-serif,Helvetica,Arial,sans-serif"
MONO = "ui-monospace,Menlo,Consolas,monospace"
INK, GREY, BLUE, BROWN = "#1c2430", "#5b6472", "#16324f", "#5a3d0c"

WHAT = {0: "memory, errors, threads", 1: "bytes and text", 2: "arithmetic", 3: "tokens to logits",
        4: "sequences to tokens", 5: "serving a request", 6: "measuring, tools", 7: "retrieval, strategies",
        8: "how to answer", 9: "learning", 10: "HTTP", 11: "include/chimere.h", 12: "commands"}
PATH = [("tok_encode", "text/tok/tok.h", "bytes to ids"),
        ("forward_run", "model/forward.c", "the loop over layers"),
        ("block_*", "model/block/block_*.c", "attention, delta net, experts"),
        ("dev->ops", "kernels/ops.h", "the list of operations"),
        ("ref_*, cpu, cuda", "kernels/", "the reference, then the fast versions")]
LIFETIMES = [("model", "weights; shared, immutable"), ("engine", "activation memory, once"),
             ("session", "state of one sequence"), ("request", "parameters, output")]


def text(x, y, s, size=13, bold=False, fill=INK, anchor="start", font=SANS):
    print(f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{600 if bold else 400}" '
          f'fill="{fill}" text-anchor="{anchor}" font-family="{font}">{s}</text>')


def box(x, y, w, h, fill, stroke, dashed=False):
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    print(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{fill}" '
          f'stroke="{stroke}"{dash}/>')


def layers(x, y):
    rows = {}
    for line in Path("tools/layers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, number = line.split()
            rows.setdefault(int(number), []).append(name)
    with_code = {p.parts[1] for p in Path("src").rglob("*.c")}
    width, height, gap = 360, 38, 6
    text(x - 34, y - 40, "The house", 17, True)
    text(x - 34, y - 20, "an #include may only point down", 12.5, fill=GREY)
    for number in sorted(rows, reverse=True):
        names = rows[number]
        w = (width - (len(names) - 1) * gap) / len(names)
        text(x - 12, y + 24, number, 12, fill="#8a93a0", anchor="end", font=MONO)
        for i, name in enumerate(names):
            left = x + i * (w + gap)
            if name in with_code:
                box(left, y, w, height, "#dfe9f5", "#4a78b0")
                text(left + w / 2, y + 24, name, 13.5, True, BLUE, "middle", MONO)
            else:
                box(left, y, w, height, "#ffffff", "#c3c9d1", dashed=True)
                text(left + w / 2, y + 24, name, 13.5, False, "#7b8490", "middle", MONO)
        text(x + width + 12, y + 24, WHAT[number], 12.5, fill=GREY)
        y += height + gap
    text(x, y + 16, "solid: has code today; dashed: planned", 12, fill=GREY)


def forward_pass(x, y):
    text(x, y - 40, "One forward pass", 17, True)
    text(x, y - 20, "read these files in this order", 12.5, fill=GREY)
    for i, (name, file, what) in enumerate(PATH):
        box(x, y, 250, 50, "#f3ead9", "#b98a3c")
        text(x + 12, y + 21, name.replace(">", "&gt;"), 13.5, True, BROWN, font=MONO)
        text(x + 238, y + 21, file, 11.5, fill="#86693a", anchor="end", font=MONO)
        text(x + 12, y + 40, what, 12, fill="#6b5a3c")
        if i + 1 < len(PATH):
            print(f'<path d="M{x + 125} {y + 50} v14 m-4 -5 l4 5 l4 -5" fill="none" '
                  'stroke="#b98a3c" stroke-width="1.4"/>')
        y += 66
    text(x, y + 34, "Four lifetimes", 17, True)
    for i, (name, what) in enumerate(LIFETIMES):
        text(x, y + 62 + i * 23, name, 13, True, BLUE, font=MONO)
        text(x + 76, y + 62 + i * 23, what, 12.5, fill=GREY)


print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
      'aria-label="The folders of Chimère in layers 0 to 12; each includes only folders below it.">')
print(f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fbfaf7"/>')
layers(64, 78)
print(f'<line x1="606" y1="30" x2="606" y2="{HEIGHT - 30}" stroke="#e3e0d8"/>')
forward_pass(640, 78)
print("</svg>")
