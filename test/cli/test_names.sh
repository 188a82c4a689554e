#!/usr/bin/env bash
# Models by name: nano, mini, smol, which of them answers if none is named.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl
model=$(dirname "$CHIMERE")/chimere-nano.gguf
[ -f "$model" ] || {
    echo "skip: names: no shipped model"
    exit 77
}
unset CHIMERE_MODEL
mkdir bare data
cp "$CHIMERE" "$model" bare
export XDG_DATA_HOME=$work/data HOME=$work/data
run() { bare/chimere run --temp 0 -q -n 12 "$@" "Who are you?" </dev/null; }

run -m nano >want
[ -s want ] || fail "nano says nothing"
run >got
cmp -s want got || fail "nano does not answer if no model is named: $(cat got)"
refuses 1 "model mini is not on this machine" bare/chimere run -m mini hello
refuses 1 'model smol is not on this machine' bare/chimere run -m smol hello
refuses 1 'script/model' bare/chimere run -m smol hello
refuses 1 "no file and no model named 'nosuch'" bare/chimere run -m nosuch hello
refuses 1 'chimere recommend lists names' bare/chimere run -m nosuch hello

# chimere-mini comes before nano, and after smol (below).
cp "$SOURCE_DIR/models/chimere-mini.gguf" bare
run -m mini >want_mini
run >got
cmp -s want_mini got || fail "mini does not answer if it is there and smol is not: $(cat got)"
cmp -s want got && fail "nano answers although mini is there"

# Another model stands in for smol: the same weights, whose name tells which file was opened.
mkdir -p data/chimere
smol=data/chimere/smollm2-135m-instruct-q4_1.gguf
bare/chimere synth mamba-mini q8 "$smol" --layers 2 --vocab 512 >/dev/null
bare/chimere inspect "$smol" >/dev/null || fail "no stand-in"
run -m smol >wants
run >got
cmp -s wants got || fail "smol does not answer if it is there and no model is named"
cmp -s want got && fail "nano answers although smol is there"
run -m nano >got
cmp -s want got || fail "-m nano"
# other commands keep nano
bare/chimere tokenize <want >ids
bare/chimere tokenize -m "$model" <want >want_ids
cmp -s want_ids ids || fail "tokenize took another model than nano"
# a file of that name comes first
cp "$model" smol
run -m smol >got
cmp -s want got || fail "a file named smol"

# A server answers to the name by which its model was chosen; so do further models.
trap 'stop_server; rm -rf "$work"' EXIT
start_server --also mini --no-odo -q
for name in nano chimere-nano mini; do
    curl -sf "$url/v1/completions" -d '{"model": "'$name'", "prompt": "a", "max_tokens": 1}' >got ||
        fail "no model $name: $(cat said)"
done
[ "$(curl -s -o got -w '%{http_code}' "$url/v1/completions" -d '{"model": "max", "prompt": "a"}')" = 404 ] || fail "max"
stop_server
refuses 1 "no file and no model named 'nosuch'" "$CHIMERE" serve -m nano --also nosuch --port 0 -q
