#!/usr/bin/env python3
"""Links of the Markdown files that git tracks: relative ones lead to files, fragments to headings.

    links.py           prints one line per dead link, exits 1 if there is any; no network
    links.py --files   prints the files that pages link to, for script/site

Fragments of *.jsonl are rows of results; tools/figures.py checks them. Addresses of other hosts are not followed.
"""
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$", re.M)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_code(text):
    return re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`|<!--.*?-->", blank, text, flags=re.S | re.M)


def slug(title):
    """As GitHub names headings."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    kept = [c for c in title.lower() if c in " -_" or unicodedata.category(c)[0] in "LN"]
    return "".join(kept).replace(" ", "-")


def headings(path, known={}):
    if path not in known:
        counts, names = {}, set()
        text = re.sub(r"^(```|~~~).*?^\1", blank, path.read_text(), flags=re.S | re.M)
        for _level, title in HEADING.findall(text):
            name = slug(title)
            n = counts.get(name, 0)
            counts[name] = n + 1
            names.add(f"{name}-{n}" if n else name)
        known[path] = names
    return known[path]


def fault(page, target):
    """Why a link is dead, or None; and the file that it leads to, or None."""
    name, _, fragment = target.partition("#")
    if re.match(r"[a-z][a-z0-9+.-]*:", name):
        return None, None
    path = (page.parent / name).resolve() if name else page.resolve()
    root = Path.cwd().resolve()
    if root != path and root not in path.parents:
        return "leads out of the repository", None
    if not path.exists():
        return "does not exist", None
    if fragment and path.suffix == ".md" and fragment not in headings(path):
        return f"has no heading '{fragment}'", None
    return None, path.relative_to(root)


def main():
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"],
                             capture_output=True, check=True, text=True).stdout
    status, files = 0, set()
    for page in sorted(Path(p) for p in listing.split("\0") if p and Path(p).is_file()):
        text = without_code(page.read_text())
        for match in LINK.finditer(text):
            why, path = fault(page, match.group(1))
            if why:
                print(f"{page}:{text.count(chr(10), 0, match.start()) + 1}: links: {match.group(1)} {why}")
                status = 1
            elif path:
                files.add(str(path))
    if "--files" in sys.argv:
        print("\n".join(sorted(files)))
    return status


if __name__ == "__main__":
    sys.exit(main())
