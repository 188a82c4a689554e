#!/usr/bin/env bash
# bench/ramp.sh MODEL CALIBRATION HELD [BITS...]: what ramp gains over uniform types and llama-quantize's mixes.
#
# For each size (default 3.0 3.5 4.0 4.5 bits per weight): KL divergence over HELD of ramp's file, with data and
# without, against every uniform type and mix, made with the same importance matrix. Given is the ratio to the
# best of no smaller size, and to the uniform types' curve at the same size (log-linear between its points).
# MODE (portable or chimere), WORK (a folder that is kept) and CHIMERE may be set. chimere-nano: an hour on two
# cores, of which three minutes per search.
set -euo pipefail
cd "$(dirname "$0")/.."
chimere=${CHIMERE:-build/release/chimere} mode=${MODE:-portable} work=${WORK:-$(mktemp -d)}
model=$1 calibration=$2 held=$3
shift 3
[ $# -gt 0 ] || set -- 3.0 3.5 4.0 4.5
mkdir -p "$work"
[ -e "$work/base" ] || "$chimere" perplexity -m "$model" -f "$held" --ctx 512 --save-base "$work/base" -q >/dev/null
kl() { "$chimere" perplexity -m "$1" --kl-base "$work/base" -q --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["kl"]["mean"])'; }
bits() { "$chimere" inspect "$1" | grep -o '[0-9.]* bits per weight' | head -1 | cut -d' ' -f1; }
record() { # KIND NAME FILE
    echo "$1 $2 $(bits "$3") $(kl "$3")" >>"$work/results"
    rm "$3"
}
: >"$work/results"
"$chimere" imatrix -m "$model" -f "$calibration" -o "$work/imatrix.gguf" --ctx 256 --process-output --correlations -q >/dev/null
for type in Q2_K IQ2_XS IQ2_S IQ3_XXS IQ3_S Q3_K IQ4_XS IQ4_NL Q4_0 Q4_K Q5_K; do
    "$chimere" quantize "$model" "$work/u.gguf" $type --pure --imatrix "$work/imatrix.gguf" -q >/dev/null
    record uniform $type "$work/u.gguf"
    # without data, what needs none
    "$chimere" quantize "$model" "$work/u.gguf" $type --pure -q >/dev/null 2>&1 && record plain $type "$work/u.gguf"
done
for mix in Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M IQ2_M IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_XS IQ4_NL; do
    "$chimere" quantize "$model" "$work/u.gguf" $mix --imatrix "$work/imatrix.gguf" -q >/dev/null
    record mix $mix "$work/u.gguf"
done
for b in "$@"; do
    "$chimere" ramp "$model" "$work/r.gguf" --bpw "$b" --mode "$mode" -f "$calibration" --imatrix "$work/imatrix.gguf" \
        --work "$work/data" -q >/dev/null && record ramp "$b" "$work/r.gguf"
    "$chimere" ramp "$model" "$work/r.gguf" --bpw "$b" --mode "$mode" --work "$work/free" -q >/dev/null &&
        record data-free "$b" "$work/r.gguf"
done
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
for kind, name, bits, v in rows:
    print("%-10s %-8s %6.3f %9.5f" % (kind, name, bits, v), end="")
    if kind in ("ramp", "data-free"):
        base = "uniform" if kind == "ramp" else "plain"
        (u, un), (m, mn) = next_size(base, bits), next_size("mix", bits)
        print("  curve of uniform types %.3f; next uniform %s %.3f; next mix %s %.3f" %
              (v / curve(base, bits), un, v / u, mn, v / m), end="")
    print()
END
