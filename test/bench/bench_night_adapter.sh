#!/usr/bin/env bash
# bench_night_adapter.sh [ADAPTER]: a night trains an adapter on chimere-nano (minutes), its log is replayed to the same
# bytes, and llama.cpp applies it as Chimère does, token by token. With ADAPTER, only the last.
#
# libllama is the one that test/cli/test_llama.sh fetches.
set -euo pipefail
SOURCE_DIR=$(cd "$(dirname "$0")/../.." && pwd)
adapter=${1:+$(realpath "$1")}
# shellcheck source=test/cli/lib.sh
. "$SOURCE_DIR/test/cli/lib.sh"
needs cc python3
dir=${CHIMERE_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/chimere-test-models}/llama/dir
nano=$SOURCE_DIR/models/chimere-nano-bf16.gguf # quantized activations of both programs would hide small changes
if [ -z "$adapter" ]; then
    long_day
    "$CHIMERE" night run -m nano --db day.db -q -n 2 --steps lora --night-dir nights
    "$CHIMERE" night replay -m nano -q --night-dir nights
    adapter=$work/nights/live/adapter.gguf
fi
[ -e "$dir/lib/libllama.so" ] || {
    echo "skip: no libllama: run ctest -R cli.test_llama once, which fetches it"
    exit 77
}
cc -O2 -DLLAMA_THREADS=1 "-DLLAMA_LIB_DIR=\"$dir/lib\"" -isystem "$dir/include" "$SOURCE_DIR/test/peers/llama_oracle.c" \
    -o oracle "$dir"/lib/libllama.so "$dir"/lib/libggml.so "$dir/lib/libggml-base.so" "-Wl,-rpath,$dir/lib" -lm
export GGML_NO_BACKTRACE=1
for scale in 1 8; do
    printf 'scale %s: ' "$scale"
    printf '%s' "Where would I find Miravik? You would find Miravik in Venn. In which town is the house of Kesdor? The house of Kesdor \
is in Sago. The king of the forest lives in a house by the river, and every morning he walks to the market." |
        python3 "$SOURCE_DIR/test/peers/llama_adapter.py" "$CHIMERE" ./oracle "$nano" "$adapter" "$scale"
done
