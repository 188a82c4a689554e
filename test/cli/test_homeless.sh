#!/usr/bin/env bash
# homeless: commands of a user without a home folder.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs setpriv
model=$(dirname "$CHIMERE")/chimere-nano.gguf
if [ "$(id -u)" != 0 ] || [ ! -f "$model" ]; then
    echo "skip: commands without a home folder: needs root and the shipped model"
    exit 77
fi
mkdir bare
cp -r "$CHIMERE" "$model" "$SOURCE_DIR/pipelines" bare
chmod -R a+rX . bare
nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env -i "PATH=$PATH" HOME=/nonexistent bare/chimere "$@"
}
nobody odo ask hello -q -n 8 --temp 0 >got 2>err </dev/null || fail "odo ask without a home: $(cat err)"
[ -s got ] && grep -q 'keeps nothing' err || fail "odo ask without a home: $(cat got err)"
nobody odo explain hello >got 2>err </dev/null || fail "odo explain without a home: $(cat err)"
refuses 1 'cannot create' nobody odo index .
