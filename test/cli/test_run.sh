#!/usr/bin/env bash
# run: a message as argument, on standard input, after a model; spellings that are nearly right.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
model=$(dirname "$CHIMERE")/chimere-nano.gguf
[ -f "$model" ] || {
    echo "skip: run: no shipped model"
    exit 77
}
ask=("$CHIMERE" run --temp 0 -q -n 40)
"${ask[@]}" -p "What is 12 + 30?" >want </dev/null
grep -q 42 want || fail "no answer: $(cat want)"
same() { cmp -s want "$1" || fail "$2: $(cat "$1")"; }
"${ask[@]}" "What is 12 + 30?" >got </dev/null
same got "an argument"
printf 'What is 12 + 30?' | "${ask[@]}" >got
same got "standard input"
printf 'What is 12 + 30?' | "${ask[@]}" -p - >got
same got "-p -"
"${ask[@]}" "$model" "What is 12 + 30?" >got </dev/null
same got "MODEL TEXT"
printf 'What is 12 + 30?' | "${ask[@]}" "$model" >got
same got "MODEL and standard input"
refuses 2 'expected a message' "$CHIMERE" run -p ""
refuses 2 'expected a message' "$CHIMERE" run </dev/null
refuses 2 'expected one message' "$CHIMERE" run -p a b
refuses 2 'expected [MODEL] TEXT, got 3 arguments' "$CHIMERE" run a b c
refuses 2 'did you mean --temp?' "$CHIMERE" run --tmep 0 a
refuses 2 'here: all layers that fit are on the GPU' "$CHIMERE" run -ngl 99 a
refuses 2 "unknown option '--temperature'" "$CHIMERE" tokenize --temperature 1 a
"$CHIMERE" run --temperature 0 -q --max_tokens 40 --ctx-size 256 "What is 12 + 30?" >got </dev/null
same got "other programs' spellings"
"$CHIMERE" run --help >help
! grep -q temperature=\|ngl help || fail "spellings of others are in the help"
refuses 2 "did you mean 'serve'?" "$CHIMERE" sevre
refuses 2 'commands:' "$CHIMERE" abracadabra
[ "$("$CHIMERE" version)" = "$("$CHIMERE" --version)" ] || fail "version"
