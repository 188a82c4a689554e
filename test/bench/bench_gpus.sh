#!/usr/bin/env bash
# bench_gpus.sh [CARDS [PART...]]: what several GPUs of one machine (0,1) reach, beside what they must. Every part prints
# each figure at once and has a time limit of its own, so that one that hangs or fails loses no other.
#
#   link     sums over the cards: the test of the kernels, and the time of one sum in either way
#   tokens   200 greedy answers of chimere-nano: one card, slices (twice) and slices through the host
#   35b      qwen35moe-35b ramp3 on one card, as slices, as layers, as replicas, and as slices through the host
#   27b      qwen35-27b q4_0, a dense shape, on one card and as slices
#
# 35b and 27b first measure without a server: the passes alone, the time of each op, what the cards exchange.
#
# $CHIMERE: the program, built with --preset cuda; beside it, if built, test/test_cuda_link. Models of random weights are
# written once to $SCRATCH (/dev/shm). CARDS=cpu,cpu tries the script without cards, on small models.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
CHIMERE=${CHIMERE:-build/cuda/chimere}
export CHIMERE
cards=${1:-0,1}
shift || true
scratch=${SCRATCH:-/dev/shm}
first=${cards%%,*}
results=$scratch/gpus.results
prompt=4096 gen=192 n_answer=200 device=cuda:${first#cuda:} by_op=--by-op
layers=()
case $cards in
*cpu*)
    prompt=128 gen=12 n_answer=12 device=cpu by_op=
    layers=(--layers 4 --vocab 2048)
    ;;
esac
pid='' url=''

# ---- one server ----

stop() {
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null
    for _ in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    pid=''
}
trap stop EXIT
trap 'exit 124' TERM

start() { # MODEL SERVE_ARGS...
    local said=$scratch/gpus.said
    stop
    rm -f "$said" # its address must not be that of the last server
    "$CHIMERE" serve -m "$1" --port 0 --no-odo --no-speculate "${@:2}" >"$said" 2>&1 &
    pid=$!
    until grep -qs 'http://' "$said"; do
        kill -0 "$pid" 2>/dev/null || {
            echo "    refused: $(grep -m 1 chimere: "$said")"
            return 1
        }
        sleep 0.1
    done
    grep -h '^[0-9] cards, \|^link: ' "$said" | sed 's/^/    /'
    url=$(grep -o 'http://[^ ?]*' "$said" | head -1)
}
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
load() { # PROMPT TOKENS STREAMS REQUESTS
    "$CHIMERE" bench --url "$url" --json -p "$1" -n "$2" --concurrency "$3" --requests "$4"
}
metric() { # what the first card has exchanged
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())' \
        "${url%/}/metrics" | sed -n 's/^chimere_card_link_\([a-z]*\){.*card="0"} /\1 /p' |
        awk '{ v[$1] = $2 } END { printf "    exchanged: %d sums, %.1f MB, %.1f us a sum, %s\n", v["sums"], v["bytes"] / 1e6,
            v["sums"] ? 1000 * v["ms"] / v["sums"] : 0, v["direct"] ? "directly" : "through the host" }'
}

# ---- figures ----

# KEY VALUE [OF LEAST]: prints a figure, and its ratio to the figure OF, which must be at least LEAST
figure() {
    local of=''
    echo "$1 $2" >>"$results"
    [ -z "${3:-}" ] || of=$(awk -v k="$3" '$1 == k { v = $2 } END { print v }' "$results")
    if [ -n "$of" ]; then
        awk -v k="$1" -v v="$2" -v o="$of" -v n="$3" -v m="$4" 'BEGIN {
            r = o > 0 ? v / o : 0
            printf "    %-28s %10.1f  %.2f times %s, at least %.2f: %s\n", k, v, r, n, m, (r >= m ? "reached" : "MISSED") }'
    else
        printf '    %-28s %10.1f\n' "$1" "${2:-0}"
    fi
}
decode() { # KEY STREAMS [OF LEAST]: tokens a second of all streams, mean of two runs
    local a b
    a=$(load 64 "$gen" "$2" $((2 * $2 + 1)) | field decode_tok_s)
    b=$(load 64 "$gen" "$2" $((2 * $2 + 1)) | field decode_tok_s)
    echo "    two runs: $a $b"
    figure "$1" "$(awk -v a="$a" -v b="$b" 'BEGIN { print (a + b) / 2 }')" "${@:3}"
}
prefill() { # KEY [OF LEAST]: prompt tokens a second
    local s
    load "$prompt" 1 1 2 >/dev/null
    s=$(load "$prompt" 1 1 6 | field seconds)
    figure "$1" "$(awk -v n="$prompt" -v s="$s" 'BEGIN { print (s > 0 ? 6 * n / s : 0) }')" "${@:2}"
}
model() { # SHAPE MIX: path of its file
    local file=$scratch/gpus-$1-$2.gguf
    if [ ! -f "$file" ]; then
        "$CHIMERE" synth "$1" "$2" "$file.part" "${layers[@]}" >/dev/null || return 1
        mv "$file.part" "$file"
    fi
    echo "$file"
}
big() { # 35b | 27b: the model's file; small ones without cards
    case $cards:$1 in
    *cpu*) model qwen35moe-mini q8 ;;
    *:35b) model qwen35moe-35b ramp3 ;;
    *) model qwen35-27b q4_0 ;;
    esac
}

# ---- parts ----

part_link() {
    local test
    test=$(dirname "$CHIMERE")/test/test_cuda_link
    if [ -x "$test" ]; then timeout 60 "$test" 2>&1 | sed 's/^/    /'; fi
    start models/chimere-nano-bf16.gguf --gpus "$cards" --split tensor --ctx 1024 --parallel 1 &&
        load 64 32 1 2 >/dev/null && metric
}

answers() { # FILE: a line per answer: text, tokens, and the five most likely ones at each place
    python3 - "$url" "$1" "$n_answer" <<'PY'
import json, random, sys, urllib.request
url, out = sys.argv[1].rstrip("/"), open(sys.argv[2], "w")
rng = random.Random(7)
words = "the a one two river house number answer question red blue why how many count from to city name year".split()
for i in range(int(sys.argv[3])):
    prompt = " ".join(rng.choice(words) for _ in range(8 + i % 40))
    body = json.dumps({"prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 5}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        choice = json.load(r)["choices"][0]
    seen = choice["logprobs"]
    out.write(json.dumps([choice["text"], seen["tokens"], seen["top_logprobs"]]) + "\n")
PY
}
same() { # FILE FILE: how many answers are the same, and how close the others' tokens were where they part
    python3 - "$CHIMERE" "$1" "$2" <<'PY'
import array, json, subprocess, sys
row = array.array("f", subprocess.run([sys.argv[1], "logits", "-m", "models/chimere-nano-bf16.gguf", "-q", "--tokens", "1,2,3,4,5"],
                                      capture_output=True, check=True).stdout)
tie = 0.01 * (max(row) - min(row))
one, two = ([json.loads(line) for line in open(name)] for name in sys.argv[2:4])
same = ties = 0
widest = 0.0
for a, b in zip(one, two):
    at = next((i for i, (x, y) in enumerate(zip(a[1], b[1])) if x != y), None)
    if at is None:
        same += a[0] == b[0]
        continue
    top = a[2][at]
    gap = max(top.values()) - top.get(b[1][at], -1e9)
    ties += gap < tie
    widest = max(widest, gap)
print("%d, %d of %d differ at a tie, by %.3f nats at most (a tie: below %.3f)" % (same, ties, len(one) - same, widest, tie))
PY
}
part_tokens() {
    local nano=models/chimere-nano-bf16.gguf args=(--ctx 1024 --parallel 1) way
    start $nano --gpus "$first" "${args[@]}" && answers "$scratch/gpus.one"
    for way in auto again host; do
        start $nano --gpus "$cards" --split tensor --link ${way/again/auto} "${args[@]}" || continue
        answers "$scratch/gpus.$way" || continue
        echo "    $way: answers as on one card, of $n_answer: $(same "$scratch/gpus.one" "$scratch/gpus.$way")"
        [ $way = again ] || continue
        echo "    two runs: the same answers, of $n_answer: $(same "$scratch/gpus.auto" "$scratch/gpus.again")"
    done
}

one() { # NAME STREAMS...: on one card
    start "$(big "$1")" --gpus "$first" --ctx 5120 --parallel 16 || return
    local s
    load 64 "$gen" 1 2 >/dev/null # to warm up
    for s in "${@:2}"; do decode "$1.one.$s" "$s"; done
    prefill "$1.one.prefill"
}
slices() { # NAME LINK LEAST_DECODE LEAST_PREFILL
    local key=$1.tensor.$2
    start "$(big "$1")" --gpus "$cards" --split tensor --link "$2" --ctx 5120 --parallel 16 || return
    load 64 "$gen" 1 2 >/dev/null
    decode "$key.1" 1 "$1.one.1" "$3"
    prefill "$key.prefill" "$1.one.prefill" "$4"
    metric
}
passes() { # NAME LEAST_DECODE LEAST_PREFILL: without a server
    local out=$scratch/gpus.passes how key rate test
    for how in "--device $device" "--gpus $cards"; do
        key=$1.passes.one
        [[ $how != --gpus* ]] || key=$1.passes.tensor
        # shellcheck disable=SC2086
        "$CHIMERE" bench -q -m "$(big "$1")" $how $by_op -p "$prompt" -n "$gen" -r 3 >"$out" 2>&1
        sed 's/^/    /' "$out"
        for test in prefill decode; do
            rate=$(sed -n "s/.* $test [0-9]* *[0-9]* *[0-9]* *\([0-9.]*\) .*/\1/p" "$out")
            if [ "$key" = "$1.passes.one" ]; then figure "$key.$test" "$rate"
            elif [ $test = decode ]; then figure "$key.$test" "$rate" "$1.passes.one.$test" "$2"
            else figure "$key.$test" "$rate" "$1.passes.one.$test" "$3"; fi
        done
    done
}
part_35b_passes() { passes 35b 1.0 1.6; }
part_27b_passes() { passes 27b 1.5 1.6; }
part_35b_one() { one 35b 1 8 16; }
part_35b_tensor() { slices 35b auto 1.0 1.6; }
part_35b_layer() {
    start "$(big 35b)" --gpus "$cards" --split layer --ctx 1280 --parallel 16 || return
    load 64 "$gen" 16 32 >/dev/null
    decode 35b.layer.16 16 35b.one.8 1.6
    decode 35b.layer.1 1 35b.one.1 0.8
}
part_35b_replica() {
    start "$(big 35b)" --gpus "$cards" --split replica --ctx 1280 --parallel 16 || return
    load 64 "$gen" 32 64 >/dev/null
    decode 35b.replica.32 32 35b.one.16 1.95
}
part_35b_host() { slices 35b host 0 0; }
part_27b_one() { one 27b 1; }
part_27b_tensor() { slices 27b auto 1.5 1.6; }

# ---- all ----

limits='link:60 tokens:100 35b_passes:70 35b_one:90 35b_tensor:60 35b_layer:50 27b_passes:80 27b_one:70 27b_tensor:60
    35b_replica:60 35b_host:50'
if [ "${1:-}" = --only ]; then # one part, within its limit
    "part_$2"
    exit
fi
if ! "$CHIMERE" serve --check -q -m models/chimere-nano-bf16.gguf --ctx 1024 --gpus "$cards" >/dev/null 2>"$scratch/gpus.why"; then
    echo "skip: several GPUs: $(head -1 "$scratch/gpus.why")"
    exit 0
fi
rm -f "$results"
began=$SECONDS
big 35b >/dev/null &
writers=$!
for limit in $limits; do
    part=${limit%:*}
    [ $# -eq 0 ] || [[ " $* " == *" ${part%%_*} "* ]] || continue
    if [[ $part == 35b_passes ]]; then
        wait $writers
        big 27b >/dev/null & # while the 35b is measured on cards
        writers=$!
    fi
    [[ $part != 27b_passes ]] || wait $writers
    echo "== $part, after $((SECONDS - began)) s"
    timeout -k 15 "${limit#*:}" bash "$0" "$cards" --only "$part"
    [ $? -lt 124 ] && continue
    echo "    not finished within ${limit#*:} s"
    if [ "$part" = link ]; then # a card may wait while the driver loads a kernel for another one
        export CUDA_MODULE_LOADING=EAGER
        echo "    from here on with CUDA_MODULE_LOADING=EAGER"
    fi
done
wait
echo "== $((SECONDS - began)) s"
rm -f "$scratch"/gpus.{said,passes,one,auto,again,host,why}
