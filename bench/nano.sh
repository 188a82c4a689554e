#!/usr/bin/env bash
# bench/nano.sh [TEXT]: the figures that chimere-nano must reach, on a quiet machine; minutes.
#
# Decoding one and eight sequences on two threads; acceptance of first drafts and decoding with drafts against
# without, on stories and on JSON; with TEXT, perplexity of Q8_0 against bfloat16. CHIMERE names the program.
set -euo pipefail
cd "$(dirname "$0")/.."
chimere=${CHIMERE:-build/release/chimere}
model=$(dirname "$chimere")/chimere-nano.gguf

"$chimere" bench -m "$model" -p 256 -n 128 -r 5 -t 2 --parallel 1,8

python3 - "$chimere" "$model" <<'END'
import json, statistics, subprocess, sys
chimere, model = sys.argv[1:3]
fields = ["name", "city", "job", "animal", "owner"]
def json_prompt(a, b):
    props = {a: {"type": "string"}, b: {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}
    schema = json.dumps({"type": "object", "properties": props, "required": list(props)})
    return "Extract the data as JSON.\nSchema: %s\nText: The %s is Lena. The %s is Oslo. The tags are river, clock, stone." % (schema, a, b)
json_prompts = [json_prompt(a, b) for a in fields for b in fields if a < b]
stories = ["Tell me a story about a %s." % a for a in "cat dog horse cow sheep goat pig duck hen fox".split()]
def run(prompt, *more):
    out = subprocess.run([chimere, "run", "-m", model, "-q", "--json", "--temp", "0", "-t", "2", "-n", "250", "-p", prompt, *more],
                         capture_output=True, check=True).stdout
    return json.loads(out)
for kind, prompts in ("stories", stories), ("json", json_prompts):
    ratios, drafted, accepted = [], 0, 0
    for p in prompts:
        first = run(p, "--speculate", "--draft-max", "1")
        drafted, accepted = drafted + first["n_drafted"], accepted + first["n_accepted"]
        plain, draft = (min(run(p, o)["decode_ms"] for _ in range(3)) for o in ("--no-speculate", "--speculate"))
        ratios.append(plain / draft)
    print("%s: %.1f %% of %d first drafts accepted; decoding with drafts %.2fx, median of %d prompts (%.2f to %.2f)" %
          (kind, 100 * accepted / max(drafted, 1), drafted, statistics.median(ratios), len(ratios), min(ratios), max(ratios)))
END

[ $# -eq 0 ] || for file in "$model" models/chimere-nano-bf16.gguf; do
    echo "$file: $("$chimere" eval -m "$file" -q --text "$1" | tr -s ' \n' ' ')"
done
