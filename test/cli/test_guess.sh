#!/usr/bin/env bash
# What one client may not do to others: guess what another key asked by cached_tokens, or take the memory of all by a small
# body.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

trap 'stop_server; rm -rf "$work"' EXIT
for name in alice bob; do "$CHIMERE" key add $name --state-dir keys >$name.key 2>/dev/null; done
start_server --keys --state-dir keys --no-odo -q
python3 - "$url" <<'PY' || fail "$(cat said)"
import http.client, json, re, sys
address = sys.argv[1].split("//")[1]
alice, bob = (re.search("sk-chimere-[0-9a-f]+", open(n + ".key").read())[0] for n in ("alice", "bob"))

def ask(key, body, path="/v1/chat/completions"):
    c = http.client.HTTPConnection(address, timeout=120)
    c.request("POST", path, body, {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    r = c.getresponse()
    return r.status, r.read()

def cached(key, pin, user=None):
    text = (f"Dear bank, the PIN of my card is {pin:04d} and I would like to change it soon, so that nobody else can use the "
            "card. Please answer by letter to my address in the old town, number nine, third floor, and do not call me "
            "before noon. Thank you very much for your help, and all the best to your family and friends in the village. ") * 2
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1, "temperature": 0}
    status, answer = ask(key, json.dumps({**body, "user": user} if user else body))
    assert status == 200, answer
    return json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]

assert cached(alice, 4271) == 0
assert cached(alice, 4271) >= 64, "the test shows nothing: the owner's own prompt is not kept"
hits = [pin for pin in range(4268, 4275) if cached(bob, pin)]
assert not hits, f"another key learns: {hits}"
assert cached(alice, 4271, "carol") == 0, "another user of the key learns"

many = b"{}," * 2700000 + b"1"
for body in (b'{"messages":[{"role":"user","content":"hi"}],"metadata":[' + many + b"]}", b'{"messages":[' + many + b"]}",
             b'{"x":[' + many + b"]}", b'{"messages":' + b"[" * 1000000 + b"]" * 1000000 + b"}"):
    status, answer = ask(bob, body)
    assert status == 400 and b"too many values" in answer, (status, answer[:200])
PY
echo "guess: ok"
