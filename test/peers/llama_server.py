#!/usr/bin/env python3
"""Runs llama.cpp's own server tests against `chimere serve`, and marks each of them.

usage: test/peers/llama_server.py [--folder DIR] [--files NAMES] [--doc FILE] [--only EXPRESSION]

The tests are Python files in the git bundle of the npm package node-llama-cpp, which is fetched once into DIR. None of
their code is here: llama_server_utils.py stands in for their module `utils`, llama_server_marks.tsv says which failures
come from the test model and which are decisions of ours. What fails and is in no row there is missing. --doc writes the
table into FILE (docs/compatibility.md). Needs npm, git and the packages pytest, requests, openai, anthropic, numpy."""
import argparse
import collections
import datetime
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILES = ("chat_completion completion template infill embedding rerank tool_call slot_save security compat_anthropic "
         "compat_oai_responses basic tokenize stream metrics ignore_eos lora speculative ctx_shift").split()
MARKS = ["passed", "model", "decision", "missing"]
BEGIN, END = "<!-- llama_server.py: begin -->", "<!-- llama_server.py: end -->"


def skip(why):
    print(f"skip: llama.cpp's server tests: {why}")
    sys.exit(77)


def fetch(folder):
    """The checked-out tests, and the version of the package."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = sorted(folder.glob("node-llama-cpp-*.tgz"))
    if not packed:
        try:
            subprocess.run(["npm", "pack", "--silent", "node-llama-cpp"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            skip("npm cannot fetch node-llama-cpp")
        packed = sorted(folder.glob("node-llama-cpp-*.tgz"))
    version = re.search(r"cpp-(.*)\.tgz", packed[-1].name).group(1)
    tree, bundle = folder / f"tests-{version}", folder / f"{version}.bundle"
    if not tree.exists():
        with tarfile.open(packed[-1]) as tar:
            member = next(m for m in tar if m.name.endswith("gitRelease.bundle"))
            bundle.write_bytes(tar.extractfile(member).read())
        subprocess.run(["git", "clone", "-q", str(bundle), str(tree)], check=True, stderr=subprocess.DEVNULL)
    return tree / "tools" / "server" / "tests", version


def make_reranker(build, folder):
    """A cross-encoder that knows the words of their documents (tiny_rerank.c)."""
    out = folder / "rerank.gguf"
    subprocess.run(["cmake", "--build", str(build), "--target", "tiny_rerank"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(build / "test" / "tiny_rerank"), str(out)], check=True)
    return out


def run(tests, names, only, program, reranker):
    """Of each test its outcome, failing line and text."""
    results = {}
    for name in names:
        out = tests / "results.json"
        out.unlink(missing_ok=True)
        (tests / "tmp").mkdir(exist_ok=True)
        environment = {**os.environ, "CHIMERE": str(program), "RERANKER": str(reranker), "LLAMA_SERVER_RESULTS": str(out),
                       "PYTHONPATH": f"{HERE}{os.pathsep}{tests}"}
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "llama_server_plugin", "-p", "no:cacheprovider",
                   "-m", "not slow", f"unit/test_{name}.py", *(["-k", only] if only else [])]
        subprocess.run(command, cwd=tests, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=3600)
        if out.exists():
            results[name] = {k.split("::")[-1] if "::" in k else k: v for k, v in json.loads(out.read_text()).items()}
        print(f"{name}: {collections.Counter(v['outcome'] for v in results.get(name, {}).values())}", flush=True)
    return results


def read_marks():
    """Rows FILE TEST LINE MARK REASON: regular expressions for the first three."""
    rows = []
    for line in (HERE / "llama_server_marks.tsv").read_text().splitlines():
        if line and not line.startswith("#"):
            cells = [c for c in line.split("\t") if c]
            rows.append([re.compile(c) for c in cells[:3]] + cells[3:])
    return rows


def mark(rows, file, test, result):
    if result["outcome"] == "passed":
        return "passed", ""
    where = f"{result['line']} | {result['text']}"
    for f, t, pattern, kind, reason in rows:
        if f.fullmatch(file) and t.match(test) and pattern.search(where):
            return kind, reason
    return "missing", ""


def clean(text):
    return text.replace("|", "\\|").replace("<", "&lt;")[:110]


def table(marked, version):
    out = [BEGIN, f"node-llama-cpp {version}, {datetime.date.today()}, by `test/peers/llama_server.py --doc docs/compatibility.md`. The test model is "
           "chimere-nano; for reranking, a cross-encoder made of the words of their documents. *Model*: the test expects words, scores, token counts or the fingerprint of its own model. *Decision*: this server does it "
           "another way, for the reason given. Tests that need a download or are marked slow there are not run.", "",
           "| Tests | Passed | Model | Decision | Missing |", "|---|---|---|---|---|"]
    for file, tests in marked.items():
        n = collections.Counter(m for m, *_ in tests.values())
        out.append(f"| {file} | " + " | ".join(str(n[m]) for m in MARKS) + " |")
    total = collections.Counter(m for tests in marked.values() for m, *_ in tests.values())
    out += ["| all | " + " | ".join(str(total[m]) for m in MARKS) + " |", "",
            "| Test | n | Mark | Failing assertion | Reason |", "|---|---|---|---|---|"]
    for file, tests in marked.items():
        groups = collections.Counter()
        for test, (kind, reason, line) in tests.items():
            if kind != "passed":
                groups[(test.split("[")[0], kind, line, reason)] += 1
        for (test, kind, line, reason), n in groups.items():
            out.append(f"| {file}: {test.removeprefix('test_')} | {n} | {kind} | `{clean(line)}` | {reason} |")
    return "\n".join(out + [END])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "llama_server")
    p.add_argument("--files", default=",".join(FILES))
    p.add_argument("--only")
    p.add_argument("--doc", type=pathlib.Path)
    p.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "release" / "chimere")
    a = p.parse_args()
    for name in ("pytest", "requests", "openai", "anthropic", "numpy"):
        if not importlib.util.find_spec(name):
            skip(f"the package {name} is not there; pip install {name}")
    tests, version = fetch(a.folder)
    reranker = make_reranker(a.program.resolve().parent, a.folder.resolve())
    results, rows, marked = run(tests, a.files.split(","), a.only, a.program.resolve(), reranker), read_marks(), {}
    for file, of_file in results.items():
        marked[file] = {}
        for test, result in of_file.items():
            if result["outcome"] == "skipped":
                continue
            kind, reason = mark(rows, file, test, result)
            marked[file][test] = (kind, reason, result["line"] or result["text"])
            if kind == "missing":
                print(f"missing: {file} {test}: {result['line']} | {result['text']}")
    text = table(marked, version)
    if a.doc:
        doc = a.doc.read_text()
        a.doc.write_text(doc[:doc.index(BEGIN)] + text + doc[doc.index(END) + len(END):])
    n_missing = sum(m == "missing" for tests in marked.values() for m, *_ in tests.values())
    print(f"missing: {n_missing}")
    return 1 if n_missing else 0


if __name__ == "__main__":
    sys.exit(main())
