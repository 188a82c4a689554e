#!/usr/bin/env python3
"""Runs commands and draws what they print as an animated SVG, a recording of a terminal.

    tools/record_terminal.py OUT.svg COMMAND...

Each COMMAND is one line for bash, run in the working directory. Output beyond 14 lines per command is cut, and so are
lines beyond the width. Lines appear at the time at which they were printed, at most two seconds after the last one.
"""
import html
import subprocess
import sys
import time

WIDTH, MAX_LINES, LINE_PX, CHAR_PX = 100, 14, 20, 8.4
MAX_PAUSE_S, TYPE_S = 2.0, 0.8


def record(command):
    """Lines of a command as (pause before it, text)."""
    lines, last = [], time.monotonic()
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace") as process:
        for line in process.stdout:
            now = time.monotonic()
            text = line.rstrip("\n").expandtabs()
            while text:
                cut = text if len(text) <= WIDTH else text[: text.rfind(" ", 20, WIDTH) if " " in text[20:WIDTH] else WIDTH]
                lines.append((min(now - last, MAX_PAUSE_S), cut))
                text, last = text[len(cut):].lstrip(), now
            if not line.strip():
                lines.append((0, ""))
    if process.returncode not in (0, -13):
        sys.exit(f"{command}: status {process.returncode}")
    return lines[:MAX_LINES]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    rows, at = [], 0.3
    for command in sys.argv[2:]:
        rows.append((at, "prompt", "$ " + command))
        at += TYPE_S
        for pause, text in record(command):
            at += pause
            rows.append((at, "out", text))
        at += TYPE_S
    height, width = LINE_PX * (len(rows) + 2), int(CHAR_PX * WIDTH) + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" font-size="14">',
        "<style>text{opacity:0;animation:show .1s forwards;white-space:pre}@keyframes show{to{opacity:1}}"
        "@media (prefers-reduced-motion){text{animation:none;opacity:1}}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1e1e2e"/>',
    ]
    for i, (start, kind, text) in enumerate(rows):
        colour = "#a6e3a1" if kind == "prompt" else "#cdd6f4"
        out.append(f'<text x="20" y="{LINE_PX * (i + 2) - 6}" fill="{colour}" style="animation-delay:{start:.1f}s" '
                   f'xml:space="preserve">{html.escape(text)}</text>')
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>", ""]))


if __name__ == "__main__":
    main()
