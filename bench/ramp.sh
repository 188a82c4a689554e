#!/usr/bin/env bash
# bench/ramp.sh MODEL CALIBRATION HELD [BITS...]: what ramp gains over uniform types and llama-quantize's mixes.
#
# For each size (default 3.0 3.5 4.0 4.5 bits per weight): KL divergence over HELD of ramp's file, with data and
# without, against every uniform type and mix. Types and mixes are made with the same importance matrix, once with
# correlations (uniform, mix) and once without, as llama-quantize would (second-moments). Given is the ratio to the
# best of no smaller size, and to the uniform types' curve at the same size (log-linear between its points).
# MODE (portable or chimere), WORK (a folder that is kept), JOBS (files made at once, default 1) and CHIMERE may be
# set. chimere-nano: an hour on two cores, of which three minutes per search.
set -euo pipefail
cd "$(dirname "$0")/.."
export chimere=${CHIMERE:-build/release/chimere} mode=${MODE:-portable} work=${WORK:-$(mktemp -d)}
export model=$1 calibration=$2 held=$3 jobs=${JOBS:-1}
threads=$(($(nproc) / jobs))
export threads=$((threads > 0 ? threads : 1))
shift 3
[ $# -gt 0 ] || set -- 3.0 3.5 4.0 4.5
mkdir -p "$work"
record() { # KIND NAME FILE
    local bits kl
    bits=$("$chimere" inspect "$3" | grep -o '[0-9.]* bits per weight' | head -1 | cut -d' ' -f1)
    kl=$("$chimere" perplexity -m "$3" --kl-base "$work/base" -t "$threads" -q --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["kl"]["mean"])')
    rm "$3"
    echo "$1 $2 $bits $kl" >>"$work/results"
}
quantized() { # KIND TYPE OPTION...
    local file=$work/$1-$2.gguf kind=$1 type=$2
    shift 2
    "$chimere" quantize "$model" "$file" "$type" "$@" -t "$threads" -q >/dev/null 2>"$file.log" &&
        record "$kind" "$type" "$file"
}
searched() { # KIND BITS OPTION...
    local file=$work/$1-$2.gguf kind=$1 bits=$2
    shift 2
    "$chimere" ramp "$model" "$file" --bpw "$bits" --mode "$mode" "$@" -t "$threads" -q >/dev/null 2>"$file.log" &&
        record "$kind" "$bits" "$file"
}
export -f record quantized searched
: >"$work/results"
[ -e "$work/base" ] || "$chimere" perplexity -m "$model" -f "$held" --ctx 512 --save-base "$work/base" -q >/dev/null
"$chimere" imatrix -m "$model" -f "$calibration" -o "$work/imatrix.gguf" --ctx 256 --process-output --correlations -q >/dev/null
"$chimere" imatrix -m "$model" -f "$calibration" -o "$work/moments.gguf" --ctx 256 --process-output -q >/dev/null
{
    # each search has a folder of its own, as two runs must not share one
    for b in "$@"; do
        echo "searched ramp $b -f $calibration --imatrix $work/imatrix.gguf --work $work/data-$b"
        echo "searched data-free $b --work $work/free-$b"
    done
    for type in Q2_K IQ2_XS IQ2_S IQ3_XXS IQ3_S Q3_K IQ4_XS IQ4_NL Q4_0 Q4_K Q5_K; do
        echo "quantized uniform $type --pure --imatrix $work/imatrix.gguf"
        echo "quantized second-moments $type --pure --imatrix $work/moments.gguf"
        # without data, the types that need none
        echo "quantized plain $type --pure"
    done
    for mix in Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M IQ2_M IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_XS IQ4_NL; do
        echo "quantized mix $mix --imatrix $work/imatrix.gguf"
        echo "quantized mix-moments $mix --imatrix $work/moments.gguf"
    done
} | xargs -P "$jobs" -I{} bash -c '{} || echo "not made: {}" >&2'
python3 - "$work/results" <<'END'
import math, sys
rows = [(k, n, float(b), float(v)) for k, n, b, v in (line.split() for line in open(sys.argv[1]))]
def curve(kind, bits):
    points, best = [], math.inf
    for b, v in sorted((b, v) for k, _, b, v in rows if k == kind):
        if v < best:
            best = v
            points.append((b, v))
    for (b0, v0), (b1, v1) in zip(points, points[1:]):
        if b0 <= bits <= b1:
            return math.exp(math.log(v0) + (bits - b0) / (b1 - b0) * math.log(v1 / v0))
    return math.nan
def next_size(kind, bits):
    larger = [(b, v, n) for k, n, b, v in rows if k == kind and b >= bits]
    return min(larger)[1:] if larger else (math.nan, "none")
for kind, name, bits, v in sorted(rows, key=lambda row: (row[0], row[2])):
    print("%-14s %-8s %6.3f %9.5f" % (kind, name, bits, v), end="")
    if kind in ("ramp", "data-free"):
        for base in ("uniform", "mix", "second-moments", "mix-moments") if kind == "ramp" else ("plain", "uniform"):
            larger, name = next_size(base, bits)
            print("  %s: %s %.3f, curve %.3f;" % (base, name, v / larger, v / curve(base, bits)), end="")
    print()
END
