#!/usr/bin/env python3
"""Ask a server the prompts of a newcomer and score the answers.

    eval/newcomer/run.py URL [--model NAME] [--seeds N] [--set KEY=JSON]... [--save FILE] [--show]

URL is any server with OpenAI's API, for example http://127.0.0.1:8081/v1. Nothing but the message, the
limit of tokens and the seed is sent, so that the server's own defaults are what is measured; --set adds a
field. Prints one line per prompt and seed with --show, and a summary: answers accepted per language, and
the ids of the answers that loop. Exit status 1 if an answer loops.

The rules of "check" are in eval/newcomer/README.md.
"""
import argparse
import collections
import json
import re
import sys
import urllib.request
from pathlib import Path

MAX_TOKENS = 300
STOP_WORDS = {
    "en": "the a an of to and is are in that it you for with your this can be i have on as or".split(),
    "fr": "le la les un une des de du et est en que qui vous pour avec dans ce je il elle au sur ou ne pas".split(),
}


def words_of(text):
    return re.findall(r"\w+", text.lower())


def loops(text):
    """True if a line or a run of eight words occurs four times, or the text ends in a repeated block."""
    if re.search(r"(\S.{0,7}?)\1{11}\s*$", text, re.DOTALL):
        return True
    lines = collections.Counter(line.strip() for line in text.splitlines() if len(line.strip()) > 7)
    words = words_of(text)
    grams = collections.Counter(tuple(words[i : i + 8]) for i in range(len(words) - 7))
    if max(lines.values(), default=0) >= 4 or max(grams.values(), default=0) >= 4:
        return True
    return any(
        n >= 6 and words[-n:] == words[-period:] * (n // period)
        for period in range(1, 9)
        for n in [period * max(4, -(-6 // period))]
        if len(words) >= n
    )


def language(text):
    words = words_of(text)
    if len(words) < 6:
        return None
    counts = {lang: sum(word in stop for word in words) for lang, stop in STOP_WORDS.items()}
    return max(counts, key=counts.get) if counts["en"] != counts["fr"] else None


def fault(item, text, finish):
    """What is wrong with an answer; None if it is acceptable."""
    check, low = item["check"], " " + text.lower() + " "
    n_words = len(words_of(text))
    least, most = check["words"]
    if loops(text):
        return "loop"
    if finish == "length" and not check.get("may_be_cut"):
        return "does not end"
    if not least <= n_words <= most:
        return f"{n_words} words, expected {least} to {most}"
    if not check.get("any_lang") and language(text) not in (None, item["lang"]):
        return "language"
    for group in check.get("all", []):
        if not any(word in low for word in group):
            return "lacks " + "|".join(group)
    for word in check.get("none", []):
        if word in low:
            return "says " + word
    if "regex" in check and not re.search(check["regex"], text):
        return "form"
    if "count" in check:
        n = sum(word in low for word in check["count"]["of"])
        if n < check["count"]["min"]:
            return f"names {n}, expected {check['count']['min']}"
    return None


def ask(url, item, model, seed, extra):
    body = {"messages": [{"role": "user", "content": item["prompt"]}], "max_tokens": MAX_TOKENS, "seed": seed}
    if model:
        body["model"] = model
    body.update(extra)
    request = urllib.request.Request(
        url.rstrip("/") + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        choice = json.load(answer)["choices"][0]
    return choice["message"].get("content") or "", choice["finish_reason"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--model")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    extra = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in args.set)}
    items = [json.loads(line) for line in (Path(__file__).parent / "prompts.jsonl").open(encoding="utf-8")]
    results = []
    for seed in range(1, args.seeds + 1):
        for item in items:
            text, finish = ask(args.url, item, args.model, seed, extra)
            why = fault(item, text, finish)
            results.append({"id": item["id"], "seed": seed, "fault": why, "finish": finish, "text": text})
            if args.show:
                print(f"{item['id']} {seed}: {why or 'accepted'}: {' '.join(text.split())[:160]}")
    if args.save:
        args.save.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in results), encoding="utf-8")
    looped = [f"{r['id']}/{r['seed']}" for r in results if r["fault"] == "loop"]
    for lang in ("en", "fr", ""):
        some = [r for r in results if r["id"].startswith(lang)]
        right = sum(r["fault"] is None for r in some)
        print(f"{lang or 'all'}: {right} of {len(some)} accepted ({100 * right / len(some):.0f} %)")
    print(f"loops: {len(looped)} {' '.join(looped)}".rstrip())
    return 1 if looped else 0


if __name__ == "__main__":
    sys.exit(main())
