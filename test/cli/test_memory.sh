#!/usr/bin/env bash
# memory: what a run takes at its peak lies within the file and the printed plan; what does not fit is
# refused with the numbers before anything is taken.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

# peak MODEL CTX: fills the whole context, and compares the peak with the file and the plan
peak() {
    python3 - "$CHIMERE" "$@" <<'END' || fail "memory of $1"
import json, resource, subprocess, sys
chimere, model, ctx = sys.argv[1:]
plan = json.loads(subprocess.run([chimere, "inspect", model, "--memory", "--json", "-c", ctx],
                                 capture_output=True, check=True).stdout)
out = subprocess.run([chimere, "run", "-m", model, "-c", ctx, "--raw", "-f", "text", "--ignore-eos", "-q",
                      "--json", "-t", "2"], capture_output=True, check=True).stdout
used = json.loads(out)
assert used["n_prompt"] + used["n_generated"] >= int(ctx) - 1, used
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
total = plan["file_bytes"] + plan["memory"]["total"]
print("%s: peak %.1f MiB, file and plan %.1f MiB" % (model, peak / 2**20, total / 2**20))
assert peak <= 1.05 * total
assert peak > 0.5 * total  # a plan that promises anything is no plan
END
}

for i in $(seq 20); do echo "The $i cats sat on $((i * 7)) mats; none of them moved, and the dog slept."; done >text
cp "$(dirname "$CHIMERE")/chimere-nano.gguf" nano.gguf
"$CHIMERE" synth qwen35moe-mini q4km synth.gguf --layers 4 --experts 8 --vocab 4096 >/dev/null
peak nano.gguf 2048
peak synth.gguf 1088

refuses 1 "does not fit: 1 sequence of 800000000 tokens needs" \
    "$CHIMERE" run -m nano.gguf -p hello -c 800000000
grep -q 'may be used' err || fail "no numbers: $(cat err)"
grep -q 'smaller --ctx' err || fail "no hint: $(cat err)"

# bench plans too: 256 sequences of a million tokens, all at once, are refused before anything is allocated
refuses 1 "does not fit: 256 sequences of 1000064 tokens need" \
    "$CHIMERE" bench -m nano.gguf -p 1000000 -n 8 --parallel 256 -r 1 -q
grep -q 'may be used' err || fail "no numbers: $(cat err)"
echo "memory: ok"
