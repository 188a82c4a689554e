#!/usr/bin/env bash
# tiers: a model larger than its memory answers the same, within that memory; bench's counters are those of the
# simulator in lab/ on the same record; what cannot work is refused in a sentence.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

"$CHIMERE" synth qwen35moe-mini q4km m.gguf --layers 8 >/dev/null
for i in $(seq 12); do echo "The $i cats sat on $((i * 7)) mats; none of them moved, and the dog slept."; done >text

# the least memory that it says it needs, and some more
refuses 1 "does not fit: 1 sequence of 1024 tokens needs" "$CHIMERE" run -m m.gguf -c 1024 --ram 60M -p x -q
grep -q 'smaller --ctx' err || fail "no hint: $(cat err)"

# the plan without loading: a pool where memory is short, none where it is not, the same refusal
"$CHIMERE" inspect m.gguf --memory -c 1024 --ram 256M >short
"$CHIMERE" inspect m.gguf --memory -c 1024 --ram 4G >wide
grep -q 'disk' short || fail "no experts on disk: $(cat short)"
! grep -q 'disk' wide || fail "experts on disk: $(cat wide)"
refuses 1 "does not fit: 1 sequence of 1024 tokens needs" "$CHIMERE" inspect m.gguf --memory -c 1024 --ram 60M
refuses 2 "vram needs a GPU" "$CHIMERE" inspect m.gguf --memory --vram 4G
"$CHIMERE" inspect m.gguf --memory -c 1024 --ram 256M --json | python3 -c '
import json, sys
tiers = json.load(sys.stdin)["memory"]["experts"]
assert tiers["device"] == 0 and tiers["memory"] > 0 and tiers["disk"] > 0, tiers' || fail "plan as JSON"

# a type that the processor keeps in a wider form: both plans count that
"$CHIMERE" synth qwen35moe-mini q8 dense.gguf --layers 1 --experts 2 --vocab 512 >/dev/null
"$CHIMERE" quantize dense.gguf wide.gguf IQ2_KL --pure -q >/dev/null
refuses 1 "does not fit" "$CHIMERE" run -m wide.gguf -c 1024 --ram 20M -p x -q
cp err wanted
refuses 1 "does not fit" "$CHIMERE" inspect wide.gguf --memory -c 1024 --ram 20M
cmp -s wanted err || fail "two plans of one model: $(cat wanted err)"

# peak FILE RAM: the answer to FILE, and that the process never had more than RAM
answer() {
    python3 - "$CHIMERE" "$@" <<'END' || fail "run with $*"
import json, resource, subprocess, sys
chimere, out, *more = sys.argv[1:]
run = subprocess.run([chimere, "run", "-m", "m.gguf", "-c", "1024", "--raw", "-f", "text", "--ignore-eos", "-q", "-n",
                      "40", "--json", "--temp", "0", "-t", "2", "--no-speculate", *more], capture_output=True, text=True)
assert run.returncode == 0, run.stderr
answer = json.loads(run.stdout)
assert answer["n_generated"] == 40, answer
open(out, "w").write(answer["content"])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
print("%s: peak %.1f MB" % (" ".join(more) or "all in memory", peak))
if "--ram" in more:
    most = float(more[more.index("--ram") + 1].rstrip("M"))
    assert peak <= most, "peak of %.1f MB" % peak
END
}
answer all
for ram in 256M 280M 330M; do
    answer some --ram $ram
    cmp -s all some || fail "--ram $ram: another answer"
done

# commands that measure texts place experts in the same way
"$CHIMERE" logits -m m.gguf --tokens 5,6,7,8 --all -q >all
"$CHIMERE" logits -m m.gguf --tokens 5,6,7,8 --all -q --ram 380M >some
cmp -s all some || fail "logits with --ram 380M differ"
"$CHIMERE" logits -m m.gguf --tokens 5,6,7,8 -q --ram 270M >some
tail -c "$(stat -c %s some)" all | cmp -s - some || fail "logits with --ram 270M differ"
"$CHIMERE" perplexity -m m.gguf -f text --ctx 64 --chunks 2 -q | grep -v scored >all
"$CHIMERE" perplexity -m m.gguf -f text --ctx 64 --chunks 2 -q --ram 380M | grep -v scored >some
cmp -s all some || fail "perplexity with --ram 380M: $(cat all some)"
refuses 1 "does not fit" "$CHIMERE" perplexity -m m.gguf -f text --ctx 64 -q --ram 60M
grep -q "8 sequences of 64 tokens need" err || fail "expected the context that is needed, got $(cat err)"

# as do those that record what a text does in the model; those that need all weights say so
"$CHIMERE" trace -m m.gguf -f text -n 8 -o all -q >/dev/null
"$CHIMERE" trace -m m.gguf -f text -n 8 -o some -q --ram 380M >/dev/null
cmp -s all some || fail "trace with --ram 380M differs"
"$CHIMERE" taps -m m.gguf -f text -c 256 -o all.taps -q >/dev/null
"$CHIMERE" taps -m m.gguf -f text -c 256 -o some.taps -q --ram 380M >/dev/null
diff -r all.taps some.taps >&2 || fail "taps with --ram 380M differ"
refuses 1 "m.gguf: needs all its weights in memory here, 318.7 MiB, and --ram allows 256.0 MiB" \
    "$CHIMERE" imatrix -m m.gguf -f text --ctx 64 -o matrix -q --ram 256M
[ ! -e matrix ] || fail "a matrix in spite of --ram"
"$CHIMERE" imatrix -m m.gguf -f text --ctx 64 --chunks 1 -o matrix -q --ram 4G >/dev/null

# bench: hits and misses against the simulator, which reads the same stream; the first 128 tokens warm up
"$CHIMERE" trace -m m.gguf --generate 256 --seed 3 -o stream >/dev/null
"$CHIMERE" bench -m m.gguf --ram 270M --routing stream -p 0 -n 128 -r 1 --bandwidth 10 -q --json >got
slots=$(python3 -c 'import json; t = json.load(open("got"))[0]["tier"]; print(t["slots"] // 8)')
"$SOURCE_DIR/lab/tier_sim.py" stream --policy lru,decayed,best --slots "$slots" --skip 128 --json >simulated
python3 - <<'END' || fail "bench differs from the simulator"
import json
tier = json.load(open("got"))[0]["tier"]
row = json.load(open("simulated"))[0]
rate = {p: row[p][0] / sum(row[p]) for p in ("lru", "decayed", "best")}
print("hit rate %.4f, simulated %s, %.2f misses per layer" % (tier["hit_rate"], rate, tier["misses_per_layer"]))
assert tier["hits"] + tier["misses"] == sum(row["decayed"]) == 128 * 8 * 8
assert abs(tier["hit_rate"] - rate["decayed"]) < 0.01
assert tier["hit_rate"] > rate["lru"] - 0.02
assert 0.3 < tier["hit_rate"] < rate["best"] + 0.001
assert tier["read_bytes"] > 0 and 0 < tier["waiting"] < 1
END

# the server's metrics: the ratios are those of the counters
trap 'stop_server; rm -rf "$work"' EXIT
start_server -m m.gguf --ram 330M -c 1024
curl -sS -m 200 "$url/v1/completions" -d '{"prompt": "The cats", "max_tokens": 8}' >completed
curl -sS -m 100 "$url/metrics" | grep '^chimere_expert.*model="m"' >metrics || fail "no metrics of experts: $(cat completed)"
stop_server
python3 - <<'END' || fail "metrics: $(cat metrics)"
import re
rows = [re.match(r'chimere_(\w+){model="([^"]*)"(.*)} (\S+)$', line) for line in open("metrics")]
x = {m[1]: float(m[4]) for m in rows}
near = lambda a, b: abs(a - b) <= 1e-6 * abs(b)
assert x["expert_misses"] > 0 and x["expert_passes"] >= 8 and 0 < x["experts_pooled"] < x["experts"], x
assert near(x["expert_hit_ratio"], x["expert_hits"] / (x["expert_hits"] + x["expert_misses"]))
assert near(x["expert_misses_per_pass"], x["expert_misses"] / x["expert_passes"])
assert near(x["expert_link_bytes_per_s"], x["expert_read_bytes"] / x["expert_read_ms"] * 1000)
assert [m[3] for m in rows if m[1] == "expert_link_bytes_per_s"] == [',link="disk"']
END

# a record of a text: as many tokens as the text has; it is read again, and refused by another shape
"$CHIMERE" trace -m m.gguf -f text -n 5 -o record -q >out
n=$("$CHIMERE" tokenize -m m.gguf <text | tr -s ' ,' '\n\n' | grep -c .)
[ "$(cat out)" = "record: $((n + 5)) tokens" ] || fail "trace said: $(cat out), the text has $n tokens"
"$CHIMERE" bench -m m.gguf --routing record -p 0 -n 4 -r 1 --bandwidth 10 -q >out || fail "bench with a record"
"$CHIMERE" synth qwen35moe-mini q8 other.gguf --layers 4 --experts 32 --vocab 512 >/dev/null
refuses 2 "record: expected 4 layers with 8 of 32 experts per token, got 8 with 8 of 64" \
    "$CHIMERE" bench -m other.gguf --routing record -p 0 -n 4 -r 1 --bandwidth 10 -q
head -c 1000 record >cut
refuses 1 "cut: expected whole batches of tokens" \
    "$CHIMERE" bench -m m.gguf --routing cut -p 0 -n 4 -r 1 --bandwidth 10 -q
"$CHIMERE" synth mamba-mini q8 dense.gguf --layers 2 --vocab 512 >/dev/null
refuses 2 "has no experts" "$CHIMERE" bench -m dense.gguf --routing trace-like -p 0 -n 4 -r 1 --bandwidth 10 -q
refuses 2 "expected one of --file and --generate" "$CHIMERE" trace -m m.gguf -o x
refuses 2 "--out is missing" "$CHIMERE" trace -m m.gguf -f text
echo "tiers: ok"
