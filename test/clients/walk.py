#!/usr/bin/env python3
"""walk.py [openai|anthropic]...: walks through every resource of the Python packages that `chimere serve` has, and through
every helper of theirs, against a server on loopback. Prints a row of docs/compatibility.md for each package. A package that
is not installed is skipped by name. CHIMERE is the program (default: build/release/chimere)."""
import datetime
import importlib
import os
import pathlib
import re
import subprocess
import sys
import traceback

MODEL = "chimere-nano"


def start():
    root = pathlib.Path(__file__).resolve().parents[2]
    program = os.environ.get("CHIMERE", str(root / "build" / "release" / "chimere"))
    nano = str(pathlib.Path(program).parent / "chimere-nano.gguf")
    server = subprocess.Popen([program, "serve", "-m", "nano", "--port", "0", "-q", "--no-odo", "--no-keys", "--ctx", "8192",
                               "--embedding-model", nano], stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    found = re.search(r"http://[0-9.:]+", line)
    if not found:
        sys.exit(f"the server did not start: {line}")
    return server, found.group(0)


def main():
    names = sys.argv[1:] or ["openai", "anthropic"]
    server, url = start()
    failed = 0
    try:
        for name in names:
            try:
                package = importlib.import_module(name)
            except ImportError:
                print(f"skip: {name}-python: pip install {name}")
                continue
            steps = importlib.import_module(f"walk_{name}").steps(url)
            bad = []
            for step in steps:
                try:
                    step()
                except Exception:  # every step is tried
                    bad.append(step.__name__)
                    print(f"{name}: {step.__name__}\n{traceback.format_exc(limit=-3)}", file=sys.stderr)
            failed += len(bad)
            result = "ok" if not bad else f"failed: {', '.join(bad)}"
            print(f"| {name}-python | {package.__version__} | {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d} | "
                  f"{len(steps)} steps: {result} |")
    finally:
        server.terminate()
        server.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    sys.exit(main())
