"""Texts of Debian packages: French and English documentation, games' stories in both languages, dictionaries.

    python packages.py OUT_DIR [DEB_DIR]

Downloads the packages with apt-get (nothing is installed), unpacks them and writes OUT_DIR: prose-fr.txt.xz and
prose-en.txt.xz (documents separated as in the corpus), pairs.tsv.xz (English, French), verbs.tsv.xz (French verbs and
their forms), capitals.tsv.xz, words.tsv.xz (English noun, gloss of WordNet), and LICENCES.txt: what each package's
copyright file says. Nothing of it is part of this repository.
"""

import gzip
import html
import lzma
import os
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from glob import glob

DOCS = """debian-reference-fr debian-reference-en debian-handbook developers-reference-fr debian-faq debian-faq-fr aptitude-doc-fr
aptitude-doc-en maint-guide-fr gimp-help-fr gnome-user-docs debian-edu-doc-fr installation-guide-amd64 evolution-common gedit-common
nautilus-data libreoffice-help-fr lilypond-doc-html-fr kicad-doc-fr linuxcnc-doc-fr stellarium-data manpages manpages-fr gnome-mines
gnome-chess gnome-sudoku quadrapassel five-or-more swell-foop four-in-a-row iagno tali gnome-robots lightsoff hitori gnome-tetravex
gnome-nibbles gnome-klotski aisleriot gnome-mahjongg""".split()
STORIES = ["wesnoth-1.16-data", "fillets-ng-data"] + ["wesnoth-1.16-" + x for x in "httt low dm did nr sof thot trow tsg ttb ei aoi sota l dw utbs".split()]
LEXICA = "dict-freedict-fra-eng dict-freedict-eng-fra verbiste iso-codes kgeography-data wordnet-base freeciv-data".split()
# Paths of pages, by language; documents that exist in one language only are named by their package.
PAGES = {"fr": ["debian-reference-fr/**/*.fr.html", "debian-handbook/**/fr-FR/*.html", "developers-reference-fr/**/fr/*.html", "debian-faq-fr/**/*.fr.html",
                "aptitude-doc-fr/**/*.html", "maint-guide-fr/**/*.fr.html", "gimp-help-fr/**/fr/*.html", "**/help/fr/**/*.page",
                "debian-edu-doc-fr/**/debian-edu-bookworm-manual.html", "installation-guide-amd64/**/fr/*.html", "libreoffice-help-fr/**/*.html",
                "lilypond-doc-html-fr/**/*big-page.fr.html", "kicad-doc-fr/**/*.html", "linuxcnc-doc-fr/**/*_fr.html", "stellarium-data/**/description.fr.utf8"],
         "en": ["debian-reference-en/**/*.en.html", "debian-handbook/**/en-US/*.html", "debian-faq/**/*.en.html", "aptitude-doc-en/**/*.html", "**/help/C/**/*.page",
                "installation-guide-amd64/**/en/*.html", "stellarium-data/**/description.en.utf8"]}
DOC_END = "\n<|doc|>\n"


def unpack(names, debs):
    for name in names:
        out = os.path.join(debs, "x", name)
        if os.path.isdir(out):
            continue
        if not glob(os.path.join(debs, name + "_*.deb")):
            subprocess.run(["apt-get", "download", "-q", name], cwd=debs, stdout=subprocess.DEVNULL, check=False)
        for deb in glob(os.path.join(debs, name + "_*.deb")):
            subprocess.run(["dpkg-deb", "-x", deb, out], check=True)


def page_text(raw):
    """Paragraphs and headings of a page in HTML or Mallard; code, tables and navigation go."""
    raw = re.sub(r"(?is)<(script|style|pre|table|info|nav|head|screen|code)\b.*?</\1>|<!--.*?-->", " ", raw)
    out = []
    for tag, body in re.findall(r"(?is)<(p|li|h[1-4]|title|dd)\b[^>]*>(.*?)</\1>", raw):
        if re.search(r"(?i)<(p|li|dd)\b", body):
            body = re.split(r"(?i)<(?:p|li|dd)\b[^>]*>", body)[-1]
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", body)).split())
        if tag.lower()[0] in "ht" and text or len(text) > 60 and text[-1] in ".!?:»":
            out.append(text)
    return "\n".join(x for i, x in enumerate(out) if x not in out[max(0, i - 3):i])


def man_text(raw):
    """Running text of a manual page."""
    out, par = [], []
    for line in raw.splitlines():
        if line.startswith((".PP", ".P", ".TP", ".SH", ".IP", ".LP", ".SS")):
            if par:
                out.append(" ".join(par))
            par = []
            if line.startswith((".SH", ".SS")):
                out.append(line[4:].strip().strip('"'))
            continue
        if line.startswith((".B ", ".I ", ".BR ", ".IR ", ".RB ", ".RI ")):
            line = "".join(line.split()[1:2]) + " " + " ".join(line.split()[2:])
        elif line.startswith((".", "'")):
            continue
        line = re.sub(r"\\f[BIRP]|\\f\(..|\\&|\\\"|\\c", "", line).replace("\\-", "-").replace("\\(aq", "'").replace("\\ ", " ").replace("\\e", "\\")
        par.append(re.sub(r"\\\(..|\\[^\s]", "", line).replace('"', ""))
    return "\n".join(x for x in out + [" ".join(par)] if x.strip())


def mo_pairs(path):
    with open(path, "rb") as f:
        raw = f.read()
    _, _, n, a, b, _, _ = struct.unpack_from("<7I", raw)
    for i in range(n):
        la, oa = struct.unpack_from("<2I", raw, a + 8 * i)
        lb, ob = struct.unpack_from("<2I", raw, b + 8 * i)
        en, fr = raw[oa:oa + la].decode(errors="ignore"), raw[ob:ob + lb].decode(errors="ignore")
        if en and "\0" not in en:
            yield re.sub(r"^.*\^|\x04", "", en.split("\x04")[-1]), fr


def clean(text):
    return " ".join(re.sub(r"<[^>]+>|\\n", " ", text).replace("\xa0", " ").split())


def documents(x, lang):
    for pattern in PAGES[lang]:
        for path in sorted(glob(os.path.join(x, pattern), recursive=True)):
            with open(path, encoding="utf-8", errors="ignore") as f:
                text = page_text(f.read())
            if len(text) > 300 and len(re.findall(r"[�{}]", text)) < 4:
                yield text
    for path in sorted(glob(os.path.join(x, "manpages-fr/**/fr/man[1578]/*.gz" if lang == "fr" else "manpages/**/man[578]/*.gz"), recursive=True)):
        text = man_text(gzip.open(path, "rt", encoding="utf-8", errors="ignore").read())
        if len(text) > 600:
            yield text[:8000]


def story_pairs(x):
    """Sentences of the games, in the order of the files: (English, French, chapter)."""
    for path in sorted(glob(os.path.join(x, "wesnoth*/**/fr/LC_MESSAGES/*.mo"), recursive=True) + glob(os.path.join(x, "freeciv-data/**/fr/LC_MESSAGES/freeciv-core.mo"), recursive=True)):
        for en, fr in mo_pairs(path):
            yield clean(en), clean(fr), os.path.basename(path)
    for path in sorted(glob(os.path.join(x, "fillets-ng-data/**/dialogs_fr.lua"), recursive=True)):
        with open(path, encoding="utf-8", errors="ignore") as f:
            for en, fr in re.findall(r'dialogId\("[^"]*", "[^"]*", "((?:[^"\\]|\\.)*)"\)\s*dialogStr\("((?:[^"\\]|\\.)*)"\)', f.read()):
                yield clean(en.replace('\\"', '"')), clean(fr.replace('\\"', '"')), path


def dictionary(x, name):
    path = glob(os.path.join(x, name, "**/*.dict.dz"), recursive=True)
    for entry in re.split(r"\n(?=\S)", gzip.open(path[0], "rt", encoding="utf-8").read().split("Changelog")[-1]) if path else []:
        m = re.match(r"([^/\n]+?) ?/[^\n]*\n\s*(?:1\. )?([^\n]+)", entry)
        if m and len(m[1]) < 40:
            yield m[1].strip(), re.sub(r"\s*[<\[].*", "", m[2]).split(",")[0].strip()


PERSONS = {"indicative/present": "present", "indicative/imperfect": "imperfect", "indicative/future": "future", "conditional/present": "conditional",
           "subjunctive/present": "subjunctive", "participle/past-participle": "participle"}


def verbs(x):
    base = glob(os.path.join(x, "verbiste/usr/share/verbiste*/"))[0]
    forms = {}
    for t in ET.parse(base + "conjugation-fr.xml").getroot():
        forms[t.get("name")] = {short: [[i.text or "" for i in p.findall("i")] for p in t.find(path).findall("p")] for path, short in PERSONS.items() if t.find(path) is not None}
    for v in ET.parse(base + "verbs-fr.xml").getroot().iter("v"):
        name, template = v.findtext("i"), v.findtext("t")
        stem = name[:len(name) - len(template.split(":")[1])]
        for tense, rows in forms[template].items():
            yield name, tense, ",".join(stem + r[0] if r else "" for r in rows)


def nouns(x):
    path = glob(os.path.join(x, "wordnet-base/**/data.noun"), recursive=True)
    for line in open(path[0], encoding="utf-8") if path else []:
        if line.startswith(" "):
            continue
        head, gloss = line.split(" | ", 1)
        word, gloss = head.split()[4].replace("_", " "), gloss.split(";")[0].strip()
        if word.islower() and len(gloss) > 15:
            yield word, gloss


def write(out, name, lines, sep="\n"):
    text = sep.join(lines)
    with lzma.open(os.path.join(out, name), "wt", encoding="utf-8", preset=9) as f:
        f.write(text)
    print(f"{name}: {len(text) / 1e6:.1f} MB, {os.path.getsize(os.path.join(out, name)) / 1e6:.1f} MB packed", flush=True)


def main():
    out, debs = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.join(sys.argv[1], "deb")
    os.makedirs(out, exist_ok=True)
    os.makedirs(os.path.join(debs, "x"), exist_ok=True)
    unpack(DOCS + STORIES + LEXICA, debs)
    x = os.path.join(debs, "x")
    stories = [(en, fr, c) for en, fr, c in story_pairs(x) if fr and en != fr]
    for lang, at in (("fr", 1), ("en", 0)):
        docs, seen, chapters = [], set(), {}
        for text in documents(x, lang):
            lines = [p for p in text.split("\n") if p not in seen or len(p) < 60]
            seen.update(lines)
            if sum(map(len, lines)) > 300:
                docs.append("\n".join(lines))
        for row in stories:
            if len(row[at]) > 80:
                chapters.setdefault(row[2], []).append(row[at])
        for rows in chapters.values():
            docs += ["\n".join(rows[i:i + 20]) for i in range(0, len(rows), 20)]
        write(out, f"prose-{lang}.txt.xz", docs, DOC_END)
    pairs = {(en, fr) for en, fr, _ in stories if 8 < len(en) < 220 and not re.search(r"[%$|_{}@]", en + fr)}
    for path in glob(os.path.join(x, "iso-codes/**/fr/LC_MESSAGES/iso_3166-1.mo"), recursive=True) + glob(os.path.join(x, "iso-codes/**/fr/LC_MESSAGES/iso_639-2.mo"), recursive=True):
        pairs |= {(clean(a), clean(b)) for a, b in mo_pairs(path) if b and len(a) < 30}
    pairs |= {(b, a) for a, b in dictionary(x, "dict-freedict-fra-eng")} | set(dictionary(x, "dict-freedict-eng-fra"))
    write(out, "pairs.tsv.xz", [f"{a}\t{b}" for a, b in sorted(pairs) if a and b and "\t" not in a + b])
    write(out, "verbs.tsv.xz", ["\t".join(v) for v in verbs(x)])
    write(out, "words.tsv.xz", ["\t".join(v) for v in nouns(x)])
    world = open(glob(os.path.join(x, "kgeography-data/**/world.kgm"), recursive=True)[0], encoding="utf-8").read()
    fr = {clean(a): clean(b) for p in glob(os.path.join(x, "iso-codes/**/fr/LC_MESSAGES/iso_3166-1.mo"), recursive=True) for a, b in mo_pairs(p)}
    rows = re.findall(r"<name>([^<]+)</name>\s*<flag>[^<]*</flag>\s*<capital>([^<]+)</capital>", world) or re.findall(r"<name>([^<]+)</name>\s*<capital>([^<]+)</capital>", world)
    write(out, "capitals.tsv.xz", [f"{a}\t{b}\t{fr.get(a, '')}" for a, b in rows])
    with open(os.path.join(out, "LICENCES.txt"), "w", encoding="utf-8") as f:
        for name in DOCS + STORIES + LEXICA:
            for path in glob(os.path.join(x, name, "usr/share/doc", name, "copyright")):
                text = open(path, encoding="utf-8", errors="ignore").read()
                found = {a or b for a, b in re.findall(r"(?m)^License: *(\S+)|(GNU Free Documentation License|GNU General Public License|Creative Commons[^,.\n]*)", text)}
                f.write(f"{name}: {', '.join(sorted(found)[:8])}\n")


if __name__ == "__main__":
    main()
