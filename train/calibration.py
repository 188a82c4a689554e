#!/usr/bin/env python3
"""calibration.py OUT: the text over which `chimere imatrix` computes without -f, models/calibration.txt.

All of it is of this repository, under its licence (Apache-2.0): conversations in English and French written by hand,
calls of tools by the generators of chimere-nano, source code, and documentation. Kinds alternate, so that each part of
the text has all of them. The file is at most 2 MB, and is rebuilt by hand: it does not follow every change of a source.
"""
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "train/nano"))
import curriculum  # noqa: E402

SHARE, MOST, PIECE = 130_000, 2_000_000, 3_000  # characters of a kind, bytes of the text, characters of a piece
CODE = ["src/base/*.c", "src/text/*.c", "src/format/gguf*.c", "train/nano/*.py", "tools/*.py", "studio/src/*.ts*", "bench/*.sh"]


def talk(names):
    for path in sorted((ROOT / "train/mini/talk").glob(names)):
        for part in path.read_text(encoding="utf-8").split("\n---\n"):
            turns, role = [], ""
            for line in part.strip("-\n").split("\n"):
                if line[:3] in ("U: ", "A: "):
                    role = {"U": "user", "A": "assistant"}[line[0]]
                    turns.append([role, line[3:].split(" | ")[0] if role == "user" else line[3:]])
                elif turns:
                    turns[-1][1] += "\n" + line
            if turns:
                yield "".join(f"<|im_start|>{role}\n{text.strip()}<|im_end|>\n" for role, text in turns)


def tools(rng):
    names = [name for name in curriculum.SKILLS if name.startswith("tool_")] + ["tool_session", "tool_session"]
    while True:
        yield "".join(text for text, _ in curriculum.training_sample(rng.choice(names), rng)) + "\n"


def pieces(paths):
    for path in paths:
        part = ""
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            part += line
            if len(part) > PIECE and not line.strip():
                yield part
                part = ""
        yield part


def taken(items, rng, shuffle=True):
    items = (item for item in items if len(item) < 2 * PIECE)
    if shuffle:
        items = list(items)
        rng.shuffle(items)
    out, size = [], 0
    for item in items:
        size += len(item)
        if size > SHARE:
            break
        out.append(item.strip("\n") + "\n")
    return out


def main():
    rng = random.Random(38)
    code = [path for pattern in CODE for path in sorted(ROOT.glob(pattern))]
    kinds = [taken(talk("en-*.txt"), rng), taken(talk("fr-*.txt"), rng), taken(tools(rng), rng, False),
             taken(pieces(code), rng), taken(pieces(sorted((ROOT / "docs").glob("*.md"))), rng)]
    placed = [((i + .5) / len(kind), k, item) for k, kind in enumerate(kinds) for i, item in enumerate(kind)]
    data = "\n".join(item for _, _, item in sorted(placed)).encode()
    assert len(data) <= MOST, len(data)
    Path(sys.argv[1]).write_bytes(data)
    print(f"{sys.argv[1]}: {len(data)} bytes, {len(placed)} documents, characters of each kind: {[sum(map(len, kind)) for kind in kinds]}")


main()
