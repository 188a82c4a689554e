#!/usr/bin/env bash
# eval --suite ten, and eval of an endpoint: a server with canned answers, right ones and wrong ones of every kind;
# programs that end before their tests, loop, or print what they like; the shipped model over both ways.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
[ -x /usr/bin/python3 ] || {
    echo "skip: ten: no /usr/bin/python3, which runs the programs of answers"
    exit 77
}
cat >server.py <<'END'
import http.server, json, sys
answers = json.load(open(sys.argv[1]))  # part of the question: content, or a list of [name, arguments]
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def send(self, o, status=200):
        body = json.dumps(o).encode() if not isinstance(o, bytes) else o
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.send({"data": [{"id": "canned"}]})
    def do_POST(self):
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert q["model"] == "canned" and q["temperature"] == 0 and q["max_tokens"] > 0, q
        text = q["messages"][-1]["content"]
        key = next(k for k in answers if k in text)
        answer = answers[key]
        if answer == "GARBAGE": return self.send(b"<html>")
        if answer == "FAILS": return self.send({"error": {"message": "no such luck"}}, 400)
        message = {"role": "assistant", "content": answer if isinstance(answer, str) else None}
        if isinstance(answer, list):
            assert "tools" in q, q
            message["tool_calls"] = [{"id": "c%d" % i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                                     for i, (n, a) in enumerate(answer)]
        self.send({"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 7}})
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open("port", "w").write(str(server.server_port))
server.serve_forever()
END
cat >answers.py <<'END'
import json
merge = """```python
def merge_ranges(ranges):
    out = []
    for a, b in sorted(ranges):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out
```"""
roman = """Here it is:

```py
import re
def from_roman(text):
    if not text or not re.fullmatch("M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})", text):
        raise ValueError(text)
    v = dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)
    return sum(-v[a] if v[a] < v.get(b, 0) else v[a] for a, b in zip(text, text[1:] + " "))
```
It checks the form first."""
right = {
    "twisted an ankle": "<think>saddle</think>Bone tenderness at the back of the lateral or medial malleolus, or if they cannot take four steps.",
    "cauda equina": "Saddle anaesthesia, retention of URINE or other bladder trouble, loss of bowel control. Refer as an emergency for an MRI.",
    "Achilles": "Eccentric heel drops, twice a day for 12 weeks.",
    "cruciate ligament": "Hop tests and quadriceps strength above 90 % of the other leg, and at least nine months since surgery.",
    "COPD": "Endurance training, resistance training, education and breathing techniques; it is safe when supervised.",
    "merge_ranges": merge, "from_roman": roman, "One tap": "Together 1/6 + 1/4 - 1/12 = 1/3 of the tank in an hour, so 3",
    "Lisbon": [["get_weather", {"city": "Lisbon"}]],
    "blue room": [["set_timer", {"minutes": 25}], ["book_room", {"room": "the blue room", "day": "Thursday", "hour": 14}]],
}
wrong = dict(right)
wrong["twisted an ankle"] = "Tenderness of the malleolus <think> and four steps"   # says four steps; still right
wrong["cauda equina"] = "Saddle anaesthesia, bladder and bowel trouble. It is not urgent; at once is too soon."
wrong["Achilles"] = "Eccentric exercise, until it is better."
wrong["cruciate ligament"] = "Hop tests only."
wrong["COPD"] = "Endurance, strength training, breathing and education, but you should avoid exercise if afraid."
wrong["merge_ranges"] = "```python\nimport sys\nprint('passed-0123456789abcdef')\nsys.exit(0)\n```"
wrong["from_roman"] = "```python\ndef from_roman(text):\n    while True: pass\n```"
wrong["One tap"] = "3 or maybe 4"
wrong["Lisbon"] = "It rains in Lisbon."
wrong["blue room"] = [["set_timer", {"minutes": 25}], ["book_room", {"room": "blue", "day": "Thursday", "hour": 2}]]
for name, o in (("right", right), ("wrong", wrong)):
    json.dump(o, open(name + ".json", "w"))
for name, answer in (("garbage", "GARBAGE"), ("fails", "FAILS")):
    json.dump({**right, "One tap": answer}, open(name + ".json", "w"))
END
python3 answers.py
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null || true; wait; rm -rf "$work"' EXIT
serve() { # NAME: a server with these answers, at $url
    [ -z "$pid" ] || kill "$pid"
    rm -f port
    python3 server.py "$1.json" 2>server.err &
    pid=$!
    for _ in $(seq 1200); do
        [ -s port ] && break
        sleep 0.1
    done
    url=http://127.0.0.1:$(cat port)
}
rights() { python3 -c 'import json, sys; print(" ".join(r["id"] for r in json.load(open(sys.argv[1]))["items"] if r["right"]))' "$1"; }

serve right
if ! "$CHIMERE" eval --url "$url" --suite ten -q --json >run 2>err; then
    grep -q sandbox err || fail "$(cat err)"
    echo "skip: ten: $(cat err)"
    exit 77
fi
[ "$(rights run)" = "ten-ankle ten-cauda ten-achilles ten-knee ten-copd ten-merge ten-roman ten-tank ten-weather ten-room" ] ||
    fail "right answers: only $(rights run)"
grep -q '"model": "canned"' run || fail "no model"
"$CHIMERE" eval --url "$url" --suite ten -q >table
grep -qE '^ten_physiotherapy +5 +100\.0%' table && grep -qE '^all +10 +100\.0%' table || fail "$(cat table)"
serve wrong
"$CHIMERE" eval --url "$url" --suite ten -q --json >run
[ "$(rights run)" = ten-ankle ] || fail "wrong answers that count: $(rights run)"
"$CHIMERE" eval --compare run run | grep -E '^all +10 ' >/dev/null || fail "a run of an endpoint cannot be compared"
serve garbage
refuses 1 'item ten-tank: expected an answer' "$CHIMERE" eval --url "$url" --suite ten -q
serve fails
refuses 2 'no such luck' "$CHIMERE" eval --url "$url" --suite ten -q
refuses 2 'need a local model' "$CHIMERE" eval --url "$url" --suite ten --strategy greedy
item='{"id": "i", "skill": "s", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "check": '
for bad in '{"kind": "facts", "all": []}' '{"kind": "facts", "all": [["a"]], "least": 2}' '{"kind": "facts", "all": ["a"]}' \
    '{"kind": "facts", "all": [["a"]], "none": [1]}' '{"kind": "python"}'; do
    echo "$item$bad}" >bad.jsonl
    refuses 1 'check.' "$CHIMERE" eval -m nano --suite bad.jsonl
done

# The shipped model, in this process and served: the same answers, in the same form.
model=$(dirname "$CHIMERE")/chimere-nano.gguf
[ -f "$model" ] || exit 0
"$CHIMERE" eval -m "$model" --suite ten --suite word_problem --suite tool_multi -n 10 -q --json --ctx 2048 >here
kill "$pid"
"$CHIMERE" serve -m "$model" -q --port 0 --ctx 2048 --no-speculate --no-odo >served 2>&1 &
pid=$!
for _ in $(seq 1200); do
    url=$(grep -o 'http://127[^ ]*' served | head -n 1) && break
    sleep 0.1
done
"$CHIMERE" eval --url "$url" --suite ten --suite word_problem --suite tool_multi -n 10 -q --json >there
"$CHIMERE" eval --compare here there | grep -E '^all ' >pair
grep -qE ' 0 +0 +1\.0000$' pair || fail "an endpoint answers differently: $(cat pair)"
