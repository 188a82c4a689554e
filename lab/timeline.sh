#!/usr/bin/env bash
# lab/timeline.sh build FOLDER [CMAKE ARGS]: a build whose kernels note when they were released (lab/timeline.patch)
# lab/timeline.sh run FOLDER BENCH ARGS: chimere bench with it, then a line for each stage of the last 3.5 ms:
#   kernel's grid and block -> the next one's, times, median us from release to release, how long before its
#   release the first and the last block stood waiting (negative: came late), and when blocks passed a note(TAG)
#   in the kernel: the middle one and the last, us from the release. On a machine with a GPU of sm_90.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-} folder=${2:-}
[ -n "$folder" ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
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
import bisect, collections, statistics, struct

WINDOW, SAME = 3_500_000, 2500  # ns of the end that are looked at; releases of one kernel lie closer
with open("/dev/shm/stamps", "rb") as f:
    stamps = [(after, early, (grid & 0xFFFF, grid >> 16, block), tag)
              for after, early, grid, block, tag in struct.iter_unpack("<QIIII", f.read())]
end = max(s[0] for s in stamps)
stamps = sorted(s for s in stamps if s[0] > end - WINDOW)
stages = []  # kernel, first release, [came], notes by tag
for after, early, kernel, tag in stamps:
    if tag:
        continue
    for s in reversed(stages[-3:]):
        if s[0] == kernel and after - s[1] < SAME:
            s[2].append(after - early)
            break
    else:
        stages.append((kernel, after, [after - early], collections.defaultdict(list)))
of = collections.defaultdict(list)
for s in stages:
    of[s[0]].append(s)
for after, _, kernel, tag in stamps:
    if tag and kernel in of:
        k = bisect.bisect([s[1] for s in of[kernel]], after) - 1
        if k >= 0:
            of[kernel][k][3][tag].append(after - of[kernel][k][1])
found = collections.defaultdict(list)
for s, n in zip(stages, stages[1:]):
    found[s[0], n[0]].append((n[1] - s[1], s[1] - min(s[2]), s[1] - max(s[2]), s[3]))
for (kernel, after), v in sorted(found.items(), key=lambda k: -sum(t[0] for t in k[1]))[:24]:
    us, early, late = (statistics.median(t[i] for t in v) / 1e3 for i in range(3))
    line = f"{str(kernel):18} -> {str(after):18} {len(v):4} times {us:8.2f} us   waiting {early:7.2f} .. {late:6.2f}"
    for tag in range(1, 5):
        some = [t[3][tag] for t in v if t[3][tag]]
        if some:
            line += f"   note {tag}: {statistics.median(map(statistics.median, some)) / 1e3:.2f}"
            line += f", last {statistics.median(map(max, some)) / 1e3:.2f}"
    print(line)
PY
    ;;
*) echo "timeline: no '$what'" >&2; exit 2 ;;
esac
