#!/usr/bin/env bash
# POST /chimere/v1/ramp: a smaller copy of a model, made while the server serves.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl python3 pgrep
trap 'stop_server; rm -rf "$work"' EXIT

mkdir models
"$CHIMERE" synth qwen35moe-mini q8 models/large.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
start_server --models-dir "$PWD/models"
ramp() { curl -sN -m 300 "$url/chimere/v1/ramp" -d "$1"; }
last() { tail -1 answer | python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

curl -s "$url/chimere/v1/ramp" | grep '"rtx-5060-ti-16g"' >/dev/null || fail "no cards"
ramp '{"model": "large", "out": "small", "bpw": 4.5, "predict": true}' >answer
[ "$(last "['name']")" = small ] || fail "$(cat answer)"
[ "$(last "['bytes']")" = "$(stat -c %s models/small.gguf)" ] || fail "bytes: $(last "['bytes']")"
[ "$(last "['bpw'] <= 4.5")" = True ] || fail "bits: $(last "['bpw']")"
case $(last "['pareto']") in "<svg"*) ;; *) fail "no picture: $(last "['pareto']")" ;; esac
grep -q '"step":"errors of types"' answer || fail "no progress: $(cat answer)"
curl -s "$url/chimere/v1/models" | grep '"small"' >/dev/null || fail "it is not listed"
! curl -s "$url/chimere/v1/models" | grep imatrix >/dev/null || fail "the work folder is listed"

# what is wrong is said, and no file is left
ramp '{"model": "large", "out": "tiny", "bpw": 0.6, "predict": true}' >answer
case $(last "['error']['message']") in *"the smallest file"*) ;; *) fail "$(cat answer)" ;; esac
[ ! -e models/tiny.gguf ] || fail "a file of no size"
while IFS='|' read -r says body; do
    ramp "$body" >answer
    grep -qF "$says" answer || fail "$body: expected '$says', got $(cat answer)"
done <<'END'
there is a model of that name|{"model": "large", "out": "small", "bpw": 4}
expected a name of GET|{"model": "../large", "out": "a", "bpw": 4}
expected a name of GET|{"model": "/etc/passwd", "out": "a", "bpw": 4}
expected a new name|{"model": "large", "out": "../a", "bpw": 4}
expected a new name|{"model": "large", "out": ".a", "bpw": 4}
expected exactly one|{"model": "large", "out": "a", "bpw": 4, "size": "1G"}
expected exactly one|{"model": "large", "out": "a"}
expected a number|{"model": "large", "out": "a", "bpw": 99}
expected a size|{"model": "large", "out": "a", "size": "big"}
expected a name of GET|{"model": "large", "out": "a", "card": "abacus"}
expected a text|{"model": "large", "out": "a", "bpw": 4, "text": 7}
no 'other'|{"model": "other", "out": "a", "bpw": 4}
END

# a client that leaves stops the search, and another can begin; the process is gone
curl -sN "$url/chimere/v1/ramp" -d '{"model": "large", "out": "late", "bpw": 5}' >answer 2>/dev/null &
client=$!
for ((i = 0; i < 600; i++)); do
    ! grep -q step answer || break
    sleep 0.2
done
ramp '{"model": "large", "out": "other", "bpw": 5}' | grep 'another model' >/dev/null || fail "two at once"
kill "$client"
for ((i = 0; i < 600; i++)); do
    pgrep -P "$server" >/dev/null || break
    sleep 0.2
done
! pgrep -P "$server" >/dev/null || fail "the search goes on"
[ ! -e models/late.gguf ] || fail "a file of a stopped search"
ramp '{"model": "large", "out": "late", "bpw": 5, "predict": true}' >answer
[ "$(last "['name']")" = late ] || fail "$(cat answer)"
echo "ramp_server: ok"
