#!/usr/bin/env bash
# night_switch: a running server uses what a night promoted, and stops using it after a rollback, without a restart.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
night() { "$CHIMERE" night "$@" --night-dir nights; }
# said_ COUNT TEXT: the server has said this so many times, within two minutes.
said_() {
    for ((i = 0; i < 600; i++)); do
        [ "$(grep -cF -- "$2" said)" -lt "$1" ] || return 0
        kill -0 "$server" || fail "the server ended: $(tail -5 said)"
        sleep 0.2
    done
    fail "not within the time: $2: $(tail -20 said)"
}
start() {
    : >said
    start_server --db day.db --no-odo --night --night-dir nights --state-dir state --log-level info
}
# ask QUESTION: writes the text to answer, the header to head; prints the night, 0 if none
ask() {
    curl -sf -m 120 -D head "$url/v1/chat/completions" -d "{\"temperature\":0,\"max_tokens\":24,\"messages\":[{\"role\":\"user\",\"content\":\"$1\"}]}" >answer ||
        fail "ask: $(cat answer said)"
    sed -n 's/^x-night: *\([0-9]*\).*/\1/ip' head | grep . || echo 0
}
cached() { python3 -c 'import json; print(json.load(open("answer"))["usage"]["prompt_tokens_details"]["cached_tokens"])'; }

answered_day
night schedule lora=off engram=off >/dev/null
question='Where does Miravik live?'
long=$(printf 'Line %d of a letter to a friend far away. ' {1..12})
start
[ "$(ask "$question")" = 0 ] || fail "a night before any: $(cat head)"
! grep -q Venn answer || fail "known before it was learned: $(cat answer)"
ask "$long" >before
cp answer first
ask "$long" >before
kept=$(cached)
[ "$kept" -gt 64 ] || fail "no state was kept: $(cat answer)"

# a table does not change states: the state of before is used, with the table
night run -m nano --db day.db -q -n 1 --steps engram >ran || fail "night: $(cat ran)"
said_ 1 'requests use the files of night 1 now'
[ "$(ask "$question")" = 1 ] || fail "night 1 is not in use: $(cat head)"
grep -q Venn answer || fail "what was learned is not used: $(cat answer)"
[ "$(ask "$long")" = 1 ] || fail "a long question: $(cat head)"
[ "$(cached)" -ge "$kept" ] || fail "a state of before the switch is not used: $(cat answer)"

# an adapter changes states: those of before are not used with it, and are used again after the rollback
python3 - <<'PY'
import hashlib, json, random, struct

def text(s):
    return struct.pack("<Q", len(s)) + s.encode()

def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value

random.seed(4)
n_in, rank, n_out = 512, 2, 256  # blk.0.ssm_out of nano
keys = [key("general.type", 8, text("adapter")), key("adapter.type", 8, text("lora")),
        key("general.architecture", 8, text("qwen35moe")), key("adapter.lora.alpha", 6, struct.pack("<f", rank))]
infos, data = b"", b""
for name, shape in (("lora_a", (n_in, rank)), ("lora_b", (rank, n_out))):
    infos += text("blk.0.ssm_out.weight." + name) + struct.pack("<IQQIQ", 2, *shape, 0, len(data))
    data += struct.pack(f"<{shape[0] * shape[1]}f", *(random.gauss(0, 0.05) for _ in range(shape[0] * shape[1])))
head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(keys)) + b"".join(keys) + infos
bytes_ = head + b"\0" * (-len(head) % 32) + data
sha = hashlib.sha256(bytes_).hexdigest()
open("nights/objects/" + sha, "wb").write(bytes_)
record = json.load(open("nights/nights/000001.json"))
record["artefacts"]["adapter.gguf"] = sha
record["night"], record["parent"] = 2, 1
json.dump(record, open("nights/nights/000002.json", "w"))
record["artefacts"]["adapter.gguf"] = record["artefacts"]["night.engram"]  # is no adapter
record["night"], record["parent"] = 3, 2
json.dump(record, open("nights/nights/000003.json", "w"))
PY
night rollback 2 >/dev/null
said_ 1 'requests use the files of night 2 now'
[ "$(ask "$long")" = 2 ] || fail "night 2 is not in use: $(cat head)"
[ "$(cached)" = 0 ] || fail "a state of another adapter was used: $(cat answer)"
night rollback 1 >/dev/null
said_ 2 'requests use the files of night 1 now'
[ "$(ask "$long")" = 1 ] || fail "a long question: $(cat head)"
[ "$(cached)" -ge "$kept" ] || fail "a state of before the adapter is not used again: $(cat answer)"

# files that cannot be used do not replace those in use
night rollback 3 >/dev/null
said_ 1 'nights: '
[ "$(ask "$question")" = 1 ] || fail "after a night that cannot be opened: $(cat head)"
night rollback 0 >/dev/null
said_ 1 'requests use the model without files of a night now'
[ "$(ask "$question")" = 0 ] || fail "after rollback: $(cat head)"
! grep -q Venn answer || fail "known after rollback: $(cat answer)"

# the next server begins with the files of the current night
night rollback 1 >/dev/null
stop_server
start
[ "$(ask "$question")" = 1 ] || fail "after a restart: $(cat head)"
grep -q Venn answer || fail "after a restart: $(cat answer)"
