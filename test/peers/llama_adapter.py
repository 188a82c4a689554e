#!/usr/bin/env python3
"""Compares what an adapter changes here and in llama.cpp, token by token.

llama_adapter.py CHIMERE ORACLE MODEL ADAPTER SCALE < TEXT

The text is evaluated with and without the adapter, by `chimere serve` and by llama_oracle. One line is printed: the
tokens, the mean change of the log-probability in both programs, and the correlation of the changes. It fails if the
changes do not agree."""

import json
import os
import re
import subprocess
import sys
import urllib.request

chimere, oracle, model, adapter, scale = sys.argv[1:]
text = sys.stdin.read()


def ours(*options):
    server = subprocess.Popen([chimere, "serve", "-m", model, "-t", "1", "--port", "0", "--no-odo", "-q", "--parallel", "1",
                               "--ctx", "1024", *options], stdout=subprocess.PIPE, text=True)
    try:
        url = next(m[1] for m in (re.search(r"listens on (http:\S+)", line) for line in server.stdout) if m)
        ask = {"prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(ask).encode())
        odds = json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["logprobs"]
        return odds["token_logprobs"]
    finally:
        server.terminate()
        server.wait()


def theirs(ids, **env):
    said = subprocess.run([oracle, "odds", model], input="\n".join(ids), env={**os.environ, **env}, check=True,
                          capture_output=True, text=True).stdout
    return [float(x) for x in said.split()]


def mean(v):
    return sum(v) / len(v)


def correlation(a, b):
    ma, mb = mean(a), mean(b)
    cov = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    return cov / (sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b)) ** 0.5


said = subprocess.run([chimere, "tokenize", "-m", model, "--bos"], input=text, check=True, capture_output=True, text=True).stdout
ids = re.findall(r"\d+", said)
here = [ours(), ours("--lora", f"{adapter}:{scale}")]
n = len(ids) - 1
here = [v[1:n + 1] for v in here]
there = [theirs(ids), theirs(ids, LLAMA_ADAPTER=adapter, LLAMA_ADAPTER_SCALE=scale)]
assert all(len(v) == n for v in here + there), (n, [len(v) for v in here + there])
plain = mean([abs(a - b) for a, b in zip(here[0], there[0])])
changes = [[b - a for a, b in zip(*v)] for v in (here, there)]
r = correlation(*changes)
print(f"{n} tokens: the adapter changes log-probabilities by {mean([abs(x) for x in changes[0]]):.4f} here and "
      f"{mean([abs(x) for x in changes[1]]):.4f} in llama.cpp, correlation {r:.4f}; without it, they differ by {plain:.4f}")
assert r > 0.95, r
