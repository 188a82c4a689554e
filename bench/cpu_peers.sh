#!/usr/bin/env bash
# bench/cpu_peers.sh MODEL NAME=COMMAND...: chimere beside other engines on the same cores, in interleaved rounds.
#
# COMMAND is a peer's llama-bench with its options, such as ik="build/bin/llama-bench -rtr 1". Each round runs every
# engine once: prefill of 256 and 512 tokens and decoding of 64. Printed are the medians of the rounds in tokens per
# second, and chimere's ratio to each peer as the median of the rounds' ratios. ISA (default best), THREADS (2),
# CORES (a list for taskset, default 0-1), ROUNDS (7) and CHIMERE may be set.
set -euo pipefail
cd "$(dirname "$0")/.."
model=$1
shift
export CHIMERE=${CHIMERE:-build/release/chimere} ISA=${ISA:-best} THREADS=${THREADS:-2} CORES=${CORES:-0-1} ROUNDS=${ROUNDS:-7}
exec python3 - "$model" "$@" <<'END'
import json, os, shlex, statistics, subprocess, sys

env = os.environ
model, peers = sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:])
tests = [("prefill 256", 256, 0), ("prefill 512", 512, 0), ("decode 64", 0, 64)]


def output(command):
    done = subprocess.run(["taskset", "-c", env["CORES"]] + command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout) if done.returncode == 0 else []


def chimere():
    speeds = {}
    for name, prompt, gen in tests:
        rows = output([env["CHIMERE"], "bench", "-m", model, "-t", env["THREADS"], "--isa", env["ISA"], "--device", "cpu",
                       "-p", str(prompt), "-n", str(gen), "-r", "1", "--bandwidth", "10", "--json"])
        speeds.update({name: row["tok_s"] for row in rows})
    return speeds


def llama_bench(command):
    rows = output(shlex.split(command) + ["-m", model, "-t", env["THREADS"], "-p", "256,512", "-n", "64", "-r", "1",
                                          "-ngl", "0", "-o", "json"])
    return {name: row["avg_ts"] for row in rows for name, p, n in tests if (row["n_prompt"], row["n_gen"]) == (p, n)}


rounds = []
for _ in range(int(env["ROUNDS"])):
    rounds.append({"chimere": chimere(), **{name: llama_bench(command) for name, command in peers.items()}})
print(f"{os.path.basename(model)}, {env['THREADS']} threads, {env['ISA']}, medians of {len(rounds)} rounds")
for test, _, _ in tests:
    line = f"  {test:12}"
    for engine in rounds[0]:
        speeds = [r[engine][test] for r in rounds if test in r[engine]]
        line += f"  {engine} " + (f"{statistics.median(speeds):.1f}" if speeds else "failed")
        if engine != "chimere" and speeds:
            line += f" (x{statistics.median(r['chimere'][test] / r[engine][test] for r in rounds if test in r[engine]):.2f})"
    print(line, flush=True)
END
