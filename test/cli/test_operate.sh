#!/usr/bin/env bash
# What an administrator does: serve --check, SIGHUP, chimere drain.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl openssl python3 setsid

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; wait; rm -rf "$work"' EXIT
export XDG_DATA_HOME=$work/data
check() { "$CHIMERE" serve --check -q --ctx 256 "$@"; }

# ---- serve --check ----
check >out || fail "the defaults are refused: $(cat out)"
grep -q '^the configuration is valid: .*4 answers at once, context 256' out || fail "$(cat out)"
[ ! -e data ] || fail "--check wrote: $(find data)"
refuses 1 'nowhere.gguf' check -m nowhere.gguf
head -c 1000 "$TEST_DATA/../../models/chimere-nano-bf16.gguf" >cut.gguf
refuses 1 'cut.gguf' check -m cut.gguf
refuses 2 'host: expected an address' check --host example.org
refuses 2 'unknown option' check --portt 1
refuses 2 '--tls-cert and --tls-key: expected both or neither' check --tls-cert x
if [ ! -e /dev/nvidiactl ]; then # a GPU is requested and there is none: nothing listens, and the end of the log says why
    refuses 1 'gpu: ' "$CHIMERE" serve -q -m nano --port 0 --device cuda
    ! grep -q 'http://' out || fail "it listens without the GPU that was requested: $(cat out)"
    tail -n 2 err | grep 'gpu: ' >/dev/null || fail "the last lines do not say why: $(cat err)"
fi
printf 'short\n' >keys
chmod 600 keys
refuses 2 'api keys: line 1: expected 8 to 512 characters' check --api-key keys
refuses 1 'nowhere.keys' check --api-key nowhere.keys
for name in a b; do
    openssl req -x509 -newkey rsa:2048 -nodes -keyout $name.key -out $name.pem -days 2 -subj /CN=$name 2>/dev/null
done
chmod 600 ./*.key
check --tls-cert a.pem --tls-key a.key >/dev/null || fail "a certificate and its key"
refuses 1 '--tls-key: is not the key of --tls-cert' check --tls-cert a.pem --tls-key b.key
refuses 1 '--tls-cert: expected a certificate' check --tls-cert a.key --tls-key a.key
cp -r "$SOURCE_DIR/pipelines" lines
check --pipelines lines >/dev/null || fail "the shipped pipelines"
echo 'colour: red' >>lines/default.yaml
refuses 1 'colour' check --pipelines lines
refuses 2 '--mcp: expected NAME=COMMAND' check --mcp clock
refuses 2 "--store: expected postgres://" check --store mysql://user@db/chimere
refuses 2 "--store: expected postgres://" check --store ''
for option in otlp searxng embedding-url hf-endpoint; do
    refuses 2 "--$option: expected http:// or https://, got 'ftp://x'" check --$option ftp://x
done
refuses 2 '--otlp: traces are of the orchestrator' check --no-odo --otlp http://127.0.0.1:4318
refuses 2 'night-budget: expected a time' check --night --night-budget 5x
refuses 1 'nowhere.gguf' check --draft nowhere.gguf
refuses 1 'no such folder' check --files nowhere
refuses 1 'owner/repo: not in' check -m hf:owner/repo
grep -q 'chimere pull hf:owner/repo' err || fail "no hint: $(cat err)"
# databases: of a newer program, of another one
mkdir kept
"$CHIMERE" key add alice --state-dir kept >/dev/null 2>&1
check --state-dir kept >/dev/null || fail "a database of this version"
python3 - <<'END'
import sqlite3
db = sqlite3.connect("kept/chimere.db"); db.execute("PRAGMA user_version = 9999"); db.commit(); db.close()
db = sqlite3.connect("other.db"); db.execute("CREATE TABLE t(x)"); db.commit(); db.close()
END
refuses 1 'schema version: expected at most' check --state-dir kept
refuses 1 'a database of another program' check --db other.db
# every problem at once
check -m nowhere.gguf --mcp clock --api-key keys >out 2>err && fail "three problems are accepted"
[ "$(grep -c '^chimere: ' err)" = 3 ] || fail "expected three problems: $(cat err)"

# ---- SIGHUP ----
rm -r kept
printf 'secret-admin root admin\nsecret-alice alice\n' >keys
chmod 600 keys
cat >config.yaml <<END
api-key: $work/keys
port: 0
grace: 5
END
start() {
    : >served
    # a session of its own: not the terminal's SIGHUP
    setsid "$CHIMERE" serve --config config.yaml -q --ctx 512 --no-odo --verbose "$@" >served 2>log </dev/null &
    pid=$!
    for _ in $(seq 2400); do grep -q 'https*://' served && break || sleep 0.05; done
    url=$(grep -om1 'https*://[^ ]*' served | head -1); [ -n "$url" ] || fail "the server does not start: $(cat log)"
}
status() { curl -sS -m 300 -o body -w '%{http_code}' -H "Authorization: Bearer $1" "$url/v1/models"; }
hup() { # TEXT: what the log must then have
    kill -HUP "$pid"
    for _ in $(seq 2400); do grep -qF -- "$1" log && return || sleep 0.05; done
    fail "expected '$1' in the log: $(cat log)"
}
start
[ "$(status secret-alice)" = 200 ] || fail "alice: $(cat body)"
printf 'secret-admin root admin\nsecret-carol carol\n' >keys
hup 'keys and options are read again'
[ "$(status secret-alice)" = 401 ] || fail "a key that is gone is accepted"
[ "$(status secret-carol)" = 200 ] || fail "a new key is refused: $(cat body)"
sed -i 's/^port: 0/port: 1/; $a queue: 7' config.yaml
hup 'changed, but needs a restart: port, queue'
: >log
echo 'colour: red' >>config.yaml
hup 'those from before stay in force'
grep -q "unknown option 'colour'" log || fail "the reason is not named: $(cat log)"
sed -i '/colour/d' config.yaml
echo 'bad' >keys
hup 'api keys: line 1'
[ "$(status secret-carol)" = 200 ] || fail "a refused file changed the keys: $(cat body)"
printf 'secret-admin root admin\nsecret-carol carol\n' >keys

# ---- drain ----
refuses 1 "an administrator's key is needed" "$CHIMERE" drain --url "$url"
refuses 1 'got 403' "$CHIMERE" drain --url "$url" --url-key secret-carol
refuses 1 '--url names the server' "$CHIMERE" drain --url http://127.0.0.1:1
curl -sSN -m 300 -o answer -H "Authorization: Bearer secret-carol" "$url/v1/completions" \
    -d '{"prompt":"One, two,","max_tokens":450,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}' &
asked=$!
for _ in $(seq 2400); do [ -s answer ] && break || sleep 0.05; done # it has begun
"$CHIMERE" drain --url "$url" --api-key keys || fail "drain"
wait $asked || fail "the answer that had begun was lost"
grep -q '"completion_tokens":450' answer || fail "the answer is cut: $(cat answer)"
[ "$(curl -sS -m 300 -o body -w '%{http_code}' "$url/health/ready")" = 503 ] || fail "ready although drained"
"$CHIMERE" drain --url "$url" --api-key keys --undo || fail "undo"
[ "$(curl -sS -m 300 -o body -w '%{http_code}' "$url/health/ready")" = 200 ] || fail "not ready: $(cat body)"
printf 'secret-carol carol\n' >others
refuses 1 'no key has the word admin' "$CHIMERE" drain --url "$url" --api-key others
kill "$pid"
wait "$pid" || fail "stopping ended with $?"
pid=
refuses 1 'chimere: ' "$CHIMERE" drain --url "$url" --url-key secret-admin
# over TLS, as in a pod, whose certificate names the service
printf 'secret-admin root admin\n' >keys
start --port 0 --tls-cert a.pem --tls-key a.key
"$CHIMERE" drain --url "$url" --api-key keys || fail "drain over TLS"
curl -sSk -m 300 "$url/health/ready" | grep draining >/dev/null || fail "ready although drained"
kill "$pid"
wait "$pid" || fail "stopping ended with $?"
pid=
refuses 2 'expected http' "$CHIMERE" drain --url localhost
