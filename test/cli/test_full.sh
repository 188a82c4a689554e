#!/usr/bin/env bash
# A disk that is full or breaks at any write, sync or rename (test/faults/full.c): no command leaves half a file under its
# final name, each says a sentence, none crashes, and what was acknowledged before is still there.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl node python3

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; exec 9>&-; wait; rm -rf "$work"' EXIT
[ -f "$FAULT_FULL" ] || fail "no $FAULT_FULL"
if ! LD_PRELOAD=$FAULT_FULL FAULT_COUNT=$work/count "$CHIMERE" --version >/dev/null 2>&1 || [ ! -s count ]; then
    echo "skip: full: LD_PRELOAD has no effect on this program, a build without sanitizers"
    exit 77
fi

# faulty N ERRNO COMMAND...: its status in $status, what it said in err.
faulty() {
    local n=$1 errno=$2
    shift 2
    status=0
    LD_PRELOAD=$FAULT_FULL FAULT_NTH=$n FAULT_ERRNO=$errno "$@" >out 2>err || status=$?
    [ "$status" -lt 126 ] || fail "fault $n $errno: $*: status $status: $(cat err)"
    [ "$status" = 0 ] || grep -q '^chimere: ' err || fail "fault $n $errno: $*: no sentence: $(cat err)"
}
# moments COMMAND...: at which calls to fail: the first, the last, and some between.
moments() {
    rm -f count
    LD_PRELOAD=$FAULT_FULL FAULT_COUNT=$work/count "$@" >out 2>err || fail "without a fault: $*: $(cat err)"
    local n
    n=$(tail -1 count)
    [ "$n" -ge 1 ] || fail "$*: nothing was written"
    printf "%s\n" 1 $((n / 3)) $((n / 2)) $((n - 1)) "$n" | awk "\$1 >= 1" | sort -nu
}
# whole FILE COMMAND...: the file is the right one, or the command failed and there is none, nor what it was made from.
whole() {
    local file=$1 n errno at
    shift
    at=$(moments "$@")
    mv "$file" right
    for n in $at; do
        for errno in ENOSPC EIO; do
            rm -rf "$file" # under a new name the file is whole or not there
            faulty "$n" "$errno" "$@"
            if [ "$status" = 0 ]; then
                cmp -s "$file" right || fail "fault $n $errno: $*: succeeded with another file"
            else
                [ ! -e "$file" ] || fail "fault $n $errno: $*: failed and left $file"
            fi
            [ -z "$(find . -name '*.tmp.*')" ] || fail "fault $n $errno: $*: left $(find . -name '*.tmp.*')"
        done
    done
    # and an older file stays as it was
    echo older >"$file"
    faulty 1 ENOSPC "$@"
    if [ "$status" = 0 ] || [ "$(cat "$file")" != older ]; then fail "$*: the older file was touched"; fi
}

for i in $(seq 40); do echo "The $i cats sat on $((i * 7)) mats; none of them moved."; done >text
"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
nano=$(dirname "$CHIMERE")/chimere-nano.gguf
python3 - "$TEST_DATA/hf/llama" model <<'PY'
import json, math, os, shutil, struct, sys
source, out = sys.argv[1:]
os.mkdir(out)
for name in ("config.json", "../tokenizer-qwen35/tokenizer.json", "../tokenizer-qwen35/tokenizer_config.json"):
    shutil.copy(os.path.join(source, name), out)
tensors, data = {}, b""
for line in open(source + "/weights.tsv"):
    name, shape = line.split("\t")[:2]
    shape = [int(n) for n in shape.split(",")]
    n = 4 * math.prod(shape)
    tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + n]}
    data += bytes(n)
head = json.dumps(tensors).encode()
with open(out + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + data)
PY

whole q.gguf "$CHIMERE" quantize m.gguf q.gguf Q4_0
whole m.imatrix "$CHIMERE" imatrix -m m.gguf -f text -o m.imatrix --ctx 64 --chunks 2 -q
whole c.gguf "$CHIMERE" convert model c.gguf --type F32
whole t.engram "$CHIMERE" engram build -q -m "$nano" --date 2026-01-01 -o t.engram text

# ramp: a full disk leaves no half file, and the next run continues from what is there to the same bytes
"$CHIMERE" synth qwen35moe-mini q8 one.gguf --layers 1 --experts 2 --vocab 512 >/dev/null
search() { "$CHIMERE" ramp one.gguf r.gguf --bpw 4 --predict --sample 256 --threads 1 -q; }
anew() {
    rm -rf r.gguf r.gguf.ramp
    search
}
all=$(moments anew)
mapfile -t at <<<"$all"
mv r.gguf right
for n in "${at[1]}" "${at[3]}"; do
    faulty "$n" ENOSPC anew
    [ "$status" != 0 ] || fail "ramp, fault $n: not reported"
    [ ! -e r.gguf ] || fail "ramp, fault $n: left r.gguf"
    search >out 2>err || fail "ramp after fault $n: $(cat err)"
    cmp -s r.gguf right || fail "ramp after fault $n: another file"
done

# an index: what is there afterwards can be extended to the whole
mkdir docs
for i in 1 2 3; do echo "# Page $i of herons" >docs/$i.md; done
for n in $(moments "$CHIMERE" odo index docs --db index0.db); do
    for errno in ENOSPC EIO; do
        rm -f index.db*
        faulty "$n" "$errno" "$CHIMERE" odo index docs --db index.db
        "$CHIMERE" odo index docs --db index.db >out 2>err || fail "index after fault $n $errno: $(cat err)"
        "$CHIMERE" odo search herons --db index.db >out 2>err || fail "search after fault $n $errno: $(cat err)"
        [ "$(grep -c 'docs/[123].md' out)" = 3 ] || fail "index after fault $n $errno: $(cat out)"
    done
done

# a download: what arrived is kept aside, and the next one completes it
mkdir -p hub/tiny/model
cp m.gguf hub/tiny/model/Tiny-Q8_0.gguf
exec 9> >(exec node "$SOURCE_DIR/test/net/standin.mjs" hub >port)
for _ in $(seq 2400); do [ -s port ] || sleep 0.05; done
CHIMERE_HF_ENDPOINT=http://127.0.0.1:$(cut -d' ' -f1 port)
export CHIMERE_HF_ENDPOINT CHIMERE_MODELS_DIR=$work/models
got=models/tiny/model/Tiny-Q8_0.gguf
for n in $(moments "$CHIMERE" pull hf:tiny/model); do
    for errno in ENOSPC EIO; do
        rm -rf models
        faulty "$n" "$errno" "$CHIMERE" pull hf:tiny/model
        [ ! -e $got ] || cmp -s $got m.gguf || fail "pull, fault $n $errno: a wrong file"
        "$CHIMERE" pull hf:tiny/model >out 2>err || fail "pull after fault $n $errno: $(cat err)"
        cmp -s $got m.gguf || fail "pull after fault $n $errno: a wrong file"
    done
done

# a server whose state directory is full answers, and starts again
chat='{"messages":[{"role":"user","content":"Tell me about herons, their nests, their young, what they eat, where they live and how long, and be exact and brief, please, as always."}],"max_tokens":40,"temperature":0}'
serve() { # N
    : >served
    LD_PRELOAD=$FAULT_FULL FAULT_NTH=$1 FAULT_ERRNO=$2 FAULT_COUNT=$work/count \
        "$CHIMERE" serve -m "$nano" --port 0 -q --ctx 2048 --state-dir kept --prompt-cache 1M >served 2>log &
    pid=$!
    for _ in $(seq 2400); do
        grep -q 'http://' served && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    url=$(grep -om1 'http://[^ ]*' served | head -1) || url=
}
stop() { # the status is in $status
    kill $pid 2>/dev/null || true
    status=0
    wait $pid || status=$?
    pid=
}
rm -f count
serve 0 EIO
curl -sS -m 300 "$url/v1/chat/completions" -d "$chat" | grep '"content"' >/dev/null || fail "no answer: $(cat log)"
stop
[ "$status" = 0 ] || fail "without a fault: status $status: $(cat log)"
n=$(tail -1 count)
for k in 1 $((n / 4)) $((n / 2)) $((n - 3)); do
    for errno in ENOSPC EIO; do
        rm -rf kept
        serve "$k" $errno
        if [ -n "$url" ]; then
            curl -sS -m 300 "$url/v1/chat/completions" -d "$chat" | grep '"content"' >/dev/null || fail "fault $k $errno: no answer: $(cat log)"
        else
            grep -q '^chimere: ' log || fail "fault $k $errno: no sentence: $(cat log)"
        fi
        stop
        [ "$status" -lt 126 ] || fail "fault $k $errno: status $status: $(cat log)"
        serve 0 EIO
        [ -n "$url" ] || fail "after fault $k $errno: $(cat log)"
        curl -sS -m 300 "$url/v1/chat/completions" -d "$chat" | grep '"content"' >/dev/null || fail "after fault $k $errno: no answer: $(cat log)"
        stop
        [ "$status" = 0 ] || fail "after fault $k $errno: status $status: $(cat log)"
    done
done
echo "full: ok"
