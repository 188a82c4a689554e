#!/usr/bin/env bash
# bench_disk.sh [FILE]: a model on a disk: the time from the start to the first token with a file that no cache has,
# and decoding with --ram for about half of the experts, both against the rate of the disk (docs/tiers.md).
#
# FILE: a mixture of experts; default: LAYERS (12) layers of the 35B's shape, MIX (q4km), with random weights, written to
# TMPDIR, which must be on a disk that can read without the page cache.
set -euo pipefail
chimere=${CHIMERE:?}
file=${1:-}
if [ -z "$file" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    file=$folder/model.gguf
    "$chimere" synth qwen35moe-35b "${MIX:-q4km}" "$file" --layers "${LAYERS:-12}" >/dev/null
fi
python3 - "$chimere" "$file" <<'PY'
import json, mmap, os, random, subprocess, sys, tempfile, threading, time

chimere, path = sys.argv[1:]
n_bytes = os.path.getsize(path)


def rate_of(n_thread, size, seconds=3):
    """Bytes per second of random reads without the page cache."""
    f = os.open(path, os.O_RDONLY | os.O_DIRECT)
    done, stop = [0] * n_thread, time.time() + seconds

    def read(i):
        r, room = random.Random(i), mmap.mmap(-1, size)
        while time.time() < stop:
            done[i] += os.preadv(f, [room], r.randrange((n_bytes - size) // 4096) * 4096)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(n_thread)]
    start = time.time()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(f)
    return sum(done) / (time.time() - start)


def run(*args):
    """Output of the program and the most memory that it had, in bytes."""
    with tempfile.TemporaryDirectory() as home:
        child = subprocess.Popen([chimere, *args], stdout=subprocess.PIPE, env={**os.environ, "XDG_DATA_HOME": home})
        out = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit("%s %s: status %d" % (chimere, " ".join(args), status))
    return out, used.ru_maxrss * 1024


def first_token(*more):
    """Seconds from the start of the program to the end of one token, without cached pages of the file."""
    f = os.open(path, os.O_RDONLY)
    os.fsync(f)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(f)
    start = time.time()
    run("run", "-m", path, "-c", "512", "--raw", "-p", "a", "-n", "1", "-q", "--ignore-eos", *more)
    return time.time() - start


def bench(*more):
    out, peak = run("bench", "-m", path, "--routing", "trace-like", "-p", "0", "-n", "128", "-r", "1", "--bandwidth",
                    "10", "-q", "--json", *more)
    return json.loads(out)[0], peak


rates = {(n, size): rate_of(n, size) for n in (1, 4, 16, 32) for size in (430080, 1 << 22)}
rate = max(rates.values())
print("file of %.2f GB; disk: %s GB/s" % (n_bytes / 1e9, ", ".join(
    "%d readers of %d KB %.2f" % (n, size >> 10, r / 1e9) for (n, size), r in rates.items())), flush=True)
bar = 1.2 * n_bytes / rate + 2
ram = int(os.environ.get("RAM", n_bytes * 6 // 10))
for more in ([], ["--ram", str(ram)]):
    starts = [first_token(*more) for _ in range(2)]
    print("first token%s: %s s; 1.2 x bytes / rate + 2 s: %.2f s: %s" % (
        " with experts on disk" if more else "", ", ".join("%.2f" % s for s in starts), bar,
        "reached" if min(starts) <= bar else "missed"), flush=True)
whole = bench()[0]["tok_s"]
for _ in range(2):
    got, peak = bench("--ram", str(ram))
    t = got["tier"]
    per_token = t["read_bytes"] / 128
    bound = min(whole, rate / per_token)
    both = 1 / (1 / whole + per_token / rate)
    print("--ram %.2f GB: %.2f tokens per second; %.0f %% of the experts in the pool, %.1f %% hits, %.1f MB per token, "
          "%.0f %% of the time waiting, %.2f GB/s while reading; in memory %.2f; bound of disk and processor concurrently "
          "%.2f: %.0f %%, one after the other %.2f: %.0f %%; at most %.2f GB resident: %s" % (
              ram / 1e9, got["tok_s"], 100 * t["slots"] / t["experts"], 100 * t["hit_rate"], per_token / 1e6,
              100 * t["waiting"], t["read_bytes_per_s"] / 1e9, whole, bound, 100 * got["tok_s"] / bound, both,
              100 * got["tok_s"] / both, peak / 1e9, "within the limit" if peak <= ram else "ABOVE the limit"),
          flush=True)
PY
