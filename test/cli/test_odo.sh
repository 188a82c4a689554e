#!/usr/bin/env bash
# odo: decisions, documents and the tool loop with the real nano model, and the model "odo" over HTTP.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
export XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config
db=(--db "$work/odo.db")
expect() { grep -qF -- "$1" "$2" || fail "expected '$1' in $2: $(cat "$2")"; }

"$CHIMERE" odo explain "Explain CVE-2021-44228" "${db[@]}" >out
expect '"route": "cyber"' out
expect '"how": "rules"' out
refuses 2 'no pipeline "nowhere"' "$CHIMERE" odo explain hello --route nowhere "${db[@]}"
refuses 2 'expected one of explain' "$CHIMERE" odo dance "${db[@]}"

mkdir docs
echo "Kala Pometh is a town. The houses of Kala Pometh were first built by Fira Libur. Kala Pometh lies on the river Goza." >docs/kala.txt
"$CHIMERE" odo index docs "${db[@]}" >out
expect '1 read (1 passages)' out
"$CHIMERE" odo index docs "${db[@]}" >out
expect '0 read (0 passages), 1 unchanged' out
"$CHIMERE" odo search "river of Kala Pometh" "${db[@]}" >out
expect 'docs/kala.txt:1' out
expect 'BM25 alone' out
"$CHIMERE" odo ask "On which river does Kala Pometh lie?" --temp 0 --json -q "${db[@]}" >out
expect Goza out
expect '"kind": "document"' out
"$CHIMERE" odo ask "What is 914 x 408?" --temp 0 -q "${db[@]}" >out
expect 372912 out
"$CHIMERE" odo log "${db[@]}" >out
expect default out
grep -q "914" out && fail "the log holds a question"
rm docs/kala.txt
"$CHIMERE" odo index docs "${db[@]}" >out
expect '1 removed' out

mkdir pipelines
cp "$SOURCE_DIR"/pipelines/*.yaml pipelines
printf 'name: code\nsteps:\n  - agnt: x\n' >pipelines/code.yaml
refuses 1 'code.yaml:3: unknown key "agnt"' "$CHIMERE" odo explain hello --pipelines pipelines "${db[@]}"

command -v curl >/dev/null || { echo "skip: model odo over HTTP: apt-get install curl"; exit 77; }
cp "$SOURCE_DIR"/pipelines/code.yaml pipelines
"$CHIMERE" serve --port 0 -q --pipelines pipelines "${db[@]}" >serve.out 2>serve.err &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do grep -q listens serve.out && break; sleep 0.2; done
url=$(sed -n 's/.*listens on \(http:[^ ]*\).*/\1/p' serve.out)
[ -n "$url" ] || fail "no address: $(cat serve.out serve.err)"
curl -sS "$url/v1/models" >out
expect '"odo"' out
expect '"odo:kine"' out
# a new pipeline is a model at once; one that breaks stays as it was, and the log says why with the line
models() { for _ in $(seq 100); do curl -sS "$url/v1/models" >out; "$@" && return; sleep 0.1; done; fail "$*: $(cat out)"; }
printf 'name: haiku\nprompt: Answer in three short lines.\n' >pipelines/haiku.yaml
models grep -q '"odo:haiku"' out
curl -sSi "$url/v1/chat/completions" -H 'content-type: application/json' \
    -d '{"model":"odo:haiku","max_tokens":8,"messages":[{"role":"user","content":"Hello"}]}' >out
expect 'X-Odo-Pipeline: haiku' out
curl -sS "$url/v1/models/odo:haiku" >out
expect '"id":"odo:haiku"' out
printf 'name: haiku\nprmpt: x\n' >pipelines/haiku.yaml
for _ in $(seq 100); do grep -q 'haiku.yaml:2' serve.err && break; sleep 0.1; done
expect 'haiku.yaml:2: unknown key "prmpt"' serve.err
curl -sS "$url/v1/models/odo:haiku" >out
expect '"id":"odo:haiku"' out
rm pipelines/haiku.yaml
gone() { ! grep -q 'odo:haiku' out; }
models gone
curl -sS "$url/v1/models/odo:haiku" >out
expect 'not_found' out
body='{"model":"odo","temperature":0,"messages":[{"role":"user","content":"What is 914 x 408?"}]}'
curl -sS "$url/v1/chat/completions" -H 'content-type: application/json' -d "$body" >out
expect 372912 out
expect '"odo":{"tools":[{' out
curl -sSi "$url/v1/chat/completions" -H 'content-type: application/json' -d "${body/\{/\{\"stream\":true,}" >out
expect 'X-Odo-Route: default' out
expect 'X-Odo-How: rules' out
curl -sSN "$url/v1/chat/completions" -H 'content-type: application/json' -d "${body/\{/\{\"stream\":true,}" >out
expect '"step":"tool"' out
expect 'data: [DONE]' out
curl -sS "$url/v1/chat/completions" -H 'content-type: application/json' -d "${body/\{/\{\"odo\":\{\"mode\":\"hyper\"\},}" >out
expect 'odo.mode: expected fast, quality or ultra' out
curl -sS "$url/metrics" >out
expect 'chimere_odo_stage_seconds_count{stage="tool"}' out
# the same in front of a server that knows nothing of it
"$CHIMERE" odo ask "What is 914 x 408?" --temp 0 --backend "$url" --backend-model chimere-nano "${db[@]}" >out
expect 372912 out
refuses 1 'connect' "$CHIMERE" odo ask hello --backend http://127.0.0.1:9 "${db[@]}"
"$CHIMERE" odo --backend "$url" --backend-model chimere-nano --port 0 "${db[@]}" >front.out 2>front.err &
front=$!
trap 'kill $server $front 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do grep -q listens front.out && break; sleep 0.2; done
url=$(sed -n 's/.*listens on \(http:[^ ]*\).*/\1/p' front.out)
[ -n "$url" ] || fail "no address: $(cat front.out front.err)"
curl -sS "$url/v1/chat/completions" -H 'content-type: application/json' -d "$body" >out
expect 372912 out
for path in /v1/models /metrics /props /slots /v1/status; do
    curl -sS -o out "$url$path" || fail "$path: $(cat front.err)"
done
kill -0 $front || fail "the front ended: $(cat front.err)"
