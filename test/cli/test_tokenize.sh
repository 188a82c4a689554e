#!/bin/bash
# test_tokenize.sh: text to ids and back on the command line.
set -eu
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs xz
xz -dc "$TEST_DATA/vocab/ggml-vocab-qwen2.gguf.xz" > "v.gguf"
tokenize() { "$CHIMERE" tokenize -m "v.gguf" "$@"; }
detokenize() { "$CHIMERE" detokenize -m "v.gguf" "$@"; }

[ "$(printf 'Hello world' | tokenize)" = '9707 1879' ] || fail "ids"
[ "$(tokenize 'Hello world' < /dev/null)" = '9707 1879' ] || fail "a text as argument"
[ "$(printf 'Hello world\n' | tokenize)" = '9707 1879 198' ] || fail "the last newline counts"
[ "$(printf '' | tokenize | od -c | head -1)" = '0000000  \n' ] || fail "no text, no ids, one line"
[ "$(printf 'a\0b' | tokenize)" = '64 188 65' ] || fail "NUL is a byte like any other"
[ "$(printf '<|im_end|>' | tokenize --special)" = '151645' ] || fail "--special"
[ "$(printf '<|im_end|>' | tokenize)" != '151645' ] || fail "a control token without leave"
[ "$(printf 'x' | tokenize --bos)" = '87' ] || fail "this file asks for no BOS"

head -c 100000 /dev/urandom > "bytes"
tokenize < "bytes" | detokenize | cmp - "bytes" || fail "bytes do not come back"
[ "$(wc -l < <(tokenize < "bytes"))" = 1 ] || fail "ids on one line"
[ "$(echo 9707 151645 1879 | detokenize)" = 'Hello<|im_end|> world' ] || fail "control tokens as text"
[ "$(echo 9707, 151645, 1879 | detokenize --no-special)" = 'Hello world' ] || fail "--no-special"

refused() { # STATUS TEXT COMMAND...
    local status=0 want=$1 text=$2
    shift 2
    "$@" > "out" 2> "err" || status=$?
    [ $status = "$want" ] || fail "$*: status $status"
    grep -q "$text" "err" || fail "$*: $(cat "err")"
}
refused 2 "expected token ids below 151936, got '151936'" detokenize < <(echo 1 151936)
refused 2 "expected token ids below 151936, got 'x'" detokenize < <(echo 1 x)
refused 2 "got '-1'" detokenize < <(echo -1)
refused 1 'none.gguf' "$CHIMERE" tokenize -m "none.gguf" < /dev/null
refused 2 "expected one TEXT, got 2 arguments" tokenize some text < /dev/null
refused 2 "the ids are read from standard input" detokenize 9707 < /dev/null
echo passed
