#!/usr/bin/env bash
# recommend: table, JSON, the check against a model that is here; the server's route; short names in pull.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
model=$(dirname "$CHIMERE")/chimere-nano.gguf
[ -f "$model" ] || {
    echo "skip: recommend: no shipped model"
    exit 77
}
"$CHIMERE" recommend --device cpu --check "$model" --json >all.json
cat >read.py <<'END'
import json, sys
all = json.load(open(sys.argv[1]))
machine, models = all["machine"], all["models"]
assert machine["device"] == "cpu" and machine["memory_bytes"] > 0 and machine["cores"] > 0, machine
assert len({m["name"] for m in models}) == len(models) > 10
for m in models:
    assert m["fits"] == (m["n_ctx"] > 0), m
    assert not m["fits"] or m["prefill_tok_s"] > 0, m
    assert m["need_bytes"] > m["bytes"] and m["licence"] and m["good_at"] and m["name"] in m["command"], m
    assert m["fits"] or m["need_bytes"] > machine["memory_bytes"] - (256 << 20), m
assert all["best"] is None or all["best"] in {m["name"] for m in models}
for c in all["checks"]:
    assert c["decode_predicted"] > 0 and c["decode_measured"] > 0, c
    assert abs(c["decode_predicted"] / c["decode_measured"] - 1 - c["decode_error"]) < 0.01, c
print(len(all["checks"]))
END
[ "$(python3 read.py all.json)" = 1 ] || fail "no check"
"$CHIMERE" recommend --device cpu --all --check "$model" >table
grep -q '^qwen3.5-35b .*Apache-2.0' table || fail "$(cat table)"
grep -q '^check: chimere-nano.gguf: decode' table || fail "$(cat table)"
refuses 1 'no-such.gguf' "$CHIMERE" recommend --device cpu --check no-such.gguf

# Short names mean the hub, which is not asked here.
export HF_HUB_OFFLINE=1 XDG_DATA_HOME=$work/data HF_HOME=$work/hf
refuses 1 'unsloth/Qwen3.5-4B-GGUF: not on this machine' "$CHIMERE" pull qwen3.5-4b
refuses 1 'unsloth/Qwen3.5-4B-GGUF: not on this machine' "$CHIMERE" run -m qwen3.5-4b hello
refuses 2 'hf:OWNER/REPO' "$CHIMERE" pull qwen3.5-5b

# A model that does not fit: the refusal names one that does, if any does.
"$CHIMERE" synth qwen35moe-35b q8 big.gguf --hollow >/dev/null
status=0
(ulimit -v unlimited; "$CHIMERE" serve -m big.gguf --port 0 --ctx 100000000 >out 2>err) || status=$?
[ $status = 1 ] && grep -q 'does not fit' err || fail "a model too large is served: $(cat err)"
grep -q 'a model that fits here: chimere serve -m' err || fail "no model that fits is named: $(cat err)"

"$CHIMERE" serve -m nano --port 0 -q >server.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 1200); do grep -q http:// server.log && break || sleep 0.1; done
url=$(sed -n 's/.*\(http:[^ ]*\).*/\1/p' server.log | head -n 1)
python3 -c 'import sys, urllib.request as u; open("route.json", "wb").write(u.urlopen(sys.argv[1] + "/chimere/v1/recommend", timeout=300).read())' "$url"
[ "$(python3 read.py route.json)" = 0 ] || fail "the route"
