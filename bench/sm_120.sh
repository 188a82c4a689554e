#!/usr/bin/env bash
# bench/sm_120.sh: compiles every CUDA kernel for sm_120 and writes what ptxas says of registers, shared memory
# and spills into bench/sm_120.md, from the line "## Kernels" on. Fails where a kernel spills. Some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
for file in src/kernels/cuda/*.cu; do
    echo "$file" >&2
    "$nvcc" -std=c++20 -I src -I include -arch=sm_120 -Xptxas -v -c "$file" -o "$log/object.o" \
        2>"$log/$(basename "$file").txt" || { cat "$log/$(basename "$file").txt"; exit 1; }
done
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- src/kernels/cuda || commit="$commit and changes"
python3 - "$log" "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')" "$commit" "$(date -u +%F)" <<'PY'
import pathlib, re, subprocess, sys

log, nvcc, commit, day = sys.argv[1:]
rows, spilled = [], []
for text in sorted(pathlib.Path(log).glob("*.txt")):
    found = {}  # kernel without its template arguments: [instances, registers, static shared, stack, spilled]
    name = None
    for line in text.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\S+)'", line):
            full = subprocess.run(["c++filt", m[1]], capture_output=True, text=True, check=True).stdout
            name = re.match(r"(?:void )?([\w:]+)", full)[1]
            kernel = found.setdefault(name, [0, 0, 0, 0, 0])
            kernel[0] += 1
        elif name and (m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            kernel[3] = max(kernel[3], int(m[1]))
            kernel[4] = max(kernel[4], int(m[2]) + int(m[3]))
        elif name and (m := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            kernel[1] = max(kernel[1], int(m[1]))
            kernel[2] = max(kernel[2], int(shared[1]) if shared else 0)
            name = None
    for name, kernel in sorted(found.items()):
        rows.append((text.stem, name, *kernel))
        if kernel[4]:
            spilled.append(name)
path = pathlib.Path("bench/sm_120.md")
head = path.read_text().split("## Kernels\n")[0]
with path.open("w") as out:
    out.write(head + "## Kernels\n\n")
    out.write(f"Made {day} of commit {commit} with nvcc {nvcc}. Of a template's instances the largest numbers; shared memory is what is\n"
              "static, in bytes.\n\n")
    out.write("| File | Kernel | Instances | Registers | Shared | Stack | Spilled bytes |\n|---|---|---:|---:|---:|---:|---:|\n")
    for row in rows:
        out.write("| " + " | ".join(str(x) for x in row) + " |\n")
print(f"{sum(r[2] for r in rows)} kernels of {len(rows)} names, {max(r[3] for r in rows)} registers at most, "
      f"{max(r[4] for r in rows)} bytes static shared; spilled: {', '.join(spilled) or 'none'}")
sys.exit(bool(spilled))
PY
