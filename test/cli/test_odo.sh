#!/usr/bin/env bash
# odo: decisions, documents and the tool loop with the real nano model, and the model "odo" over HTTP.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl python3
export XDG_CONFIG_HOME=$work/config
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
expect 'bm25 alone' out
"$CHIMERE" odo ask "On which river does Kala Pometh lie?" --temp 0 --json -q "${db[@]}" >out
expect Goza out
expect '"kind": "document"' out
"$CHIMERE" odo ask "What is 914 x 408?" --temp 0 -q "${db[@]}" >out
expect 372912 out
"$CHIMERE" odo log "${db[@]}" >out
expect default out
grep -q "914" out && fail "the log holds a question"
# labelled items through the model alone and through the orchestrator
cat >items.jsonl <<'END'
{"id": "a", "skill": "facts", "messages": [{"role": "user", "content": "On which river does Kala Pometh lie?"}], "max_tokens": 40, "check": {"kind": "contains", "answer": ["Goza"]}, "expect": {"source": ["kala.txt"]}}
{"id": "b", "skill": "routes", "messages": [{"role": "user", "content": "Explain CVE-2021-44228"}], "expect": {"route": "cyber"}}
{"id": "c", "skill": "routes", "messages": [{"role": "user", "content": "Explain CVE-2021-44228"}], "expect": {"route": "kine"}}
END
"$CHIMERE" odo eval items.jsonl --ablate --json -q "${db[@]}" >out
python3 - <<'END' || fail "odo eval: $(cat out)"
import json
o = json.load(open("out"))
routes = next(s for s in o["decisions"]["skills"] if s["skill"] == "routes")
assert (routes["route"]["n"], routes["route"]["right"]) == (2, 1)
arms = {a["name"]: a for a in o["arms"]}
assert arms["model alone"]["run"]["total"]["right"] == 0 and arms["odo"]["run"]["total"]["right"] == 1
assert arms["odo"]["hit"]["right"] == 1 and arms["odo"]["against"]["total"]["only_b"] == 1
assert arms["documents and web off"]["run"]["total"]["right"] == 0
END
sed 's/"route"/"rout"/' items.jsonl >bad.jsonl
refuses 1 'bad.jsonl:2: expect.rout: unknown field' "$CHIMERE" odo eval bad.jsonl -q "${db[@]}"
# documents leave the index, and the files stay; only a new run of index reads them again
mkdir docs/more && echo "Mira Toldo is a bridge." >docs/more/mira.txt
"$CHIMERE" odo index docs "${db[@]}" >out
expect '1 read (1 passages), 1 unchanged' out
refuses 1 "there is no 'docs/none.txt' in 'default'" "$CHIMERE" odo remove docs/none.txt "${db[@]}"
refuses 1 "there is no 'docs' in 'other'" "$CHIMERE" odo remove docs --collection other "${db[@]}"
"$CHIMERE" odo remove docs/more/mira.txt "${db[@]}" >out
expect 'docs/more/mira.txt: 1 removed' out
"$CHIMERE" odo documents "${db[@]}" >out
expect kala.txt out
grep -q mira out && fail "a removed document: $(cat out)"
"$CHIMERE" odo index docs "${db[@]}" >out
expect '1 read (1 passages), 1 unchanged' out
"$CHIMERE" odo remove docs/ "${db[@]}" >out
expect 'docs/: 2 removed' out
"$CHIMERE" odo documents "${db[@]}" >out
[ ! -s out ] && [ -f docs/more/mira.txt ] || fail "a removed folder: $(cat out)"
rm -r docs/more
"$CHIMERE" odo index docs "${db[@]}" >out
expect '1 read' out
rm docs/kala.txt
"$CHIMERE" odo index docs "${db[@]}" >out
expect '1 removed' out

# memory from the command line, and in an answer
"$CHIMERE" odo remember "I live in Oslo" "${db[@]}" >out
expect 'remembered as number 1' out
"$CHIMERE" odo remember "I have a dog" --user anna "${db[@]}" >out
"$CHIMERE" odo pin 1 "${db[@]}"
"$CHIMERE" odo memory "${db[@]}" >out
expect '[pinned] I live in Oslo' out
grep -q dog out && fail "another user's memory: $(cat out)"
"$CHIMERE" odo explain "Where do I live?" "${db[@]}" >out
expect '"pins": 1' out
"$CHIMERE" odo ask "Where do I live?" --temp 0 -q "${db[@]}" >out
expect Oslo out
refuses 1 'there is no number 2' "$CHIMERE" odo forget 2 "${db[@]}"
refuses 2 'expected the number' "$CHIMERE" odo unpin x "${db[@]}"
"$CHIMERE" odo remember "I have moved to Bergen" "${db[@]}" >out
"$CHIMERE" odo memory "${db[@]}" >out
expect '[pinned] I have moved to Bergen' out
grep -q Oslo out && fail "a replaced fact: $(cat out)"
"$CHIMERE" odo memory --history "${db[@]}" >out
expect '[replaced] I live in Oslo' out
"$CHIMERE" odo forget all "${db[@]}" >out
expect '2 forgotten' out

# what ships: a skill, a persona
"$CHIMERE" odo skills "${db[@]}" >out
expect 'word-count ' out
"$CHIMERE" odo explain "How many words does this text have: to be or not to be" "${db[@]}" >out
expect '"skill": "word-count"' out
"$CHIMERE" odo ask "Tell me a joke." --persona plain --temp 0 -n 8 -q "${db[@]}" >out
[ -s out ] || fail "no answer in the persona's words"
refuses 2 'no persona "nobody"' "$CHIMERE" odo ask hello --persona nobody -q "${db[@]}"
refuses 1 'chimere-nano is no process reward model' "$CHIMERE" odo ask hello --prm "$(dirname "$CHIMERE")/chimere-nano.gguf" -q "${db[@]}"
# a process reward model: nano with the keys of one. It scores the candidates, and writes no tokens of its own
python3 - "$(dirname "$CHIMERE")/chimere-nano.gguf" <<'END'
import struct, sys
b = open(sys.argv[1], "rb").read()
text = lambda t: struct.pack("<Q", len(t)) + t
pair = lambda k, v: text(k) + struct.pack("<I", 8) + text(v)
def write(name, good):
    keys = pair(b"chimere.prm.mark", b";") + pair(b"chimere.prm.good", good) + pair(b"chimere.prm.bad", b"no")
    pad = -(len(keys) + len(pair(b"pad", b""))) % 32 # the tensors stay aligned
    n = struct.unpack_from("<Q", b, 16)[0]
    open(name, "wb").write(b[:16] + struct.pack("<Q", n + 4) + keys + pair(b"pad", b" " * pad) + b[24:])
write("prm.gguf", b"yes"), write("prm_bad.gguf", b"yes yes")
END
refuses 1 'key chimere.prm.good: expected the text of one token' "$CHIMERE" odo ask hello --prm prm_bad.gguf -q "${db[@]}"
head -n 2 "$SOURCE_DIR/eval/hard/hard_problem.jsonl" >hard.jsonl
best=(eval --suite hard.jsonl --strategy best_of_n:n=3 --seed 5 -q --json)
"$CHIMERE" "${best[@]}" -m "$(dirname "$CHIMERE")/chimere-nano.gguf" >judge.json
"$CHIMERE" "${best[@]}" -m "$(dirname "$CHIMERE")/chimere-nano.gguf" --prm prm.gguf >prm.json
python3 - <<'END' || fail "--prm: $(cat prm.json)"
import json
judge, prm = (json.load(open(f)) for f in ("judge.json", "prm.json"))
assert len(judge["items"]) == len(prm["items"]) == 2
for a, b in zip(judge["items"], prm["items"]):
    assert a["n_check"] > 0 and b["n_check"] == 0, (a, b)
    assert a["n_tokens"] - a["n_check"] == b["n_tokens"], (a, b) # the same candidates
END
# through the orchestrator: the record names the strategy, its cost has no tokens of a verifier
printf 'name: careful\nstrategy: {use: "best_of_n:n=3", when: always}\n' >"$work/careful.yaml"
mkdir careful && cp -r "$SOURCE_DIR"/pipelines/* "$work/careful.yaml" careful
"$CHIMERE" odo ask "$(python3 -c 'import json; print(json.loads(open("hard.jsonl").readline())["messages"][-1]["content"])')" \
    --pipelines careful --route careful --prm prm.gguf --json -q --seed 5 "${db[@]}" >out
python3 - <<'END' || fail "odo ask --prm: $(cat out)"
import json
def find(o):
    if isinstance(o, dict):
        return o.get("strategy") if isinstance(o.get("strategy"), dict) else next(filter(None, map(find, o.values())), None)
    return next(filter(None, map(find, o)), None) if isinstance(o, list) else None
s = find(json.load(open("out")))
assert s["n"] == 3 and s["tokens"]["check"] == 0 and 0 < s["score"] < 1 and s["score"] != 0.5, s
END
# secrets are read from files, and never said
printf 'sesame-of-the-tests' >key
refuses 1 'embedding-url' "$CHIMERE" odo search x --embedding-url http://127.0.0.1:9 --embedding-key key "${db[@]}"
grep -q sesame err && fail "the key is in the message: $(cat err)"
printf 'two words' >key
refuses 2 'one line of 1 to 400 visible letters' "$CHIMERE" odo explain hello --brave-key key "${db[@]}"
refuses 2 'one line of 1 to 400 visible letters' "$CHIMERE" serve --port 0 -q --brave-key key "${db[@]}"
grep -q 'two words' err && fail "the key is in the message: $(cat err)"

mkdir -p pipelines/skills/shout pipelines/personas/sage
cp "$SOURCE_DIR"/pipelines/*.yaml pipelines
printf -- '---\nname: shout\ndescription: Writes a text in capital letters, shouting it.\n---\nUse capitals.\n' >pipelines/skills/shout/SKILL.md
echo "You are calm." >pipelines/personas/sage/SOUL.md
"$CHIMERE" odo skills --pipelines pipelines "${db[@]}" >out
expect 'shout ' out
"$CHIMERE" odo explain "Shout this text in capital letters: hi" --pipelines pipelines "${db[@]}" >out
expect '"skill": "shout"' out
printf 'name: code\nsteps:\n  - agnt: x\n' >pipelines/code.yaml
refuses 1 'code.yaml:3: unknown key "agnt"' "$CHIMERE" odo explain hello --pipelines pipelines "${db[@]}"

cp "$SOURCE_DIR"/pipelines/code.yaml pipelines
"$CHIMERE" serve --port 0 -q --pipelines pipelines "${db[@]}" >serve.out 2>serve.err &
server=$!
trap 'kill $server 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 600); do grep -q listens serve.out && break; sleep 0.2; done
url=$(sed -n 's/.*listens on \(http:[^ ]*\).*/\1/p' serve.out)
[ -n "$url" ] || fail "no address: $(cat serve.out serve.err)"
curl -sS "$url/v1/models" >out
expect '"odo"' out
expect '"odo:kine"' out
# a new pipeline is a model at once; one that breaks stays as it was, and the log says why with the line
models() { for _ in $(seq 600); do curl -sS "$url/v1/models" >out; "$@" && return; sleep 0.1; done; fail "$*: $(cat out)"; }
printf 'name: haiku\nprompt: Answer in three short lines.\n' >pipelines/haiku.yaml
models grep -q '"odo:haiku"' out
curl -sSi "$url/v1/chat/completions" -H 'content-type: application/json' \
    -d '{"model":"odo:haiku","max_tokens":8,"messages":[{"role":"user","content":"Hello"}]}' >out
expect 'X-Odo-Pipeline: haiku' out
curl -sS "$url/v1/models/odo:haiku" >out
expect '"id":"odo:haiku"' out
printf 'name: haiku\nprmpt: x\n' >pipelines/haiku.yaml
for _ in $(seq 600); do grep -q 'haiku.yaml:2' serve.err && break; sleep 0.1; done
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
expect 'odo.mode: expected auto, fast, quality or ultra' out
# each pipeline that ships, by one answer and by its steps
for route in code cyber default kine research; do
    for mode in fast ultra; do
        curl -sSi "$url/v1/chat/completions" -H 'content-type: application/json' \
            -d "{\"model\":\"odo:$route\",\"temperature\":0,\"max_tokens\":1024,\"seed\":7,\"odo\":{\"mode\":\"$mode\"},\"messages\":[{\"role\":\"user\",\"content\":\"What is a dog?\"}]}" >out
        expect ' 200 OK' out
        expect "X-Odo-Pipeline: $route" out
        expect '"finish_reason":"' out
        steps=$({ grep -o '"agent":"[a-z]*"' out || true; } | sort -u | wc -l)
        case $mode-$route in
        ultra-code) want=2 ;;
        ultra-default | fast-*) want=0 ;;
        *) want=3 ;;
        esac
        [ "$steps" = $want ] || fail "$route, $mode: expected $want agents, got $steps: $(cat out)"
    done
done
# MCP over HTTP: a session first, then tools; nothing without it
mcp() { curl -sSi "$url/mcp" -H 'content-type: application/json' "$@" >out; }
call='{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"calculator","arguments":{"expression":"6*7"}}}'
mcp -d "$call"
expect ' 400 ' out
mcp -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}'
session=$(tr -d '\r' <out | sed -n 's/^mcp-session-id: //Ip')
[ ${#session} = 32 ] || fail "no session: $(cat out)"
mcp -H "Mcp-Session-Id: $session" -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'
expect ' 202 ' out
mcp -H "Mcp-Session-Id: $session" -d "$call"
expect '6*7 = 42' out
mcp -H "Mcp-Session-Id: $session" -d 'nonsense'
expect '32700' out
mcp -H "Mcp-Session-Id: $session" -X DELETE
mcp -H "Mcp-Session-Id: $session" -d "$call"
expect ' 404 ' out
curl -sS "$url/v1/memory" -H 'content-type: application/json' -d '{"text":"I sail","pinned":true}' >out
expect '"pinned":true' out
curl -sS "$url/v1/memory" >out
expect 'I sail' out
id=$(sed -n 's/.*"id":\([0-9]*\).*/\1/p' out)
curl -sS -X DELETE "$url/v1/memory/$id" >out
expect '"deleted":1' out
curl -sS "$url/props" >out
expect '"min_learned_bytes":20,"thinking_budgets":{"minimal":512,"low":2048,"medium":8192}' out
curl -sS "$url/v1/skills" >out
expect '"name":"shout"' out
curl -sS "$url/metrics" >out
expect 'chimere_odo_stage_seconds_count{stage="tool"}' out
# what the user says of an answer, by the name that its header gave
feedback() { curl -sS -o out -w '%{http_code}' "$url/v1/feedback" -H 'content-type: application/json' -d "$1"; }
printf 'name: judged\nquality: {score: true}\n' >pipelines/judged.yaml
models grep -q 'odo:judged' out
curl -sSi "$url/v1/chat/completions" -H 'content-type: application/json' \
    -d '{"model":"odo:judged","max_tokens":20,"messages":[{"role":"user","content":"Say hello."}]}' >out
answer=$(sed -n 's/^[Xx]-[Oo]do-[Aa]nswer: *\([^[:space:]]*\).*/\1/p' out)
[ -n "$answer" ] || fail "no X-Odo-Answer: $(cat out)"
for _ in $(seq 1200); do code=$(feedback "{\"answer\":\"$answer\",\"score\":2,\"comment\":\"too short\"}"); [ "$code" = 404 ] || break; sleep 0.1; done
[ "${code%?}" = 20 ] || fail "feedback: $code $(cat out)"
[ "$(feedback "{\"answer\":\"$answer\",\"score\":6}")" = 400 ] || fail "feedback beyond 5: $(cat out)"
expect 'whole number of 1 to 5' out
[ "$(feedback '{"answer":"odo-nobody","rating":"up"}')" = 404 ] || fail "feedback on nothing: $(cat out)"

# --- calls of tools that wait for their user ------------------------------------------------------------------------------
confirm() { curl -sS -o out -w '%{http_code}' "$url/v1/confirm" -H 'content-type: application/json' "$@"; }
[ "$(confirm)" = 200 ] && grep -q '"data":\[\]' out || fail "confirm: $(cat out)"
[ "$(confirm -d '{"id":"confirm-0","allow":true}')" = 404 ] || fail "confirm nothing: $(cat out)"
[ "$(confirm -d '{"id":"confirm-0"}')" = 400 ] || fail "confirm without a word: $(cat out)"

# the same in front of a server that knows nothing of it
"$CHIMERE" odo ask "What is 914 x 408?" --temp 0 --backend "$url" --backend-model chimere-nano "${db[@]}" >out
expect 372912 out
refuses 1 'connect' "$CHIMERE" odo ask hello --backend http://127.0.0.1:9 "${db[@]}"
"$CHIMERE" odo --backend "$url" --backend-model chimere-nano --port 0 "${db[@]}" >front.out 2>front.err &
front=$!
trap 'kill $server $front 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 600); do grep -q listens front.out && break; sleep 0.2; done
url=$(sed -n 's/.*listens on \(http:[^ ]*\).*/\1/p' front.out)
[ -n "$url" ] || fail "no address: $(cat front.out front.err)"
curl -sS "$url/v1/chat/completions" -H 'content-type: application/json' -d "$body" >out
expect 372912 out
for path in /v1/models /metrics /props /slots /v1/status; do
    curl -sS -o out "$url$path" || fail "$path: $(cat front.err)"
done
kill -0 $front || fail "the front ended: $(cat front.err)"
