#!/usr/bin/env bash
# The store's suite over PostgreSQL with pgvector, where the server searches vectors; a server without the extension, in
# test_postgres.sh, leaves that to the program. The server is that of the package pgserver.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
server=$(find "$SOURCE_DIR/.venv-deploy/" -type d -path '*/pgserver/pginstall' -print -quit 2>/dev/null || true)
[ -n "$server" ] || {
    echo "skip: pgvector: no pgserver; script/setup --test installs it"
    exit 77
}
packages=${server%/pgserver/pginstall}
mkdir site
cp -r "$packages/pgserver" "$packages/pgserver.libs" site # the user of the server may not read the source tree
chmod -R a+rX site
PGBIN=$work/site/pgserver/pginstall/bin
# shellcheck source=test/cli/postgres.sh
. "$SOURCE_DIR/test/cli/postgres.sh"
export LC_ALL=C
started -c fsync=off
url="postgres://chimere@/postgres?host=$work/db"
sql() { "$bin/psql" -qAtc "$1" "$url"; }
sql 'CREATE EXTENSION vector' # in the schema public, as an administrator may do
export CHIMERE_TEST_VECTORS=1
for suite in test_store test_shared test_conversations; do
    program=$(dirname "$CHIMERE")/test/$suite
    [ -x "$program" ] || continue
    CHIMERE_TEST_STORE=$url "$program" >suite 2>&1 || fail "$suite: $(grep -v '^\[ RUN' suite)"
    grep -q 'PASSED' suite || fail "$suite ran nothing"
done

# a store of before the extension: its vectors are converted when it is opened next
sql 'CREATE SCHEMA old'
old="$url&options=-csearch_path%3Dold"
"$CHIMERE" store check "$old" >/dev/null || fail "no store in a schema of its own"
sql "ALTER TABLE old.doc_chunks DROP COLUMN near; DROP FUNCTION old.chimere_vector;
    INSERT INTO old.doc_chunks(file, from_byte, to_byte, page, line, vec) VALUES(1, 0, 1, 0, 0, '\\x0000803f000000c00000c03e00000080')"
"$CHIMERE" store check "$old" >/dev/null || fail "the store does not open with pgvector"
[ "$(sql 'SELECT near FROM old.doc_chunks')" = '[1,-2,0.375,-0]' ] || fail "converted: $(sql 'SELECT near FROM old.doc_chunks')"
echo "pgvector: suite, a store of before"
