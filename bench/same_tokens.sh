#!/usr/bin/env bash
# bench/same_tokens.sh LLAMA_DIR [MODEL [PROMPTS [TOKENS [TIE]]]]: does llama.cpp go on greedily as we do?
#
# LLAMA_DIR: a source tree of llama.cpp with its libraries in build/bin. Each prompt is the question of an item
# of eval/*.jsonl in the model's chat form. llama.cpp answers with TOKENS ids; our logits behind each of them must
# have the next one as their largest. A tie, where our best and theirs are closer than TIE (0.01) of the range, ends a prompt's
# comparison: behind it the texts differ. Ties have no bound: how many there are is the model's doing and that of 8-bit
# activations, which both round, each with sums of its own order; bfloat16 has few. Any other difference is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
llama=$1
chimere=${CHIMERE:-build/release/chimere}
model=${2:-$(dirname "$chimere")/chimere-nano.gguf}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 -I"$llama/include" -I"$llama/ggml/include" bench/llama_tokens.c -o "$work/llama_tokens" \
    -L"$llama/build/bin" -lllama -lggml -lggml-base -Wl,-rpath,"$llama/build/bin"

python3 - "$chimere" "$model" "$work/llama_tokens" "${3:-200}" "${4:-24}" "${5:-0.01}" <<'END'
import array, glob, json, subprocess, sys
chimere, model, llama, n_prompt, n_token, tie = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
skills = [[json.loads(line) for line in open(name)] for name in sorted(glob.glob("eval/*.jsonl"))]
items = [skill[i] for i in range(max(map(len, skills))) for skill in skills if i < len(skill)][:n_prompt]
def run(*args, **more):
    return subprocess.run(args, capture_output=True, check=True, **more).stdout
prompts = []
for item in items:
    text = "".join("<|im_start|>%s\n%s<|im_end|>\n" % (m["role"], m.get("content") or "") for m in item["messages"])
    text += "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    prompts.append([int(t) for t in run(chimere, "tokenize", "-m", model, "--special", input=text.encode())
                    .decode().replace(",", " ").split()])
lines = "".join(" ".join(map(str, p)) + "\n" for p in prompts)
theirs = [[int(t) for t in l.split()] for l in run(llama, model, str(n_token), input=lines.encode()).decode().splitlines()]
same = ties = other = compared = 0
for prompt, more in zip(prompts, theirs):
    ids = prompt + more[:-1]
    rows = array.array("f", run(chimere, "logits", "-m", model, "-q", "--all", "--tokens", ",".join(map(str, ids))))
    n_vocab = len(rows) // len(ids)
    end = "same"
    for i, want in enumerate(more):
        at = (len(prompt) - 1 + i) * n_vocab
        row = rows[at:at + n_vocab]
        best = max(row)
        if row.index(best) == want:
            compared += 1
            continue
        end = "tie" if best - row[want] < tie * (best - min(row)) else "other"
        if end == "other":
            print("prompt %d, token %d: llama.cpp takes %d, we %d by %.3f of the range" %
                  (len(prompt), i, want, row.index(best), (best - row[want]) / (best - min(row))))
        break
    same, ties, other = same + (end == "same"), ties + (end == "tie"), other + (end == "other")
print("%d prompts: %d the same, %d until a tie, %d other; %d tokens compared" % (len(prompts), same, ties, other, compared))
sys.exit(other > 0)
END
