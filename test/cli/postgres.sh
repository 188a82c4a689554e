# shellcheck shell=bash disable=SC2154
# A server of PostgreSQL for tests over one, sourced after lib.sh: `started` starts it, and its socket is in $work/db. The
# processes in pids end with the test. PGBIN: the folder of its programs (default: the newest of the distribution).
bin=${PGBIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
[ -x "$bin/initdb" ] || {
    echo "skip: postgres: no server; script/setup --test installs it"
    exit 77
}
# The server refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    id postgres >/dev/null 2>&1 && command -v setpriv >/dev/null || {
        echo "skip: postgres: root, and no user postgres to run it as"
        exit 77
    }
    as=(setpriv "--reuid=postgres" "--regid=postgres" --clear-groups)
    mkdir db
    chown postgres db
    chmod 711 "$work"
else
    mkdir db
fi
cluster() { # start | stop | ...
    (cd / && "${as[@]}" "$bin/pg_ctl" -D "$work/db/data" -w -t 300 "$@" >"$work/pg_ctl.log" 2>&1) || fail "pg_ctl $*: $(cat "$work/pg_ctl.log")"
}
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; cluster stop -m immediate || true; wait; rm -rf "$work"' EXIT
(cd / && "${as[@]}" "$bin/initdb" -D "$work/db/data" -A trust -U chimere --encoding=UTF8 --locale=C --no-sync >"$work/initdb.log" 2>&1) || fail "initdb: $(cat initdb.log)"
started() { # OPTION...
    cluster start -o "-k $work/db -c listen_addresses='' -c max_connections=40 $*" -l "$work/db/log"
}
