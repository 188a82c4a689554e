#!/usr/bin/env bash
# bench/soak.sh [SECONDS]: 64 streams at once against chimere-nano, 600 seconds by default. Fails on any error,
# and where the server's memory after the last tenth is more than 1 % above that after the first quarter.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
chimere=build/release/chimere
[ -x "$chimere" ] || { echo "soak: no $chimere; script/setup, then cmake --build --preset release" >&2; exit 2; }
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait; rm -rf "$work"' EXIT

# A small memory budget: states are dropped, written and read all the time.
"$chimere" serve --port 0 -q --parallel 64 --ctx 512 --prompt-cache 64M --state-dir "$work/kept" \
    --state-disk 256M >"$work/served" 2>"$work/log" &
pid=$!
for _ in $(seq 200); do
    grep -q 'http://' "$work/served" && break
    sleep 0.1
done
url=$(grep -o 'http://[^ ]*' "$work/served" | head -1); [ -n "$url" ] || { echo "soak: the server does not start: $(cat "$work/log")" >&2; exit 1; }
memory() { awk '/VmRSS/ { print $2 }' "/proc/$pid/status"; }

printf '%8s %12s %10s %8s\n' seconds rss_kib requests failed
begin=$(date +%s)
base=
requests=0
failed=0
while now=$(($(date +%s) - begin)) && [ "$now" -lt "$seconds" ]; do
    "$chimere" bench --url "$url" -p 128 -n 32 --concurrency 64 --requests 128 --json >"$work/figures"
    count() { tr -d ' ,"' <"$work/figures" | awk -F: -v key="$1" '$1 == key { print $2; exit }'; }
    requests=$((requests + $(count requests)))
    failed=$((failed + $(count failed)))
    printf '%8d %12d %10d %8d\n' "$(($(date +%s) - begin))" "$(memory)" "$requests" "$failed"
    [ -n "$base" ] || [ "$now" -lt $((seconds / 4)) ] || base=$(memory)
done
last=$(memory)
base=${base:-$last}
echo "memory: $base KiB after a quarter, $last KiB at the end; $failed of $requests requests failed"
[ "$failed" = 0 ] && [ $((last * 100)) -le $((base * 101)) ]
