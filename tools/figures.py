#!/usr/bin/env python3
"""Figures of README.md and docs/ trace to rows of bench/results.

    figures.py [check]       checks the rows, follows every link to a row and compares the number in its text, and lists
                             numbers with a unit of speed or quality that have no link; exit 1 if anything is wrong
    figures.py add FILE TEST METRIC VALUE UNIT --device TEXT [--id ID] [--command TEXT] [--folders F...] [--note TEXT]
                             appends a row for the commit that is checked out

A link is [728 tokens per second](bench/results/gpu.jsonl#gpu.35b-ramp3.decode); [3.4 times](...#A/B) is the ratio of
two rows. Tables between `<!-- table -->` and `<!-- end -->` are filled from rows and checked by script/report --check.
Exceptions: tools/figures_allow.txt. script/lint runs the check; it takes less than a second.
"""
import argparse
import datetime
import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path

REQUIRED = ("id", "date", "device", "test", "metric", "unit")
TEXTS = REQUIRED + ("commit", "system", "command", "source", "grade", "provenance", "note")
KNOWN = set(TEXTS) | {"value", "low", "high", "tree"}
PAGES = ("README.md", "docs/*.md", "docs/**/*.md")
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
# Units of speed and quality. Sizes, seconds and counts are not: most of them are limits.
UNIT = re.compile(
    rf"(?<![\w.#/-]){NUMBER}\s?(?:%|tok/s\b|(?:tokens|MB|GB|TB|GMAC|GMACs|bits|nats|MAC)/s\b"
    r"|tokens (?:per|a) second\b|(?:ms|us|µs|ns)\b|percent\b|percentage points\b|points\b|times (?:as|the|llama|ik|plain|faster)"
    r"|bits per (?:byte|weight)\b|nats\b|J/token\b|joules?\b)"
    rf"|\b(?:perplexity|KLD?|KL divergence)(?: of)? {NUMBER}")
DECIMAL_CELL = re.compile(r"^\s*\**[-+]?\d*\.\d+\**\s*$")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]*bench/results/[\w.-]+\.jsonl)#([^)\s]+)\)")
problems = []


def problem(where, text):
    problems.append(f"{where}: {text}")


def check_row(where, row, rows):
    for name in REQUIRED:
        if not isinstance(row.get(name), str) or (not row[name] and name != "unit"):
            problem(where, f"no text '{name}'")
    for name in row:
        if name not in KNOWN:
            problem(where, f"unknown field '{name}'")
        elif name in TEXTS and not isinstance(row[name], str):
            problem(where, f"'{name}' is not a text")
    numbers = [n for n in ("value", "low", "high") if isinstance(row.get(n), (int, float))]
    if "value" not in numbers and numbers != ["low", "high"]:
        problem(where, "neither 'value' nor 'low' and 'high'")
    if "low" in numbers and row["low"] > row["high"]:
        problem(where, "'low' is above 'high'")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", row.get("date", "")):
        problem(where, "'date' is not YYYY-MM-DD")
    if "source" not in row:
        if row.get("provenance") not in ("measured", "recorded", "none"):
            problem(where, "'provenance' is none of measured, recorded, none")
        elif (row["provenance"] == "none") != ("commit" not in row):
            problem(where, "a row has a commit or provenance 'none'")
    if row.get("id") in rows:
        problem(where, f"the id {row['id']} occurs twice")
    if not row.get("id", "").startswith(Path(where.split(":")[0]).stem + "."):
        problem(where, "'id' does not begin with the file's name")


def read_rows():
    rows = {}
    for path in sorted(Path("bench/results").glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                problem(f"{path}:{number}", f"not JSON: {error}")
                continue
            check_row(f"{path}:{number}", row, rows)
            rows[row.get("id")] = row
    return rows


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def matches(text, value):
    """Whether a number as written is the value, rounded to the digits that are shown."""
    plain = text.replace(",", "").lstrip("+")
    if "e" in plain:
        return float(plain) == value
    digits = len(plain.partition(".")[2])
    return abs(float(plain) - value) <= 0.5 * 10 ** -digits + 1e-9 * abs(value)


def check_link(where, path, match, rows):
    text, target, name = match.groups()
    if not (Path(path).parent / target).is_file():
        problem(where, f"{target} does not exist")
        return
    ids = name.split("/")
    found = [rows.get(i) for i in ids]
    for i, row in zip(ids, found):
        if row is None or not i.startswith(Path(target).stem + "."):
            problem(where, f"{Path(target).name} has no row {i}")
            return
    values = [row[k] for row in found for k in ("value", "low", "high") if k in row]
    if len(found) == 2:
        values = [found[0].get("value", found[0].get("low")) / found[1].get("value", found[1].get("low"))]
    values += [abs(v) for v in values]
    for number in re.findall(rf"(?<![\w.-]){NUMBER}", text):
        if not any(matches(number, v) for v in values):
            problem(where, f"the text says {number}, the row {name} {' or '.join(f'{v:g}' for v in values)}")


def read_allowed():
    rows = []
    for line in Path("tools/figures_allow.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            glob, pattern, _reason = (cell.strip() for cell in line.split(" | "))
            rows.append([glob, re.compile(pattern), line, False])
    return rows


def check_page(path, rows, allowed):
    text = Path(path).read_text()
    for match in LINK.finditer(text):
        check_link(f"{path}:{text.count(chr(10), 0, match.start()) + 1}", path, match, rows)
    body = re.sub(r"<!-- (?:table|pivot|bars|points)\n.*?<!-- end -->", blank, text, flags=re.S)
    body = re.sub(r"```.*?```|~~~.*?~~~|`[^`\n]*`|<!--.*?-->", blank, body, flags=re.S)
    body = re.sub(r"^(?: {4}|\t).*$", blank, body, flags=re.M)
    body = LINK.sub(blank, body)
    for number, line in enumerate(body.splitlines(), 1):
        hits = [m.group(0) for m in UNIT.finditer(line)]
        if line.startswith("|"):
            hits += [c.strip() for c in line.split("|") if DECIMAL_CELL.match(c)]
        for hit in hits:
            for row in allowed:
                if fnmatch.fnmatch(path, row[0]) and row[1].search(line):
                    row[3] = True
                    break
            else:
                problem(f"{path}:{number}", f"'{hit}' has no link to a row of bench/results")


def check():
    rows = read_rows()
    allowed = read_allowed()
    pages = sorted({str(p) for glob in PAGES for p in Path(".").glob(glob)})
    for path in pages:
        check_page(path, rows, allowed)
    for _glob, _pattern, line, used in allowed:
        if not used:
            problem("tools/figures_allow.txt", f"nothing needs the row: {line}")
    for text in problems:
        print(text)
    return 1 if problems else 0


def git(*args):
    return subprocess.run(["git", *args], capture_output=True, check=True, text=True).stdout.strip()


def add(arguments):
    stem = Path(arguments.file).stem
    slug = re.sub(r"[^a-z0-9]+", "-", f"{arguments.test} {arguments.metric}".lower()).strip("-")
    row = {"id": arguments.id or f"{stem}.{slug}", "date": datetime.date.today().isoformat(),
           "commit": git("rev-parse", "--short=7", "HEAD"), "device": arguments.device, "test": arguments.test,
           "metric": arguments.metric, "value": float(arguments.value), "unit": arguments.unit}
    if arguments.command:
        row["command"] = arguments.command
    row["provenance"] = "measured"
    row["tree"] = {f: git("rev-parse", f"HEAD:{f}")[:12] for f in arguments.folders}
    if arguments.note:
        row["note"] = arguments.note
    path = Path("bench/results") / f"{stem}.jsonl"
    rows = read_rows()
    check_row(f"{path}:new", row, rows)
    if problems:
        print("\n".join(problems))
        return 1
    with path.open("a") as out:
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(row["id"])
    return 0


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="mode")
    commands.add_parser("check")
    new = commands.add_parser("add")
    for name in ("file", "test", "metric", "value", "unit"):
        new.add_argument(name)
    new.add_argument("--device", required=True)
    new.add_argument("--id")
    new.add_argument("--command", default="")
    new.add_argument("--note", default="")
    new.add_argument("--folders", nargs="*", default=[])
    arguments = parser.parse_args()
    return add(arguments) if arguments.mode == "add" else check()


if __name__ == "__main__":
    sys.exit(main())
