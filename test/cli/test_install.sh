#!/usr/bin/env bash
# install: the examples build and run against the installed tree, shared and static, as C17 and C++.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl python3 cc c++ pkg-config cmake
build=$(dirname "$CHIMERE")
[ -f "$build/libchimere.so" ] || {
    echo "skip: install: this build makes no shared library; the release build does"
    exit 77
}
cmake --install "$build" --prefix first >log
mv first moved # an installed tree may be moved
lib=$(dirname "$(find "$work/moved" -name libchimere.a)")
export PKG_CONFIG_PATH=$lib/pkgconfig
nano=$(find moved -name 'chimere-nano*.gguf' | head -1)

# the header alone, as each language has it
echo '#include <chimere.h>' >header.c
flags=$(pkg-config --cflags chimere)
# shellcheck disable=SC2086
cc -std=c17 -pedantic -Wall -Wextra -Werror $flags -c header.c
# shellcheck disable=SC2086
c++ -std=c++17 -x c++ -pedantic -Wall -Wextra -Werror $flags -c header.c
[ "$(wc -l <"moved/include/chimere.h")" -le 250 ] || fail "chimere.h is longer than 250 lines"

# what the library shows of itself, and what the header promises
nm -D --defined-only "$lib/libchimere.so" | awk '$2 ~ /[TDBR]/ { print $3 }' | sort >shown
grep -o 'chimere_[a-z_]*(' moved/include/chimere.h | tr -d '(' | sort -u >promised
diff promised shown || fail "symbols and header differ"

# shellcheck disable=SC2046,SC2086
cc -std=c17 -Wall -Wextra -Werror "$SOURCE_DIR/examples/chat.c" $(pkg-config --cflags --libs chimere) -o chat
# shellcheck disable=SC2046,SC2086
c++ -std=c++17 -Wall -Wextra -Werror "$SOURCE_DIR/examples/serve.cc" $(pkg-config --cflags --libs chimere) -o serve
# the archive, with the libraries that it stands on
also=$(sed -n 's/^Libs.private: //p' "$lib/pkgconfig/chimere.pc")
needs=$(sed -n 's/^Requires.private: //p' "$lib/pkgconfig/chimere.pc")
# shellcheck disable=SC2046,SC2086
cc -std=c17 $flags "$SOURCE_DIR/examples/chat.c" "$lib/libchimere.a" $(pkg-config --libs $needs) $also -o chat_static

export LD_LIBRARY_PATH=$lib
./chat "$nano" "What is 12 plus 30?" >out || fail "chat: $(cat out)"
grep -q '42' out || fail "chat answers: $(cat out)"
# JSON has many spellings of the same object: escapes in names, space
grep '^ *[{]' out | python3 -c 'import json, sys; v = json.load(sys.stdin); assert list(v) == ["sure"] and type(v["sure"]) is bool' ||
    fail "the form: $(cat out)"
LD_LIBRARY_PATH='' ./chat_static "$nano" "What is 12 plus 30?" >out_static || fail "static: $(cat out_static)"
cmp out out_static || fail "the archive answers otherwise"
refuses 1 "nowhere.gguf" ./chat nowhere.gguf hi

# a program that serves and asks
mkfifo keys
./serve "$nano" <keys >served &
pid=$!
exec 8>keys
for _ in $(seq 200); do grep -q http served && break || sleep 0.05; done
url=$(sed -n 's#^\(http://[^ ]*\) .*#\1#p' served)
curl -sf "$url/models" | grep -q '"id"' || fail "the server does not answer: $(cat served)"
echo >&8
wait $pid || fail "serve did not end well: $(cat served)"
echo "install: ok"
