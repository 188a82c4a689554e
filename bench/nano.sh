#!/usr/bin/env bash
# bench/nano.sh [TEXT]: the figures that chimere-nano must reach, on a quiet machine; minutes.
#
# Decoding one and eight sequences on two threads; decoding with drafts against without, and how many drafts were
# accepted, on stories, JSON and tool calls; with TEXT, perplexity of Q8_0 against bfloat16. CHIMERE names the program.
#
# Answers are short (7 ms for an object of JSON), so two servers, one that drafts and one that does not, answer the same
# prompts in turn, in either order; a round that warms them is not counted. Given is the median of the pairs' ratios
# with its quartiles, and the ratio of all times together. The texts must be the same.
set -euo pipefail
cd "$(dirname "$0")/.."
chimere=${CHIMERE:-build/release/chimere}
model=$(dirname "$chimere")/chimere-nano.gguf

"$chimere" bench -m "$model" -p 256 -n 128 -r 5 -t 2 --parallel 1,8

python3 - "$chimere" "$model" <<'END'
import json, statistics, subprocess, sys, urllib.request
chimere, model = sys.argv[1:3]
ROUNDS = 6
def serve(option):
    p = subprocess.Popen([chimere, "serve", "-m", model, "-q", "-t", "2", "--port", "0", "--prompt-cache", "0", option],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in p.stdout:
        if "http://" in line:
            return p, line[line.index("http://"):].split()[0]
    sys.exit("nano.sh: %s did not start" % chimere)
def ask(url, item):
    body = {"messages": item["messages"], "temperature": 0, "max_tokens": 250}
    if "tools" in item:
        body["tools"] = item["tools"]
    head = {"Content-Type": "application/json"}
    answer = json.load(urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), head)))
    message = answer["choices"][0]["message"]
    calls = [c["function"] for c in message.get("tool_calls") or []]
    return (message.get("content"), calls), answer["timings"]
def items(skill):
    return [json.loads(line) for line in open("eval/%s.jsonl" % skill)][:20]
animals = "cat dog horse cow sheep goat pig duck hen fox".split()
kinds = {"stories": [{"messages": [{"role": "user", "content": "Tell me a story about a %s." % a}]} for a in animals],
         "JSON": items("json_schema"), "tool calls": items("tool_multi")}
plain, draft = serve("--no-speculate"), serve("--speculate")
failed = False
try:
    for kind, prompts in kinds.items():
        ratios, ms, n, drafted, accepted = [], [0, 0], 0, 0, 0
        for k in range(ROUNDS * len(prompts)):
            item, got = prompts[k % len(prompts)], [None, None]
            for side in (0, 1) if (k + k // len(prompts)) % 2 else (1, 0):
                got[side] = ask((plain, draft)[side][1], item)
            failed |= got[0][0] != got[1][0]
            if k < len(prompts):
                continue
            t = [g[1] for g in got]
            ratios.append(t[0]["predicted_ms"] / t[1]["predicted_ms"])
            ms = [ms[0] + t[0]["predicted_ms"], ms[1] + t[1]["predicted_ms"]]
            n, drafted, accepted = n + t[1]["predicted_n"], drafted + t[1]["draft_n"], accepted + t[1]["draft_n_accepted"]
        q = statistics.quantiles(ratios, n=4)
        print("%s: %d pairs of %.0f tokens; decoding with drafts %.2fx (quartiles %.2f, %.2f; all together %.2fx), %.3f ms a token; "
              "%d of %d drafts accepted" % (kind, len(ratios), n / len(ratios), q[1], q[0], q[2], ms[0] / ms[1], ms[1] / n, accepted, drafted))
finally:
    for p, _ in (plain, draft):
        p.terminate()
if failed:
    sys.exit("nano.sh: a text differs with drafts")
END

[ $# -eq 0 ] || for file in "$model" models/chimere-nano-bf16.gguf; do
    echo "$file: $("$chimere" eval -m "$file" -q --text "$1" | tr -s ' \n' ' ')"
done
