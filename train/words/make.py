#!/usr/bin/env python3
"""Writes src/retrieval/words_table.c: how common English words are in general text.

    python3 train/words/make.py FILE... [--out src/retrieval/words_table.c]

Counts in how many passages of 1,200 bytes each word occurs, per file (text, or JSON lines whose strings are joined; .xz too),
and keeps the larger share. The shipped table was made from public domain novels and crowd-written dialogues (train/nano's
books-general and dialogues-chat). Closed sets that name no subject, the calendar, numbers and units, are listed here.
"""
import argparse
import collections
import json
import lzma
import re
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PASSAGE = 1200
LEVELS = [0.2, 0.1, 0.05, 0.03, 0.02, 0.013, 0.009, 0.006]
CLOSED_SHARE = 0.05
CLOSED = """
january february march april may june july august september october november december monday tuesday wednesday
thursday friday saturday sunday day days week weeks month months year years hour hours minute minutes second seconds
janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre lundi mardi mercredi jeudi
vendredi samedi dimanche jour jours semaine semaines mois annee annees ans heure heures seconde secondes
one two three four five six seven eight nine ten eleven twelve twenty thirty hundred thousand million
deux trois quatre cinq sept huit neuf dix onze douze vingt trente cent mille
metre metres meter meters centimetre centimetres centimeter centimeters millimetre millimetres millimeter millimeters
kilometre kilometres kilometer kilometers gram grams gramme grammes kilogram kilograms kilo kilos litre litres liter
liters millilitre millilitres milliliter milliliters tonne tonnes ton tons inch inches foot feet yard yards mile miles
pound pounds ounce ounces euro euros dollar dollars degree degrees degre degres
""".split()
HEAD = """/* words_table.c: how common words are in general text: written by train/words/make.py. */
#include "retrieval/words.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct level {
    double share; /* of passages of 1,200 bytes that hold the word, at least */
    const char *words;
} levels[] = {
"""
TAIL = """};
/* clang-format on */

double words_general_share(const char *word) {
    char key[WORDS_MAX_BYTES + 4];
    snprintf(key, sizeof key, " %s ", word);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; ++i)
        if (strstr(levels[i].words, key)) return levels[i].share;
    return 0;
}
"""


def fold(text):
    text = text.replace("’", "'").replace("œ", "oe").replace("Œ", "OE").replace("ß", "ss")
    text = unicodedata.normalize("NFD", text)
    return "".join(c for c in text if not unicodedata.combining(c)).lower()


def strings(o):
    if isinstance(o, str):
        yield o
    for x in o.values() if isinstance(o, dict) else o if isinstance(o, list) else ():
        yield from strings(x)


def read(path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8", errors="replace") as f:
        text = f.read()
    if ".jsonl" in path:
        text = "\n".join(s for line in text.splitlines() for s in strings(json.loads(line)))
    return text


def shares(path):
    text, found, n = read(path), collections.Counter(), 0
    for i in range(0, len(text), PASSAGE):
        found.update(set(re.findall("[a-z]{2,}", fold(text[i:i + PASSAGE]))))
        n += 1
    return {w: k / n for w, k in found.items() if k >= 5}


def row(share, words):
    lines, line = [], " "
    for w in words:
        if len(line) + len(w) > 108:
            lines.append(line)
            line = ""
        line += w + " "
    return f"    {{{share:g},\n" + "\n".join(f'     "{x}"' for x in lines + [line]) + "},\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+")
    p.add_argument("--out", default=ROOT / "src/retrieval/words_table.c")
    a = p.parse_args()
    best = collections.Counter()
    for path in a.files:
        for w, s in shares(path).items():
            best[w] = max(best[w], s)
    source = (ROOT / "src/retrieval/words.c").read_text()
    stop = set(" ".join(re.findall('"([^"]*)"', source.split("stop_words[] =")[1].split(";")[0])).split())
    out = HEAD + row(CLOSED_SHARE, CLOSED)
    for i, low in enumerate(LEVELS):
        high = LEVELS[i - 1] if i else 2
        out += row(low, sorted(w for w, s in best.items() if low <= s < high and w not in stop | set(CLOSED)))
    Path(a.out).write_text(out + TAIL)


if __name__ == "__main__":
    main()
