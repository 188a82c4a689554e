#!/usr/bin/env bash
# leg.sh CORPUS OUT [SECONDS] [SEED]: a further leg from the published file, or from OUT/ckpt where that is already there:
# checkpoint, data, training, curves, all within SECONDS (590). OUT/ckpt: float32 weights in parts and place.json;
# OUT/curves.svg; OUT/log; OUT/data.log. PYTHON names the interpreter. Then, where the converter is:
#
#     python export.py OUT/ckpt TOK chimere-nano; chimere convert chimere-nano ../../models/chimere-nano-bf16.gguf
set -euo pipefail
corpus=$(realpath "$1") out=$2 seconds=${3:-590} seed=${4:-5}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(realpath "$out")
work=${WORK:-$(mktemp -d)}
cd "$(dirname "$0")"
{
    "$python" resume.py ../../models/chimere-nano-bf16.gguf "$work/ckpt" "$work/tok"
    from=$work/ckpt
    [ ! -f "$out/ckpt/place.json" ] || { rm -rf "$from" && cp -r "$out/ckpt" "$from"; }
    "$python" train.py "$work/pools" "$work/tok" "$out/ckpt" --resume "$from" --start-at "${START_AT:-0.5}" --to 1 \
        --seconds $((seconds - SECONDS - 45)) --margin 10 --seed "$seed" --eval-every 190 --dev 24 ${TRAIN_ARGS:-} &
    train=$!
    trap 'kill $train 2>/dev/null || true' EXIT
    "$python" data.py "$corpus" "$work/tok" "$work/pools" --tokens "${TOKENS:-220e6}" --seed "$seed" >"$out/data.log" 2>&1 ||
        { tail -20 "$out/data.log" && exit 1; }
    wait $train
    cat "$out/data.log"
    "$python" plot.py "$out/ckpt" "$out/curves.svg"
} 2>&1 | tee "$out/log"
