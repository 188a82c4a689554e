#!/usr/bin/env bash
# bench/gpu.sh PART...: what a machine with an NVIDIA GPU is asked, one part after the other, from a CUDA build.
#
#   test     test_cuda, test_cuda_attn, test_cuda_pool, test_cuda_lend, test_cuda_golden and test_cuda_engine
#   sanitize test_cuda, test_cuda_attn and test_cuda_engine under compute-sanitizer: memory and leaks, then races; SANITIZE_S
#            seconds each at most (default 240)
#   text     greedy answers of chimere-nano to 200 questions of eval/, the GPU's beside the CPU's
#   nano     KL divergence and top-1 agreement of the GPU against the CPU on chimere-nano
#   35b      speed of qwen35moe-35b, mix ramp3; 35b-deep: at depth 32,768; 35b-q4: mix q4km
#   curve    qwen35moe-35b ramp3 with 1 to 128 sequences, short prompts, drafts of 1 to 8 tokens; a size that is
#            slower than a smaller one fails
#   kernels  time of each kernel with 1 to 128 sequences and of prompts of 2 and 4 tokens; the card model checked
#            on 64 multiprocessors
#   tiers    35b with less memory than its experts need: slots for experts in use, and whole layers on the processor
#   dense    27b q4km with less memory than its weights need: feed-forward blocks on the processor, against what the
#            memory bandwidths of both allow. VRAM selects
#   35b-cpu  the same with the experts of all layers on the processor: decode there, prompts bring them
#   nemotron speed of nemotron-30b q4_0
#   scaling  35b on 1, 2, 4 and 8 cards as replicas, layers and slices, with 1 to 128 streams; memory per card beside the
#            plan. MODELS="122b 397b" PART CARDS STREAMS select: bench/scaling.py
#   profile  time and bytes of each kernel of one decode step, and of a prefill, by Nsight Compute
#
# BUILD: the build folder (default build/cuda). Models of random weights are written once to SCRATCH (/dev/shm).
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=${BUILD:-build/cuda}
scratch=${SCRATCH:-/dev/shm}
chimere=$build/chimere

model() { # SHAPE MIX: path of its file
    local file=$scratch/$1-$2.gguf
    [ -f "$file" ] || "$chimere" synth "$1" "$2" "$file" >&2 || return 1
    echo "$file"
}
bench() { "$chimere" bench --device cuda --by-op "$@"; }
profile() { # NAME SKIP COUNT ARGS...
    local name=$1 skip=$2 count=$3
    shift 3
    ncu --csv --metrics gpu__time_duration.sum,dram__bytes_read.sum,smsp__inst_executed.sum --cache-control none --clock-control none \
        --launch-skip "$skip" --launch-count "$count" "$chimere" bench --device cuda "$@" \
        >"$scratch/$name.csv" 2>"$scratch/$name.err" || tail -3 "$scratch/$name.err"
    python3 - "$scratch/$name.csv" <<'PY'
import csv, collections, re, sys
lines = open(sys.argv[1]).read().splitlines()
at = next((i for i, l in enumerate(lines) if l.startswith('"ID"')), None)
if at is None:
    sys.exit("no profile: " + " | ".join(lines[-3:]))
t, b, n, o = (collections.Counter() for _ in range(4))
for r in csv.DictReader(lines[at:]):
    k = re.sub(r"\(.*", "", r["Kernel Name"])[:60] + " " + r["Grid Size"]
    v = float(r["Metric Value"].replace(",", ""))
    u = r["Metric Unit"]
    if "time" in r["Metric Name"]:
        t[k] += v * {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}.get(u, 1)
        n[k] += 1
    elif "inst" in r["Metric Name"]:
        o[k] += v
    else:
        b[k] += v * {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1, "Gbyte": 1e3, "B": 1e-6, "KB": 1e-3, "MB": 1, "GB": 1e3}.get(u, 1)
print("    us   times    us each       MB   GB/s   instructions  kernel and grid")
for k, v in t.most_common(30):
    print(f"{v:8.1f} {n[k]:5d} {v / n[k]:10.2f} {b[k]:9.1f} {b[k] / max(v, 1e-9) * 1e3:6.0f} {o[k] / n[k]:14.0f}  {k}")
print(f"{sum(t.values()):8.1f} {sum(n.values()):5d}            {sum(b.values()):9.1f}         all")
PY
}

text() { # MODEL: 64 tokens of each answer; where they part, how far apart the CPU has the two tokens
    local model=$1 devices=(cpu cuda) pids=() ports=() i
    [ -z "${TEXT_DEVICES:-}" ] || read -ra devices <<<"$TEXT_DEVICES"
    mkdir -p "$scratch/empty"
    for i in 0 1; do
        ports+=($((18500 + i)))
        "$chimere" serve -q -m "$model" --device "${devices[i]}" --port "${ports[i]}" --parallel 8 -c 2048 --no-speculate \
            --engram-dir "$scratch/empty" --prompt-cache 0 >"$scratch/serve.$i" 2>&1 &
        pids+=($!)
    done
    python3 - "${ports[@]}" <<'PY'
import concurrent.futures, glob, json, sys, time, urllib.error, urllib.request
skills = [[json.loads(line) for line in open(name)] for name in sorted(glob.glob("eval/*.jsonl"))]
skills = [s for s in skills if not any("tools" in item for item in s)]
items = [skill[i] for i in range(max(map(len, skills))) for skill in skills if i < len(skill)][:200]
TIE = 0.25  # of a logarithm of probabilities: 1 % of the logits' range
def ask(port, item):
    body = {"messages": item["messages"], "temperature": 0, "max_tokens": 64, "logprobs": True, "top_logprobs": 5}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    for left in range(120, -1, -1):
        try:
            return json.load(urllib.request.urlopen(request))["choices"][0]["logprobs"]["content"]
        except urllib.error.HTTPError as e:
            sys.exit(f"{item['id']}: {e.read().decode()}")
        except OSError: # it is still loading
            if not left:
                raise
            time.sleep(0.5)
def answers(port):
    ask(port, items[0])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda item: ask(port, item), items))
ours, theirs = (answers(port) for port in sys.argv[1:])
same, ties, other = 0, [], []
for item, a, b in zip(items, ours, theirs):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x["token"] != y["token"]), None)
    if at is None and len(a) == len(b):
        same += 1
        continue
    if at is None: # one ends where the other goes on
        at = min(len(a), len(b))
        top = {t["token"]: t["logprob"] for t in max(a, b, key=len)[at]["top_logprobs"]}
        ends = [p for token, p in top.items() if token == "" or token.startswith("<|")]
        gap = abs(max(a, b, key=len)[at]["logprob"] - max(ends, default=-99))
    else:
        top = {t["token"]: t["logprob"] for t in a[at]["top_logprobs"]}
        gap = a[at]["logprob"] - top.get(b[at]["token"], -99)
    (ties if gap <= TIE else other).append((item["id"], round(gap, 4)))
print(f"{len(items)} answers, {sum(map(len, ours))} tokens: {same} the same, {len(ties)} part at a tie, {len(other)} otherwise")
print("ties:", ties, "other:", other)
sys.exit(bool(other))
PY
    echo "text: $?"
    kill "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null
}

link() { # the rate of copies from pinned memory to the card, by the driver's copy engine
    nvidia-smi --query-gpu=name,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader
    python3 - <<'PY'
import ctypes, time
cu = ctypes.CDLL("libcuda.so.1")
size, host, card, context = 1 << 30, ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
calls = [("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0), ("cuCtxSetCurrent", context),
         ("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), 0),
         ("cuMemAlloc_v2", ctypes.byref(card), ctypes.c_size_t(size))]
for name, *args in calls:
    if getattr(cu, name)(*args):
        raise SystemExit(f"link: {name} failed")
times = []
for _ in range(4):
    start = time.perf_counter()
    cu.cuMemcpyHtoD_v2(card, host, ctypes.c_size_t(size))
    times.append(time.perf_counter() - start)
print(f"link: {size / min(times) * 1e-9:.1f} GB/s")
PY
}

tiers() { # MODEL: slots against whole layers on the processor; random weights choose as trained ones do (docs/tiers.md)
    local vram how
    link
    "$chimere" bench --device cuda -m "$1" --routing trace-like -p 2048 -n 128 -r 2
    for vram in ${VRAM:-8G 10G 6G 12G 15300M}; do
        for how in "-r 2" "-r 1 --no-expert-slots"; do
            echo "-- --vram $vram $how ($SECONDS s)"
            # shellcheck disable=SC2086
            "$chimere" bench --device cuda -m "$1" --vram "$vram" --routing trace-like -p 2048 -n 128 $how
        done
    done
    echo "-- --vram 6G, experts chosen at random: the most misses ($SECONDS s)"
    "$chimere" bench --device cuda -m "$1" --vram 6G -p 0 -n 128 -r 1
}

dense() { # MODEL: layers on the processor, against the bytes over the measured bandwidths (docs/tiers.md)
    local vram
    link
    "$chimere" bench --device cpu --json -q -m "$1" -p 0 -n 8 -r 1 >"$scratch/dense.cpu.json" || return
    "$chimere" bench --device cuda --json -q -m "$1" -p 2048 -n 64 -r 2 >"$scratch/dense.cuda.json" || return
    for vram in ${VRAM:-12G 14G 10G}; do
        echo "-- --vram $vram ($SECONDS s)"
        "$chimere" inspect --memory --device cuda --vram "$vram" "$1" | grep -E 'context|feed-forward|in all'
        "$chimere" bench --device cuda --json -q -m "$1" --vram "$vram" -p 2048 -n 64 -r 2 >"$scratch/dense.json" || continue
        python3 - "$scratch" <<'PY'
import json, sys
read = lambda name: {r["test"]: r for r in json.load(open(sys.argv[1] + "/" + name))}
cpu, whole, got = read("dense.cpu.json")["decode"], read("dense.cuda.json"), read("dense.json")
one = got["decode"]
host, card = one["host_bytes_per_tok"], one["bytes_per_tok"] - one["host_bytes_per_tok"]
bound = 1 / (host / cpu["bandwidth"] + card / whole["decode"]["bandwidth"])
print(f"decode {one['tok_s']:.2f} tokens per second; {card / 1e9:.2f} GB by the GPU at {whole['decode']['bandwidth'] / 1e9:.0f}"
      f" GB/s, {host / 1e9:.2f} GB by the processor at {cpu['bandwidth'] / 1e9:.1f} GB/s: bound {bound:.2f},"
      f" {one['tok_s'] / bound:.2f} of it; processor alone {cpu['tok_s']:.2f} tokens per second,"
      f" {cpu['bandwidth_fraction']:.2f} of its bound; GPU alone {whole['decode']['tok_s']:.1f}")
print(f"prefill 2,048: {got['prefill']['tok_s']:.0f} tokens per second; GPU alone {whole['prefill']['tok_s']:.0f}")
PY
    done
    echo "-- short prompts with the last of them ($SECONDS s): batches of 42 and more are streamed"
    for n in 16 41 42 64; do bench -m "$1" --vram "$vram" -p $n -n 0 -r 2; done
    bench -m "$1" --vram "$vram" -p 2048 -n 8 -r 1
}

curve() { # MODEL: tokens per second and time of a step by number of sequences
    "$chimere" bench --device cuda --json -m "$1" -p 0 -n 32 -r 3 \
        --parallel 1,2,3,4,6,8,12,16,17,20,24,32,48,64,96,128 >"$scratch/curve.json" || return
    python3 - "$scratch/curve.json" <<'PY'
import json, sys
NOISE = 0.97  # medians of three runs differ by less
rows = [(r["n_seq"], r["tok_s"]) for r in json.load(open(sys.argv[1])) if r["test"] == "decode"]
one, best, falls = rows[0][0] / rows[0][1], 0, []
print("sequences  tokens/s  ms a step  times one")
for n, rate in rows:
    print(f"{n:9d} {rate:9.0f} {1e3 * n / rate:10.2f} {n / rate / one:10.2f}")
    if rate < NOISE * best:
        falls.append(n)
    best = max(best, rate)
print("curve:", f"slower than a smaller size: {falls}" if falls else "rises")
sys.exit(bool(falls))
PY
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
for part in "$@"; do
    echo "== $part ($SECONDS s)"
    case $part in
    test)
        for t in test_cuda test_cuda_attn test_cuda_dense test_cuda_pool test_cuda_lend test_cuda_golden test_cuda_engine; do
            timeout 200 "$build/test/$t" >"$scratch/$t.log" 2>&1
            echo "$t: $? $(grep -cE '^\[       OK' "$scratch/$t.log") ok ($SECONDS s)"
            grep -vE '^\[( *RUN| *OK|=====)' "$scratch/$t.log" | head -${LINES_OF_TEST:-40}
        done ;;
    sanitize)
        tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
            echo "skip: compute-sanitizer not found: it comes with the CUDA toolkit"
            continue
        }
        for t in test_cuda test_cuda_attn test_cuda_engine; do
            for check in "memcheck --leak-check full" racecheck; do
                # shellcheck disable=SC2086
                timeout "${SANITIZE_S:-240}" "$tool" --tool $check --error-exitcode 99 "$build/test/$t" \
                    >"$scratch/$t.${check%% *}.log" 2>&1
                code=$? # 99: something was found; 124: time was up
                echo "$t ${check%% *}: $code $(grep -cE '^\[       OK' "$scratch/$t.${check%% *}.log") ok ($SECONDS s)"
                grep -E '^=========' "$scratch/$t.${check%% *}.log" | grep -v 'COMPUTE-SANITIZER' |
                    head -"${LINES_OF_TEST:-40}"
            done
        done ;;
    text) text models/chimere-nano-bf16.gguf ;;
    nano)
        nano=models/chimere-nano-bf16.gguf
        "$chimere" quantize "$nano" "$scratch/nano.gguf" q8_0 >/dev/null 2>&1 || cp "$nano" "$scratch/nano.gguf"
        for f in "$nano" "$scratch/nano.gguf"; do
            "$chimere" perplexity -q --device cpu -m "$f" -f README.md --save-base "$scratch/base" | tail -3
            "$chimere" perplexity -q --device cuda -m "$f" --kl-base "$scratch/base" | tail -8
            bench -m "$f" -p 512 -n 128 -r 3 --parallel 1,8
        done ;;
    35b) bench -m "$(model qwen35moe-35b ramp3)" -p 2048 -n 128 -r 3 --parallel 1,8 ;;
    curve)
        m=$(model qwen35moe-35b ramp3)
        curve "$m"
        echo "curve: $?"
        for n in 32 64 65 128; do "$chimere" bench --device cuda -m "$m" -p $n -n 0 -r 3; done
        "$chimere" bench --device cuda -m "$m" -p 0 -n 16 -r 1 --verify
        bench -m "$m" -p 0 -n 16 -r 1 --parallel 1,4,16,17,32,64 ;;
    kernels)
        m=$(model qwen35moe-35b ramp3)
        "$chimere" bench --device cuda -m "$m" -p 0 -n 24 -r 2 --parallel 1,2,4,8,17,32,64,128 --by-kernel
        for n in 2 4; do "$chimere" bench --device cuda -m "$m" -p $n -n 0 -r 3 --by-kernel; done
        "$chimere" bench --device cuda -m "$m" -p 0 -n 24 -r 2 --parallel 1,32,128 --sms 0,64,40 \
            --card rtx-5060-ti-16g ;;
    35b-deep) bench -m "$(model qwen35moe-35b ramp3)" -d 32768 -p 0 -n 64 -r 1 ;;
    35b-cpu)
        m=$(model qwen35moe-35b ramp3)
        for n in 256 512 2048; do bench -m "$m" -b $n -p 2048 -n 0 -r 3 --n-cpu-moe 40; done
        bench -m "$m" -p 0 -n 64 -r 3 --n-cpu-moe 40 ;;
    tiers) tiers "$(model qwen35moe-35b ramp3)" ;;
    dense) dense "$(model qwen35-27b q4km)" ;;
    35b-q4) bench -m "$(model qwen35moe-35b q4km)" -p 2048 -n 128 -r 3 ;;
    scaling) CHIMERE=$chimere SCRATCH=$scratch bench/scaling.py ;;
    nemotron) bench -m "$(model nemotron-30b q4_0)" -p 2048 -n 128 -r 3 ;;
    profile)
        m=$(model qwen35moe-35b ramp3)
        profile decode 600 600 -m "$m" -p 0 -n 6 -r 1
        profile prefill 0 900 -m "$m" -p 2048 -n 0 -r 1 ;;
    *) echo "gpu.sh: no part '$part'" >&2 ;;
    esac
done
echo "done ($SECONDS s)"
