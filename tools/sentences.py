#!/usr/bin/env python3
"""Prints N sentences of comments and documents, drawn by a seed, for a reader who is new to the project.

usage: tools/sentences.py SEED [N]

Each is a line "PATH:LINE: sentence". The bar: such a reader marks at most 6 of 300 as unclear (docs/style.md)."""
import random
import re
import subprocess
import sys

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*(.*?)\*/|//([^\n]*)', re.S)
END = re.compile(r"(?<=[.?!;:])\s+(?=[A-Z`(\"])")


def sentences(path, text):
    if path.endswith(".md"):
        text = re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)
        parts = [(m.start(), m.group(0)) for m in re.finditer(r"(?:^(?![|#<]).+\n?)+", text, re.M)]
    else:
        parts = [(m.start(), m.group(1) or m.group(2)) for m in COMMENT.finditer(text) if m.group(1) or m.group(2)]
    for at, part in parts:
        line = text.count("\n", 0, at) + 1
        part = re.sub(r"\s+", " ", re.sub(r"\n\s*\*", "\n", part)).strip(" *-/")
        for s in END.split(part):
            if len(re.findall(r"[A-Za-z]{2,}", s)) >= 4:
                yield f"{path}:{line}: {s}"


def main():
    seed, n = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300
    files = subprocess.run(["git", "ls-files", "src", "include", "docs", "*.md"], check=True, capture_output=True, text=True)
    all_of = []
    for path in sorted(set(files.stdout.split())):
        if re.search(r"\.(c|h|cu|cuh|inc|md)$", path) and not path.startswith("docs/reports"):
            with open(path, encoding="utf-8") as f:
                all_of += sentences(path, f.read())
    for s in sorted(random.Random(seed).sample(all_of, n)):
        print(s)


main()
