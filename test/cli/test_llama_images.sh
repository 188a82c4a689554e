#!/usr/bin/env bash
# Images by libmtmd, against a real one. libllama and the model are those that test_llama.sh fetches; libmtmd is not in any
# package: it is compiled from the sources in node-llama-cpp's git bundle once, for minutes, if CHIMERE_TEST_MTMD=1 asks for
# it. What sees is a small encoder with random weights (test/peers/mmproj.py): the answers say nothing about the image, but
# depend on each of its rows.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs cc cmake python3 curl
cache=${CHIMERE_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/chimere-test-models}/llama
skip() {
    echo "skip: images: $1"
    exit 77
}
case $CHIMERE in
*/release/chimere) ;;
*) skip "another program's library runs in the release build only" ;;
esac
smol=$cache/chimere/smollm2-135m-instruct-q4_1.gguf
if [ ! -e "$cache/dir/lib/libllama.so" ] || [ ! -e "$smol" ]; then
    skip "no libllama or no model: cli.test_llama fetches both"
fi

compile_mtmd() {
    local at=$work/npm source
    mkdir -p "$at/objects" "$cache/mtmd/include" "$cache/mtmd/lib"
    (cd "$at" && timeout 120 npm pack --silent node-llama-cpp@3.22.1 >/dev/null) || return 1
    echo "a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f  $at/node-llama-cpp-3.22.1.tgz" |
        sha256sum --check --status || return 1
    tar -xzf "$at/node-llama-cpp-3.22.1.tgz" -C "$at"
    git clone -q --no-checkout "$at/package/llama/gitRelease.bundle" "$at/git" 2>/dev/null || return 1
    git -C "$at/git" archive HEAD tools/mtmd vendor include ggml/include src | tar -x -C "$at"
    cd "$at"
    for source in tools/mtmd/{mtmd,mtmd-audio,mtmd-image,mtmd-helper,mtmd-helper-gen,clip}.cpp tools/mtmd/models/*.cpp \
        vendor/hash/hash.cpp vendor/hash/sha1/sha1.c vendor/hash/sha256/sha256.c vendor/hash/xxhash/xxhash.c; do
        case $source in
        *.cpp | *sha1.c) set -- g++ -x c++ -std=c++17 ;;
        *) set -- gcc ;;
        esac
        "$@" -O1 -fPIC -w -DLLAMA_BUILD -DLLAMA_SHARED -DGGML_SHARED -DGGML_BACKEND_SHARED -Iinclude -Iggml/include \
            -Itools/mtmd -Ivendor -Ivendor/hash -Isrc -c "$source" -o "objects/$(basename "$source").o" || return 1
    done
    g++ -shared -o libmtmd.so objects/*.o -L"$cache/dir/lib" -lllama -lggml -lggml-base -lpthread || return 1
    cp tools/mtmd/mtmd.h tools/mtmd/mtmd-helper.h "$cache/mtmd/include"
    mv libmtmd.so "$cache/mtmd/lib/libmtmd.so"
    cd "$work"
}
if [ ! -e "$cache/mtmd/lib/libmtmd.so" ]; then
    [ "${CHIMERE_TEST_MTMD:-}" = 1 ] || skip "libmtmd is not compiled; CHIMERE_TEST_MTMD=1 compiles it, in minutes"
    needs npm git g++
    (compile_mtmd) || skip "no libmtmd: npm cannot fetch node-llama-cpp 3.22.1"
fi

# ---- what is built: a folder as `cmake --install` leaves it, the object over it, and libmtmd's own word ----

dir=$work/dir
mkdir -p "$dir/include" "$dir/lib"
ln -s "$cache"/dir/include/* "$cache"/mtmd/include/* "$dir/include"
ln -s "$cache"/dir/lib/* "$cache"/mtmd/lib/* "$dir/lib"
cmake -S "$SOURCE_DIR" -B built -DCMAKE_BUILD_TYPE=Release -DCHIMERE_LLAMA_DIR="$dir" >said 2>&1 || fail "$(tail -20 said)"
cmake --build built --target chimere_llama >said 2>&1 || fail "$(tail -20 said)"
cc -O2 "-DLLAMA_LIB_DIR=\"$dir/lib\"" -isystem "$dir/include" "$SOURCE_DIR/test/peers/mtmd_oracle.c" -o oracle \
    "$dir/lib/libmtmd.so" "$dir/lib/libllama.so" "$dir/lib/libggml.so" "$dir/lib/libggml-base.so" "-Wl,-rpath,$dir/lib" -lm
python3 "$SOURCE_DIR/test/peers/mmproj.py" eyes.gguf 576
python3 - <<'P'
import struct
import zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def png(path, side, pixel):
    rows = b"".join(b"\0" + bytes(c for x in range(side) for c in pixel(x, y)) for y in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

png("1.png", 48, lambda x, y: (255 if x < 24 else 0, y * 5 % 256, 30))
png("2.png", 33, lambda x, y: (0, 0, x * 7 % 256))
P
export GGML_NO_BACKTRACE=1 XDG_DATA_HOME=$work/data
unset CHIMERE_MODEL
library=$work/built/chimere-llama.so

started() { # ARGUMENT...: waits until the server listens; sets $server and $url
    "$CHIMERE" serve -m "$smol" --llama-library "$library" -t 1 --port 0 --parallel 2 --ctx 512 -q "$@" >said 2>log &
    server=$!
    trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
    for ((i = 0; i < 600; i++)); do
        grep -qs 'listens on' said && break
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat log)"
        sleep 0.1
    done
    url=$(sed -n 's/.*listens on \(http:[^ ]*\) .*/\1/p' said)
}
stop_server() {
    kill -TERM "$server"
    wait "$server" || fail "stopping ended with $?: $(cat log)"
    rm -f said # the next server's word is waited for there
    trap 'rm -rf "$work"' EXIT
}

# ---- a model without eyes: one sentence, for all three APIs ----

started --backend llama
python3 "$SOURCE_DIR/test/peers/ask_images.py" "$url" blind || fail "blind: $(cat log)"
stop_server

# ---- eyes: tokens are libmtmd's but for ties, within a process of its own too ----

for how in "" --backend-process; do
    # shellcheck disable=SC2086 # no argument, or one
    started --mmproj eyes.gguf $how
    python3 "$SOURCE_DIR/test/peers/ask_images.py" "$url" sees "$smol" eyes.gguf || fail "sees $how: $(cat log)"
    stop_server
done

# ---- refusals ----

refuses 1 "--mmproj: no-such.gguf" "$CHIMERE" run -m "$smol" --llama-library "$library" --mmproj no-such.gguf -p x
refuses 1 "libmtmd refuses $smol" "$CHIMERE" run -m "$smol" --llama-library "$library" --mmproj "$smol" -p x
refuses 2 "--mmproj: expected --backend llama" "$CHIMERE" run -m "$smol" --backend own --mmproj eyes.gguf -p x
