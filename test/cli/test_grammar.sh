#!/bin/bash
# test_grammar.sh: chimere grammar: answers, offsets and exit codes; by tokens of real vocabularies as by
# bytes; refusals on standard error.
set -eu
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset CHIMERE_MODEL # the checks name theirs
needs python3 xz

# says STATUS OUTPUT ARGUMENT...
says() {
  local want_status=$1 want=$2 status=0 got
  shift 2
  got=$("$CHIMERE" grammar "$@" 2> "err") || status=$?
  [ "$status" = "$want_status" ] || fail "$*: status $status, not $want_status: $(cat "err")"
  [ "$got" = "$want" ] || fail "$*: '$got', not '$want'"
}
refuses() {
  local want=$1 status=0
  shift
  "$CHIMERE" grammar "$@" > "out" 2> "err" || status=$?
  [ "$status" = 1 ] || fail "$*: status $status"
  [ ! -s "out" ] || fail "$*: output"
  grep -q "^chimere: .*$want" "err" || fail "$*: $(cat "err")"
}

cat > "person.json" <<'END'
{"type": "object", "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0},
 "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2}},
 "required": ["name", "age"], "additionalProperties": false}
END
printf 'root ::= "- " [^\\n]+ ("\\n- " [^\\n]+)*\n' > "list.gbnf"
good='{"age": 43, "tags": ["red"], "name": "Zoé \ud83d\ude00 \"日本\""}'
says 0 yes --schema "person.json" --check "$good"
says 1 "no: byte 9" --schema "person.json" --check '{"age": -3}'
says 1 "no: byte 10" --schema "person.json" --check '{"age": 43}'
says 1 "no: byte 9" --schema "person.json" --check '{"age": 4'
says 0 yes --gbnf "list.gbnf" --check "$(printf -- '- one\n- zwei é')"
says 1 "no: byte 1" --gbnf "list.gbnf" --check "-one"
printf '%s' "$good" > "text"
says 0 yes --schema "person.json" --check-file "text"
"$CHIMERE" grammar --schema "person.json" | grep '^rules [0-9]' >/dev/null || fail "no size"
python3 -c 'import json; print(json.dumps({"age": 1, "tags": ["red", "green"], "name": "x"}, indent=4))' > "text"
says 0 yes --schema "person.json" --check-file "text"

echo '{"unevaluatedItems": false}' > "bad.json"
refuses "'unevaluatedItems'" --schema "bad.json" --check '[]'
refuses "no such file\|No such file\|none.json" --schema "none.json" --check '[]'
python3 -c 'print("{\"items\":" * 10000 + "{}" + "}" * 10000)' > "deep.json"
refuses "deep\|depth\|stack" --schema "deep.json" --check '[]'
status=0
"$CHIMERE" grammar --check x > "out" 2>&1 || status=$?
[ "$status" = 2 ] || fail "usage: status $status"

# 10,000 levels of text against a recursive grammar
printf 'root ::= "[" root? "]"\n' > "nest.gbnf"
python3 -c 'print("[" * 10000 + "]" * 10000, end="")' > "text"
says 0 yes --gbnf "nest.gbnf" --check-file "text"
printf ']]' >> "text"
says 1 "no: byte 20000" --gbnf "nest.gbnf" --check-file "text"

n=0
for packed in "$TEST_DATA"/vocab/*.gguf.xz; do
  [ -f "$packed" ] || continue
  case $packed in *bert*) continue ;; esac
  xz -dc "$packed" > "vocab.gguf"
  says 0 yes --schema "person.json" -m "vocab.gguf" --check "$good"
  says 1 "no: byte 9" --schema "person.json" -m "vocab.gguf" --check '{"age": -3}'
  says 1 "no: byte 56" --schema "person.json" -m "vocab.gguf" \
    --check '{"age": 12, "name": "somebody else", "tags": ["red", "reef"]}'
  says 0 yes --gbnf "list.gbnf" -m "vocab.gguf" --check "$(printf -- '- one\n- zwei é')"
  n=$((n + 1))
done
[ "$n" -gt 0 ] || echo "skip: checks by tokens: no vocabulary in test/data/vocab"
echo ok
