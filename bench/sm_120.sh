#!/usr/bin/env bash
# bench/sm_120.sh: compiles every CUDA kernel for sm_120 and writes what ptxas says of registers, shared memory
# and spills into bench/sm_120.md, from the line "## Kernels" on. Fails where a kernel spills, or takes more than
# the chip has. Two minutes on two cores, seconds for what ccache knows.
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
cache=$(command -v ccache || true)
# the longest first
find src/kernels/cuda -name '*.cu' -printf '%s %p\n' | sort -rn | cut -d' ' -f2 |
    xargs -P "$(nproc)" -I FILE sh -c '
        text=$1/$(basename FILE).txt
        $2 "$3" -std=c++20 -I src -I include -gencode arch=compute_120,code=sm_120 -Xptxas -v -c FILE \
            -o "$text.o" 2>"$text" || { cat "$text" >&2; exit 1; }' - "$log" "$cache" "$nvcc"
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- src/kernels/cuda || commit="$commit and changes"
python3 - "$log" "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')" "$commit" "$(date -u +%F)" <<'PY'
import pathlib, re, subprocess, sys

log, nvcc, commit, day = sys.argv[1:]
MOST_REGISTERS, MOST_SHARED = 255, 101376  # of a thread; of a block
kernels = []  # [file, mangled name, registers, static shared, spilled]
for text in sorted(pathlib.Path(log).glob("*.txt")):
    for line in text.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\S+)'", line):
            kernels.append([text.stem, m[1], 0, 0, 0])
        elif m := re.search(r"Function properties for (\S+)", line):
            spills_of = m[1]
        elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if spills_of == kernels[-1][1]:
                kernels[-1][4] = int(m[1]) + int(m[2])
        elif m := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            kernels[-1][2:4] = int(m[1]), int(shared[1]) if shared else 0
names = subprocess.run(["c++filt"], input="\n".join(k[1] for k in kernels), capture_output=True, text=True,
                       check=True).stdout.splitlines()
forms = re.findall(r"FORM_(\w+),", pathlib.Path("src/kernels/cuda/repack.h").read_text().split("enum plane_form {")[1].split("}")[0])
for kernel, name in zip(kernels, names):
    kernel[1] = re.match(r"(?:void )?([\w:]+(?:<[^(]*>)?)\(", name)[1]
    if re.match("(vector8|one|hidden8|down8|tile|embed)_kernel<", kernel[1]):  # whose first argument is a form
        kernel[1] = re.sub(r"<(\d+)", lambda m: "<" + forms[int(m[1])], kernel[1])
spilled = [f"`{k[1]}` {k[4]} bytes" for k in kernels if k[4]]
beyond = [k[1] for k in kernels if k[2] > MOST_REGISTERS or k[3] > MOST_SHARED]
path = pathlib.Path("bench/sm_120.md")
head = path.read_text().split("## Kernels\n")[0]
with path.open("w") as out:
    out.write(head + "## Kernels\n\n")
    out.write(f"Made {day} of commit {commit} with nvcc {nvcc}. Each row has the largest value of a\n"
              "file's kernels and the kernel that has it; shared memory is the static part, in bytes.\n\n")
    out.write("| File | Kernels | Registers | Shared memory | Spilled bytes |\n|---|---:|---|---|---:|\n")
    for file in sorted({k[0] for k in kernels}):
        of = [k for k in kernels if k[0] == file]
        r, s = max(of, key=lambda k: k[2]), max(of, key=lambda k: k[3])
        out.write(f"| {file} | {len(of)} | {r[2]} `{r[1]}` | {f'{s[3]} `{s[1]}`' if s[3] else 0} | {sum(k[4] for k in of)} |\n")
    out.write(f"\nSpilled: {', '.join(spilled) or 'nothing'}.\n")
print(f"{len(kernels)} kernels, {max(k[2] for k in kernels)} registers at most, {max(k[3] for k in kernels)} bytes "
      f"static shared; spilled: {', '.join(spilled) or 'nothing'}")
if beyond:
    print(f"more than a block or a thread may have: {', '.join(beyond)}")
sys.exit(bool(spilled or beyond))
PY
