#!/usr/bin/env bash
# install: the program runs from the installed tree with the data that are installed beside it; the examples build and run
# against it, shared and static, as C17 and C++.
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

# The tree of a package: what a user needs is there, and the program finds its data in it alone.
DESTDIR=$work/root cmake --install "$build" --prefix /usr --component runtime >log
program() { env -i PATH=/nowhere HOME="$work/nobody" "$work/root/usr/bin/chimere" "$@"; }
[ "$(program version)" = "$("$CHIMERE" version)" ] || fail "version"
program doctor >out || fail "doctor: $(cat out)"
program run -q --temp 0 "What is 12 plus 30?" >out </dev/null || fail "run: $(cat out)"
grep -q 42 out || fail "the installed model answers: $(cat out)"
program eval -q --suite add_sub -n 2 >out 2>&1 || fail "eval: $(cat out)"
[ ! -e "root/usr/include" ] || fail "the component runtime has a header"
for command in "" $("$CHIMERE" help | sed -n 's/^  \([a-z]*\) .*/-\1/p'); do
    zcat "root/usr/share/man/man1/chimere$command.1.gz" | grep '^\.SH NAME' >/dev/null || fail "chimere$command(1)"
done
bash -n root/usr/share/bash-completion/completions/chimere
cmp <("$CHIMERE" completion fish) root/usr/share/fish/vendor_completions.d/chimere.fish
unit=root/usr/lib/systemd/system/chimere.service
grep -q '^ExecStart=/usr/bin/chimere serve' "$unit" || fail "unit: $(grep ExecStart "$unit")"
! grep -q /usr/local "$unit" || fail "the unit names /usr/local"
for file in share/chimere/config.yaml share/chimere/drop-ins/cuda.conf share/chimere/pipelines/default.yaml \
    share/chimere/engram/general.engram share/chimere/chimere-mini.gguf lib/sysusers.d/chimere.conf share/doc/chimere/LICENSE \
    share/doc/chimere/THIRD_PARTY_NOTICES.md share/doc/chimere/server.md; do
    [ -s "root/usr/$file" ] || fail "$file is not installed"
done
sed 's#/var/lib/chimere#kept#' root/usr/share/chimere/config.yaml >config.yaml
program serve --check --config config.yaml >out 2>&1 || fail "the configuration: $(cat out)"

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
sed -n '/^ *[{]/,$p' out | python3 -c 'import json, sys; v = json.load(sys.stdin); assert list(v) == ["sure"] and type(v["sure"]) is bool' ||
    fail "the form: $(cat out)"
LD_LIBRARY_PATH='' ./chat_static "$nano" "What is 12 plus 30?" >out_static || fail "static: $(cat out_static)"
cmp out out_static || fail "the archive answers otherwise"
refuses 1 "nowhere.gguf" ./chat nowhere.gguf hi

# a program that serves and asks
mkfifo keys
./serve "$nano" <keys >served &
pid=$!
exec 8>keys
for _ in $(seq 2400); do grep -q http served && break || sleep 0.05; done
url=$(sed -n 's#^\(http://[^ ]*\) .*#\1#p' served)
curl -sf "$url/models" | grep '"id"' >/dev/null || fail "the server does not answer: $(cat served)"
echo >&8
wait $pid || fail "serve did not end well: $(cat served)"
echo "install: ok"
