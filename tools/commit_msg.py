#!/usr/bin/env python3
"""Checks commit messages: `area: imperative subject` of at most 72 columns, a blank line, a body
wrapped at 72.

    tools/commit_msg.py FILE           one message, as git's commit-msg hook passes it
    tools/commit_msg.py --since BRANCH every commit since the merge base with BRANCH, if it exists
"""
import re
import subprocess
import sys

WIDTH = 72
SUBJECT = re.compile(r"^(?:Revert \"|fixup! |squash! )|^[a-z0-9_./-]+(?:, [a-z0-9_./-]+)*: (\S+)")
# Endings and words by which a subject shows that it does not begin with an imperative.
NOT_IMPERATIVE = re.compile(r"^(?:the|an?|more|all|every|each|some|one|what|when|where|that|this|it|now|"
                            r"\w+ing|(?!need|feed|seed|embed|speed|exceed|proceed|succeed|shed|shred)\w+ed)$", re.I)
FREE = re.compile(r"^(?:    |\t|> |[A-Za-z-]+-by: )|\S{60,}")  # quoted output, trailers, long names


def faults(message):
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        return ["the message is empty"]
    found = []
    subject = SUBJECT.match(lines[0])
    if not subject:
        found.append("the subject is not `area: imperative`")
    elif subject.group(1) and NOT_IMPERATIVE.match(subject.group(1)):
        found.append(f"'{subject.group(1)}' is not an imperative")
    if len(lines[0]) > WIDTH:
        found.append(f"the subject has {len(lines[0])} characters, {WIDTH} at most")
    if lines[0].endswith("."):
        found.append("the subject ends with a full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line is not blank")
    for number, line in enumerate(lines[2:], 3):
        if len(line) > WIDTH and not FREE.search(line):
            found.append(f"line {number} has {len(line)} characters, {WIDTH} at most")
    return found


def git(*args):
    done = subprocess.run(["git", *args], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def messages(args):
    if args[0] != "--since":
        with open(args[0], encoding="utf-8") as f:
            yield args[0], f.read()
        return
    base = git("merge-base", "HEAD", args[1])
    if base:
        for commit in git("rev-list", "--no-merges", f"{base}..HEAD").split():
            yield commit[:10], git("log", "-1", "--format=%B", commit)


def main():
    args = sys.argv[1:]
    if not args or len(args) != (2 if args[0] == "--since" else 1):
        print(__doc__, file=sys.stderr)
        return 2
    status = 0
    for name, message in messages(args):
        for fault in faults(message):
            print(f"{name}: {fault}: {message.splitlines()[0] if message else ''}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
