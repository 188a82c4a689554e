#!/usr/bin/env bash
# bench/soak.sh [SECONDS [ROUNDS]], or --minutes N, --hours N: 64 streams at once against chimere-nano, 600 seconds by default;
# a day is --hours 24. One row a round, then a report: memory, descriptors, threads, latencies, errors.
#
# Memory that a server takes on purpose is bounded by budgets: states of prompts, answers to replay, their index.
# So first it is warmed up, uncounted: ROUNDS of 128 requests (12), and more until the budget of states is full, then
# one with full contexts; then SECONDS are counted. Fails on any error, and where the largest memory of the last tenth, less the states that
# the budget allows (their number varies), is more than 1 % above the largest of the first tenth, or where descriptors or
# threads are left over at the end. $CHIMERE is the program, build/release/chimere by default.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
--minutes) seconds=$((${2:?--minutes N} * 60)) warm=${3:-12} ;;
--hours) seconds=$((${2:?--hours N} * 3600)) warm=${3:-12} ;;
*) seconds=${1:-600} warm=${2:-12} ;;
esac
chimere=${CHIMERE:-build/release/chimere}
[ -x "$chimere" ] || { echo "soak: no $chimere; script/setup, then cmake --build --preset release" >&2; exit 2; }
command -v curl >/dev/null || { echo "soak: apt-get install curl" >&2; exit 2; }
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait; rm -rf "$work"' EXIT

# A small memory budget: states are dropped, written and read all the time.
budget=$((64 << 20))
"$chimere" serve --port 0 -q --parallel 64 --ctx 512 --prompt-cache $budget --state-dir "$work/kept" \
    --state-disk 128M >"$work/served" 2>"$work/log" &
pid=$!
for _ in $(seq 600); do
    grep -q 'http://' "$work/served" && break
    sleep 0.1
done
url=$(grep -o 'http://[^ ]*' "$work/served" | head -1) || true
[ -n "$url" ] || { echo "soak: the server does not start: $(cat "$work/log")" >&2; exit 1; }
memory() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$pid/status"; }
states() { curl -sS -m 60 "$url/v1/status" | tr ',{}' '\n' | sed -n 's/.*"state_bytes": *\([0-9]*\).*/\1/p' | head -1; }

requests=0 failed=0
round() { # PROMPT ANSWER, in tokens: one load, added to the counts
    "$chimere" bench --url "$url" -p "$1" -n "$2" --concurrency 64 --requests 128 --json >"$work/figures"
    count() { tr -d ' ,"' <"$work/figures" | awk -F: -v key="$1" '$1 == key { print $2; exit }'; }
    requests=$((requests + $(count requests)))
    failed=$((failed + $(count failed)))
    first_ms=$(count ttft_ms_p99) gap_ms=$(count gap_ms_p99)
}
fds() { find "/proc/$pid/fd" -mindepth 1 | wc -l; }
threads() { awk '$1 == "Threads:" { print $2 }' "/proc/$pid/status"; }

printf '%8s %10s %10s %10s %10s %8s %6s %8s %12s %12s\n' seconds rss_kib anon_kib states_kib requests failed fds threads first_ms_p99 gap_ms_p99
show() {
    printf '%8s %10d %10d %10d %10d %8d %6d %8d %12.1f %12.1f\n' "$1" "$(memory VmRSS)" "$(memory RssAnon)" \
        "$(($(states) / 1024))" "$requests" "$failed" "$(fds)" "$(threads)" "$first_ms" "$gap_ms"
}
for ((i = 0; i < warm || (i < 4 * warm && $(states) < budget * 8 / 10); i++)); do
    round 128 32
    show "warm-up"
done
round 416 64 # all contexts full: pages of the cache that were planned are taken from the system when first used
show "warm-up"
begin=$SECONDS first=0 last=0 fds_first=$(fds) threads_first=$(threads)
requests=0 failed=0
: >"$work/latencies"
while now=$((SECONDS - begin)) && [ "$now" -lt "$seconds" ]; do
    round 128 32
    show "$((SECONDS - begin))"
    echo "$first_ms $gap_ms" >>"$work/latencies"
    rss=$(($(memory VmRSS) - $(states) / 1024))
    # the last round may end behind the end; the first counts, however long it took
    if [ "$first" = 0 ] || [ $((SECONDS - begin)) -le $((seconds / 10)) ]; then [ "$rss" -le "$first" ] || first=$rss; fi
    if [ $((SECONDS - begin)) -ge $((seconds * 9 / 10)) ]; then [ "$rss" -le "$last" ] || last=$rss; fi
done
awk -v a="$first" -v b="$last" 'BEGIN { printf "memory beside states: %d KiB, then %d KiB at the end: %+.2f %%\n", a, b, 100 * (b - a) / a }'
column() { cut -d' ' -f"$1" "$work/latencies" | sort -g | awk '{ v[NR] = $1 } END { printf "%.1f ms in the median round, %.1f ms in the worst", v[int((NR + 1) / 2)], v[NR] }'; }
echo "99 of 100 first tokens within $(column 1)"
echo "99 of 100 further tokens within $(column 2)"
for _ in $(seq 100); do # connections that the last round closed
    [ "$(fds)" -gt "$fds_first" ] || break
    sleep 0.1
done
fds_last=$(fds) threads_last=$(threads)
echo "descriptors: $fds_first, then $fds_last; threads: $threads_first, then $threads_last"
said=$(wc -l <"$work/log")
[ "$said" = 0 ] || { echo "the server said $said lines, the last ones:" && tail -3 "$work/log"; }
status=0
kill "$pid" && wait "$pid" || status=$?
pid=
echo "the server ended with status $status"
echo "$failed of $requests requests failed in $seconds s"
[ "$failed" = 0 ] && [ "$status" = 0 ] && [ $((last * 100)) -le $((first * 101)) ] &&
    [ "$fds_last" -le $((fds_first + 2)) ] && [ "$threads_last" -le $((threads_first + 2)) ]
