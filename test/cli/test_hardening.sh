#!/usr/bin/env bash
# hardening: the program is position independent, its relocations are read-only before main, its stack
# frames carry canaries, libc's checked calls are in use, and indirect branches are marked.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs readelf objdump
case $CHIMERE in
*/build/release/chimere) ;;
*)
    echo "skip: hardening: sanitizers replace it"
    exit 77
    ;;
esac
readelf -hW "$CHIMERE" >header
grep -q 'Type: *DYN' header || fail "not position independent"
readelf -lW "$CHIMERE" >segments
grep -q GNU_RELRO segments || fail "no read-only relocations"
! grep -E 'GNU_STACK.* RWE ' segments || fail "executable stack"
readelf -dW "$CHIMERE" >dynamic
grep -qE 'BIND_NOW|FLAGS_1.*NOW' dynamic || fail "relocations are bound lazily"
readelf -sW "$CHIMERE" >symbols
grep -q __stack_chk_fail symbols || fail "no stack protector"
grep -qE '__(memcpy|snprintf|vsnprintf|read|memset)_chk' symbols || fail "no fortified calls"
case $(uname -m) in
x86_64)
    # Not the linker's note: it is dropped if the C library's start-up files lack theirs.
    objdump -d --disassemble=main "$CHIMERE" >code
    grep -q endbr64 code || fail "no landing pads"
    ;;
esac
