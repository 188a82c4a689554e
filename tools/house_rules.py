#!/usr/bin/env python3
"""House rules that a text scan can check: layers, sizes, names, banned calls, words.

Prints one line per breach, "PATH:LINE: rule: what", and exits 1 if there is any. Exceptions stand in
tools/allow.txt; with --strict a row there that nothing needs is a breach too. Reads what git tracks or
would. Runs in about a second; script/lint calls it.
"""
import fnmatch
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

MAX_FILE, MAX_HEADER, MAX_FUNCTION, MAX_PROTOTYPES, MAX_FOLDER = 1000, 200, 150, 15, 40
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "core", "manager"}
BANNED_SUFFIX = re.compile(r"_(v[0-9]+|fast)$")
BANNED_CALLS = {
    "getenv": ("getenv", "secure_getenv", "setenv", "putenv"),
    "print": ("printf", "puts", "putchar", "fprintf(stdout", "fprintf(stderr", "fputs(stderr",
              "perror", "vprintf"),
    "heap": ("malloc", "calloc", "realloc", "free", "strdup", "strndup", "aligned_alloc",
             "posix_memalign", "asprintf", "vasprintf", "alloca"),
    "unsafe": ("strcpy", "strcat", "sprintf", "vsprintf", "gets", "strtok", "atoi", "atol", "atoll",
               "atof", "system", "tmpnam", "mktemp", "rand", "srand", "signal_r"),
}
# Where a rule of BANNED_CALLS holds within src; the rest of src is free.
BANNED_OUTSIDE = {"getenv": ("base/config.c",), "print": ("cli/",), "heap": (), "unsafe": ()}
# What belongs to somebody's machine and not to the project; written so as not to match itself.
FOREIGN_TEXT = re.compile(
    r"(?<![\w.$}-])/(?:work|home|root|tmp|mnt)/\w|\bregistry[.](?:npmjs|yarnpkg)\b|\bpy[p]i[.]org\b"
    r"|\bpython[h]osted\b|\bdeb[.]debian[.]org\b|\bcrates[.]io/api\b|\bfa[r]m-[a-z]|\bissu[e]s show\b")
# Every match of FOREIGN_TEXT contains one of these; most files have none, and the search for a word is fast.
FOREIGN_WORDS = ("/work/", "/home/", "/root/", "/tmp/", "/mnt/", "registry.", "pypi.", "hosted", "deb.debian",
                 "crates.io", "farm-", "es show")
# What only base includes: the rest of the program asks its headers (thread.h, fs.h, os.h), so that another system is
# one more file of base.
POSIX = re.compile(r"(?:arpa|net|netinet|sys|linux)/|(?:unistd|pthread|fcntl|dirent|poll|sched|spawn|netdb|dlfcn|termios|"
                   r"syslog|pwd|grp|glob|ftw|semaphore)[.]h$")
BINARY = {".gguf", ".xz", ".png", ".bin", ".blocks", ".f32", ".safetensors", ".ico", ".woff2", ".gz"}

problems = []
allowed = []  # [rule, glob, reason, used]


def report(rule, path, line, text):
    for row in allowed:
        if row[0] == rule and fnmatch.fnmatch(path, row[1]):
            row[3] = True
            return
    problems.append((path, line, rule, text))


def read_table(name):
    for line in Path(name).read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            yield line


def blank(match):
    """Same number of lines and columns, nothing else."""
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(text):
    """C source without comments, and with string and character contents blanked."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    def replace(m):
        s = m.group(0)
        return blank(m) if s[0] == "/" else s[0] + re.sub(r"[^\n]", " ", s[1:-1]) + s[-1]
    return token.sub(replace, text)


def folder(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def check_folders(paths):
    """A folder of src that no longer fits on a screen is divided by topic."""
    for name, n in Counter(str(Path(p).parent) for p in paths if p.startswith("src/")).items():
        if n > MAX_FOLDER:
            report("folder", name, 1, f"{n} files, {MAX_FOLDER} at most")


def check_includes(path, text, layers, libraries):
    own = folder(path)
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not m:
            continue
        quote, name = m.groups()
        if quote == "<":
            if own != "base" and POSIX.match(name):
                report("posix", path, number, f"<{name}> is for base alone")
            for prefix, where in libraries:
                if name.startswith(prefix) and own not in where and path != "src/cli/cmd/cmd_doctor.c":
                    report("library", path, number, f"<{name}> belongs to {', '.join(where)}")
            continue
        if name == "chimere.h":
            if own not in ("api", "cli", "serve"):
                report("layer", path, number, "chimere.h is for the layers api and cli")
            continue
        other = name.split("/")[0]
        if "/" not in name or other not in layers:
            report("layer", path, number, f'"{name}": write it as "folder/file.h"')
        elif other != own and layers[other] >= layers[own]:
            report("layer", path, number,
                   f"{own} ({layers[own]}) may not include {other} ({layers[other]})")
        elif name.endswith("_impl.h") and other != own:
            report("layer", path, number, f"{name} belongs to {other} alone")


def check_calls(path, code):
    inside = path[len("src/"):]
    for rule, names in BANNED_CALLS.items():
        if any(inside.startswith(p) for p in BANNED_OUTSIDE[rule]):
            continue
        for name in names:
            call, _, arg = name.partition("(")
            if call not in code:
                continue
            pattern = rf"(?<![\w.>]){call}\s*\(" + (rf"\s*(?:[^;]*,\s*)?{arg}\b" if arg else "")
            for m in re.finditer(pattern, code):
                line = code.count("\n", 0, m.start()) + 1
                # a declaration or definition of that name is no call
                before = code[code.rfind("\n", 0, m.start()) + 1:m.start()]
                if not before.strip().startswith("#define"):
                    report(rule, path, line, f"{call} is not called here")


def functions(code):
    """(name, first line, lines) of each function body; relies on a brace in column 0 closing it."""
    lines = code.splitlines()
    start = None
    head = ""
    for i, line in enumerate(lines, 1):
        if start is None:
            if not line.strip() or line.startswith("#"):
                head = ""
                continue
            head += " " + line.strip()
            if line.rstrip().endswith("{"):
                m = re.search(r"(\w+)\s*\([^=]*\)\s*(?:__attribute__.*)?\{$", head.rstrip())
                one_liner = line.startswith("}")
                if not one_liner:
                    start, name = i, m.group(1) if m else None
                head = ""
            elif line.rstrip().endswith((";", "}", "\\")):
                head = ""
        elif line.startswith("}"):
            if name:
                yield name, start, i - start + 1
            start, head = None, ""


def prototypes(code):
    """(name, line) of each function declared or defined inline at file level of a header."""
    depth, at_line = 0, 1
    flat = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    flat = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", blank, flat)
    statement = ""
    begin = 1
    for c in flat:
        if c == "\n":
            at_line += 1
        if depth == 0 and c in ";{":
            m = re.search(r"(\w+)\s*\(", statement)
            typed = re.match(r"\s*(?:typedef|struct\s+\w*\s*$|enum|union\s+\w*\s*$)", statement)
            if m and not typed and "=" not in statement and "(*" not in statement[:m.end() + 1]:
                yield m.group(1), begin
            statement = ""
        elif depth == 0 and c == "}":
            statement = ""
        elif depth == 0:
            if not statement.strip():
                begin = at_line
            statement += c
        depth += (c == "{") - (c == "}")
        if c == "}" and depth == 0:
            statement = ""


def check_names(path, code):
    stem = Path(path).stem
    parts = stem.split("_")
    for part in parts:
        if part.lower() in BANNED_NAMES:
            report("name", path, 1, f"'{part}' says nothing; name what the file is about")
    if re.search(r"_(v[0-9]+|new|fast)$", stem):
        report("name", path, 1, "a variant is named after what differs")
    for name, line, n in functions(code):
        if n > MAX_FUNCTION:
            report("function", path, line, f"{name} has {n} lines, {MAX_FUNCTION} at most")
        if set(name.lower().split("_")) & BANNED_NAMES or BANNED_SUFFIX.search(name):
            report("name", path, line, f"function {name}: a name that says what it does")


def check_header(path, code, n_lines, extra_prefixes):
    if n_lines > MAX_HEADER:
        report("header", path, n_lines, f"{n_lines} lines, {MAX_HEADER} at most")
    declared = list(prototypes(code))
    if len(declared) > MAX_PROTOTYPES:
        report("functions", path, 1, f"{len(declared)} functions, {MAX_PROTOTYPES} at most")
    stem = Path(path).stem
    stem = stem[:-5] if stem.endswith("_impl") else stem
    prefixes = {stem + "_", stem.split("_")[0] + "_", folder(path) + "_"}
    prefixes |= extra_prefixes.get(path, set())
    for name, line in declared:
        if not name.startswith(tuple(prefixes)) and name != stem:
            report("prefix", path, line, f"{name}: expected one of {' '.join(sorted(prefixes))}")
    if not re.search(r"#ifndef CHIMERE_\w+_H\n#define CHIMERE_\w+_H", code):
        report("guard", path, 1, "expected an include guard CHIMERE_FOLDER_FILE_H")


# What a shell test may run without asking: POSIX tools and what building needs. The rest is named in `needs`.
OPTIONAL_PROGRAMS = ("curl", "node", "npm", "python3", "tmux", "xz", "cc", "c++", "cmake", "pkg-config", "setsid",
                     "ps", "pgrep", "pkill", "jq", "openssl", "unshare", "psql", "chromium")


def check_shell_test(path, text):
    """A test in test/cli skips by name if a program that it runs is missing: lib.sh, `needs`. What stands before a pipe
    writes to its end: `grep -q` ends at the first match, and then pipefail reports the writer, if it was slow."""
    needed = set(" ".join(re.findall(r"^ *needs (.+)$", text, re.M)).split())
    needed |= set(re.findall(r"command -v ([\w+-]+)", text))
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for name in OPTIONAL_PROGRAMS:
            command = r"(?:^|[;|&(`]|\b(?:then|do|if|while|exec|!)\s)\s*(?:\w+=\S* )*" + re.escape(name) + r"(?:\s|$)"
            if name not in needed and re.search(command, line):
                report("needs", path, number, f"runs {name}, which `needs` does not name")
        if re.search(r"(?:^|[^|])\|\s*grep -\w*q", line):
            report("pipe", path, number, "grep -q ends before all is written: grep TEXT >/dev/null reads on")


def read_words():
    """[(pattern, suggestion, exception or None)] of tools/words.txt, and the globs of the clean files."""
    rows = []
    for line in Path("tools/words.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, suggestion, *exception = (cell.strip() for cell in line.split("|"))
            compiled = re.compile(pattern.replace("%", "|"), re.I)
            rows.append((compiled, suggestion, re.compile(exception[0].replace("%", "|"), re.I) if exception else None))
    return rows, list(read_table("tools/words_clean.txt"))


def prose(path, text):
    """The English of a file on its own lines: Markdown without code, comments and help of C sources."""
    if path.endswith(".md"):
        return re.sub(r"```.*?```|~~~.*?~~~|`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->", blank, text, flags=re.S)
    kept = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
    out, end = "", 0
    for m in kept.finditer(text):
        string = m.group(0)[0] == '"'
        out += blank_text(text[end:m.start()])
        out += blank_text(m.group(0)) if string and "/cli/" not in path else m.group(0)
        end = m.end()
    return re.sub(r"^\s*\*", blank, out + blank_text(text[end:]), flags=re.M)


def blank_text(s):
    return re.sub(r"[^\n]", " ", s)


def check_words(path, text, words):
    rows, clean = words
    if not any(fnmatch.fnmatch(path, glob) for glob in clean):
        return
    body = prose(path, text)
    for pattern, suggestion, exception in rows:
        for m in pattern.finditer(body):
            around = re.sub(r"\s+", " ", body[max(0, m.start() - 40):m.end() + 40])
            if not (exception and exception.search(around)):
                report("english", path, body.count("\n", 0, m.start()) + 1,
                       f"'{' '.join(m.group(0).split())}': {suggestion} (docs/style.md)")


def check_glossary(path, text):
    """Every row of the glossary ends with a file that exists."""
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r"\|.*\| `([^`]+)` \|$", line)
        if m and not Path(m.group(1)).is_file():
            report("glossary", path, number, f"{m.group(1)} does not exist")


def main():
    words = read_words()
    extra_prefixes = {}
    for line in read_table("tools/allow.txt"):
        rule, glob, reason = line.split(None, 2)
        if rule == "prefix":
            extra_prefixes.setdefault(glob, set()).update(reason.split())
        else:
            allowed.append([rule, glob, reason, False])
    layers = {name: int(n) for name, n in (l.split() for l in read_table("tools/layers.txt"))}
    libraries = [(a.strip(), b.split()) for a, b in
                 (l.split(":") for l in read_table("tools/libraries.txt"))]
    tracked = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=True, text=True).stdout.split("\0")
    for path in tracked:
        if not path or not Path(path).is_file() or Path(path).suffix in BINARY:
            continue
        in_data = path.startswith(("test/data/", "test/fuzz/corpus/", "models/", "eval/"))
        raw = Path(path).read_bytes()
        if b"\0" in raw[:8192]:
            if not in_data:
                report("binary", path, 0, "expected text; a program that was built here?")
            continue
        text = raw.decode("utf-8", "replace")
        if not in_data and any(word in text for word in FOREIGN_WORDS):
            for m in FOREIGN_TEXT.finditer(text):
                report("words", path, text.count("\n", 0, m.start()) + 1,
                       f"'{m.group(0)}' belongs to a machine, not to the project")
        if path.startswith("test/cli/test_") and path.endswith(".sh"):
            check_shell_test(path, text)
        if path.endswith((".md", ".c", ".h", ".cu", ".cuh", ".inc")):
            check_words(path, text, words)
        if path == "docs/glossary.md":
            check_glossary(path, text)
        is_c = path.endswith((".c", ".h", ".cu", ".cuh", ".cc"))
        n_lines = text.count("\n")
        if n_lines > MAX_FILE and not in_data and path.endswith(
                (".c", ".h", ".cu", ".cuh", ".cc", ".py", ".sh", ".ts", ".tsx")):
            report("size", path, n_lines, f"{n_lines} lines, {MAX_FILE} at most")
        if not is_c or in_data:
            continue
        code = strip(text)
        check_names(path, code)
        if not folder(path):
            continue
        check_includes(path, text, layers, libraries)
        check_calls(path, code)
        if path.endswith(".h"):
            check_header(path, code, n_lines, extra_prefixes)
    check_folders(path for path in tracked if path and Path(path).is_file())
    for rule, glob, reason, used in allowed:
        if "--strict" in sys.argv and not used and rule != "format":
            problems.append(("tools/allow.txt", 1, "unused", f"{rule} {glob}"))
    for path, line, rule, text in sorted(problems):
        print(f"{path}:{line}: {rule}: {text}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
