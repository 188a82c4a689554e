#!/usr/bin/env bash
# lab/timeline.sh build FOLDER [CMAKE ARGS]: a build whose kernels note when they were released (lab/timeline.patch)
# lab/timeline.sh run FOLDER BENCH ARGS: chimere bench with it, then a line for each stage of the last 6.5 ms:
#   kernel's grid and block -> the next one's, times, median us from release to release, and how long before its
#   release the first and the last block stood waiting (negative: came late). On a machine with a GPU of sm_90.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-} folder=${2:-}
[ -n "$folder" ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
shift 2
case $what in
build)
    mkdir -p "$folder"
    git archive HEAD | tar -x -C "$folder"
    (cd "$folder" && patch -p1 --quiet) <lab/timeline.patch
    cd "$folder"
    cmake --preset cuda -DCMAKE_CUDA_SEPARABLE_COMPILATION=ON -DCHIMERE_CUDA_ARCHITECTURES=90a "$@" >/dev/null
    cmake --build build/cuda --target chimere
    ;;
run)
    "$folder/build/cuda/chimere" bench --device cuda "$@"
    python3 - <<'PY'
import collections, statistics, struct
rows = []
with open("/dev/shm/stamps", "rb") as f:
    for r in struct.iter_unpack("<QQIIII", f.read()):
        if r[1]: rows.append(r)
rows.sort(key=lambda r: r[1])
end = rows[-1][1]
stages = []  # kernel, first release, [before], [release]
for before, after, x, y, block, _ in (r for r in rows if r[1] > end - 6_500_000):
    kernel = (x, y, block)
    for s in reversed(stages[-3:]):
        if s[0] == kernel and after - s[1] < 2500:
            s[2].append(before)
            s[3].append(after)
            break
    else:
        stages.append((kernel, after, [before], [after]))
found = collections.defaultdict(list)
for s, n in zip(stages, stages[1:]):
    found[s[0], n[0]].append((n[1] - s[1], s[1] - min(s[2]), s[1] - max(s[2])))
for (kernel, after), v in sorted(found.items(), key=lambda k: -sum(t[0] for t in k[1]))[:24]:
    us, early, late = (statistics.median(t[i] for t in v) / 1e3 for i in range(3))
    print(f"{str(kernel):18} -> {str(after):18} {len(v):4} times {us:8.2f} us   waiting {early:7.2f} .. {late:6.2f}")
PY
    ;;
*) echo "timeline: no '$what'" >&2; exit 2 ;;
esac
