#!/usr/bin/env python3
"""Scaling over the GPUs of one machine: speed by split, number of cards and number of streams, and memory per card.

    scaling.py                    measures; prints a table of each load at once, what must be reached at the end
    scaling.py record ROWS DEVICE appends ROWS, the file that a run wrote, to bench/results/gpus.jsonl
    scaling.py plot >docs/scaling.svg
                                  draws the last measurement of each model

One server per model, split and number of cards answers all numbers of streams. What to measure is in the environment:
MODELS (35b 122b 397b), PART (one replica layer tensor), CARDS (1 2 4 8, as far as they exist), STREAMS (1 8 32 128; 8
and 16 a card are added), VRAM (a --vram that stands for smaller cards), LAYERS (fewer layers), UNTIL (seconds after
which no load begins), GEN (tokens of an answer), ROWS (file; SCRATCH/scaling.jsonl), SCRATCH (/dev/shm), CHIMERE.
A model gets fewer layers if its file would take more than half of SCRATCH, or WRITE_S seconds (300) to write at
WRITE_GB_S (1.0). CARDS_AS=cpu tries the script without cards, on small models.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

MODELS = {  # shape of synth, mix, layers, GB of the file, GB of one layer
    "35b": ("qwen35moe-35b", "ramp3", 40, 15.6, 0.36),
    "122b": ("qwen35moe-122b", "ramp3", 48, 54, 1.1),
    "397b": ("qwen35moe-397b", "ramp3", 60, 175, 2.85),
    "mini": ("qwen35moe-mini", "q8", 16, 1.2, 0.07),
}
# split, streams a card, times the speed of one card with as many streams as each card has
MUST = {("replica", 16): 0.95, ("layer", 8): 0.8}
MEMORY = 0.03  # of the plan
PROMPT = 64


def words(name, default):
    return os.environ.get(name, default).split()


IS_CPU = os.environ.get("CARDS_AS") == "cpu"
CHIMERE = os.environ.get("CHIMERE", "build/cuda/chimere")
SCRATCH = Path(os.environ.get("SCRATCH", "/dev/shm"))
ROWS = Path(os.environ.get("ROWS", SCRATCH / "scaling.jsonl"))
GEN = int(os.environ.get("GEN", "16" if IS_CPU else "128"))
STARTED = time.monotonic()
TRY = ["--layers", "8", "--vocab", "2048"]


def say(text):
    print(text, flush=True)


def ask_driver(field):
    """One number per card; none without a driver."""
    try:
        out = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [float(line) for line in out.split()]


def n_layers(name):
    """All layers, or as many fours as the room and the time allow."""
    _, _, layers, size, each = MODELS[name]
    if os.environ.get("LAYERS"):
        return int(os.environ["LAYERS"])
    disk = os.statvfs(SCRATCH)
    room = min(disk.f_bavail * disk.f_frsize / 2e9,
               float(os.environ.get("WRITE_S", 300)) * float(os.environ.get("WRITE_GB_S", 1)))
    return layers if size <= room else max(4, int((layers - (size - room) / each) // 4 * 4))


def write_model(name):
    shape, mix, whole = MODELS[name][:3]
    layers = n_layers(name)
    path = SCRATCH / f"{shape}-{mix}-{layers}.gguf"
    if IS_CPU:
        path = path.with_suffix(".small.gguf")
    if not path.exists():
        for old in SCRATCH.glob("qwen35moe-*.gguf"):
            if name != "35b" and not IS_CPU and "-35b-" not in old.name:
                old.unlink()  # one large file at a time
        start = time.monotonic()
        subprocess.run([CHIMERE, "synth", shape, mix, f"{path}.part"]
                       + (TRY if IS_CPU else ["--layers", str(layers)]), stdout=subprocess.DEVNULL, check=True)
        Path(f"{path}.part").rename(path)
        say(f"== {name}: {layers} of {whole} layers, {path.stat().st_size / 1e9:.1f} GB written in "
            f"{time.monotonic() - start:.0f} s")
    return path, layers


class Server:
    """A server on the first n cards."""

    def __init__(self, path, split, n, slots):
        self.said = SCRATCH / "scaling.said"
        args = [CHIMERE, "serve", "-m", str(path), "--port", "0", "--no-odo", "--no-speculate", "--ctx", "512",
                "--parallel", str(slots), "--prompt-cache", "0"]
        if n > 1 or not IS_CPU:
            args += ["--gpus", ",".join("cpu" if IS_CPU else str(i) for i in range(n))]
        if n > 1:
            args += ["--split", split]
        if os.environ.get("VRAM"):
            args += ["--vram", os.environ["VRAM"]]
        self.before = ask_driver("memory.used")
        start = time.monotonic()
        self.out = self.said.open("w")
        self.process = subprocess.Popen(args, stdout=self.out, stderr=subprocess.STDOUT)
        self.url = None
        while not self.url and self.process.poll() is None and time.monotonic() - start < 240:
            time.sleep(0.1)
            found = re.search(r"http://[^ ?]*", self.said.read_text(errors="replace"))
            self.url = found and found.group(0)
        self.seconds = time.monotonic() - start
        self.text = self.said.read_text(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.out.close()

    def load(self, streams, requests, gen):
        """Tokens a second of all streams together; NaN if it fails."""
        try:
            out = subprocess.run([CHIMERE, "bench", "--url", self.url, "--json", "-p", str(PROMPT), "-n", str(gen),
                                  "--concurrency", str(streams), "--requests", str(requests)],
                                 capture_output=True, text=True, timeout=120, check=True).stdout
            row = json.loads(out)[0]
            return row["decode_tok_s"] if not row["failed"] else float("nan")
        except (subprocess.SubprocessError, ValueError, LookupError) as error:
            say(f"    {streams} streams: {getattr(error, 'stderr', None) or error}")
            return float("nan")

    def memory(self, n):
        """Of each card: GB planned, allocated, and taken from the driver."""
        own = [(float(p), float(a)) for a, p in
               re.findall(r"allocated +([\d.]+) GB, planned ([\d.]+) GB", self.text)]
        used = [(a - b) * 1.048576e-3 for a, b in zip(ask_driver("memory.used"), self.before)]
        return [own[i] + ((used[i],) if i < len(used) else ()) for i in range(min(n, len(own)))]


def streams_of(n):
    some = {int(s) for s in words("STREAMS", "1 8 32 128")} | {8 * n, 16 * n}
    return sorted(s for s in some if s <= 128)


def put(rows, **row):
    rows.append(row)
    with ROWS.open("a") as out:
        out.write(json.dumps(row) + "\n")


def measure(rows, name, path, layers, split, n):
    most = max(streams_of(n))
    # a replica answers its share; some of them get one more than the others
    slots = min(256, -(-most // n) + (2 if n > 1 else 0)) if split == "replica" else most
    server = Server(path, split, n, slots)
    base = {"model": name, "layers": layers, "split": split, "cards": n}
    try:
        if not server.url:
            said = [line for line in server.text.splitlines() if "chimere:" in line]
            say(f"== {name} {split} {n}: refused after {server.seconds:.0f} s: {(said or ['no word'])[0]}")
            put(rows, **base, refused=(said or ["no word"])[0])
            return
        say(f"== {name}, {split}, {n} cards: loaded in {server.seconds:.1f} s, at {time.monotonic() - STARTED:.0f} s")
        for line in server.text.splitlines():
            if re.match(r"\d cards, |link: |not cut: |.*experts .*on the processor", line):
                say(f"    {line.strip()}")
        for s in streams_of(n):
            server.load(s, s, 16)
            rate = server.load(s, max(4, 2 * s), GEN)
            say(f"    {s:4d} streams {rate:10.1f} tokens a second, {rate / s:8.1f} each")
            if rate == rate:
                put(rows, **base, streams=s, tok_s=round(rate, 1))
        for card, gb in enumerate(server.memory(n)):
            off = gb[1] / gb[0] - 1
            say(f"    card {card}: {gb[0]:.3f} GB planned, {gb[1]:.3f} GB allocated ({off:+.1%}"
                f"{'' if abs(off) <= MEMORY else ': MISSED'})"
                + (f", {gb[2]:.2f} GB more in use by the driver" if len(gb) > 2 else ""))
            put(rows, **base, card=card, planned_gb=gb[0], allocated_gb=gb[1],
                driver_gb=round(gb[2], 2) if len(gb) > 2 else None)
    finally:
        server.close()


def speeds(rows):
    return {(r["model"], r["split"], r["cards"], r["streams"]): r["tok_s"] for r in rows if "tok_s" in r}


def summary(rows):
    speed = speeds(rows)
    for name in dict.fromkeys(k[0] for k in speed):
        columns = sorted({k[1:3] for k in speed if k[0] == name}, key=lambda c: (c[1], c[0]))
        say(f"\n{name}: tokens a second\nstreams " + "".join(f"{s + ' ' + str(n):>12}" for s, n in columns))
        for s in sorted({k[3] for k in speed if k[0] == name}):
            cells = [speed.get((name, *c, s)) for c in columns]
            say(f"{s:7d} " + "".join(f"{v:12.1f}" if v else f"{'-':>12}" for v in cells))
    for (name, split, n, s), rate in speed.items():
        for (kind, each), least in MUST.items():
            one = speed.get((name, "one", 1, each))
            if kind == split and s == each * n and one:
                times = rate / one
                say(f"{name} {split} on {n}: {times:.2f} times one card with {each} streams, at least {least * n:.2f}: "
                    + ("reached" if times >= least * n else "MISSED"))


def run():
    have = 8 if IS_CPU else len(ask_driver("index"))
    if not have:
        say("skip: no GPU")
        return
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    parts = words("PART", "one replica layer tensor")
    for name in words("MODELS", "mini" if IS_CPU else "35b"):
        path, layers = write_model(name)
        for n in (int(c) for c in words("CARDS", "1 2 4 8")):
            for split in parts if n <= have else ():
                if (split == "one") != (n == 1):
                    continue
                if time.monotonic() - STARTED > float(os.environ.get("UNTIL", 1e9)):
                    say(f"== {name} {split} {n}: left out, at {time.monotonic() - STARTED:.0f} s")
                    continue
                measure(rows, name, path, layers, split, n)
    summary(rows)
    say(f"rows: {ROWS}; {time.monotonic() - STARTED:.0f} s")


def record(source, device):
    """Rows as bench/results has them; the last of several measurements of a figure counts."""
    def git(*args):
        return subprocess.run(["git", *args], capture_output=True, text=True, check=True).stdout.strip()
    rows = [json.loads(line) for line in Path(source).read_text().splitlines()]
    head = {"date": time.strftime("%Y-%m-%d"), "commit": git("rev-parse", "--short=7", "HEAD"), "device": device}
    tail = {"command": "bench/gpu.sh scaling", "provenance": "measured",
            "tree": {f: git("rev-parse", f"HEAD:{f}")[:12] for f in ("src/engine", "src/kernels/cuda")}}
    new = {}
    for r in rows:
        how = "one card" if r["cards"] == 1 else f"{r['split']}, {r['cards']} cards"
        _, mix, whole = MODELS[r["model"]][:3]
        model = f"{r['model']} {mix}" + ("" if r["layers"] == whole else f", {r['layers']} of {whole} layers")
        if "tok_s" in r:
            key = f"gpus.scaling.{r['model']}.{r['split']}.{r['cards']}.{r['streams']}"
            new[key] = {"id": key, **head, "test": f"{model}, {r['streams']} stream" + "s" * (r["streams"] > 1), "metric": how,
                        "value": r["tok_s"], "unit": "tokens per second", **tail}
        elif "card" in r:
            key = f"gpus.scaling.{r['model']}.{r['split']}.{r['cards']}.memory.{r['card']}"
            new[key] = {"id": key, **head, "test": f"{model}, {how}, card {r['card']}", "metric": "memory",
                        "value": r["allocated_gb"], "unit": "GB", **tail,
                        "note": f"planned {r['planned_gb']} GB: {r['allocated_gb'] / r['planned_gb'] - 1:+.1%}"}
    with Path("bench/results/gpus.jsonl").open("a") as out:
        for row in new.values():
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{len(new)} rows")


def plot():
    """One panel per model: tokens per second of all streams together, a line per split and number of cards."""
    width, height, left, top, gap = 360, 240, 64, 34, 84
    colours = {"one": "#888", "replica": "#1b7f4d", "layer": "#1f5fbf", "tensor": "#c2571a"}
    names = {"one": "one card", "replica": "replicas", "layer": "layers", "tensor": "slices"}
    values = {}
    for line in Path("bench/results/gpus.jsonl").read_text().splitlines():
        row = json.loads(line)
        part = row["id"].split(".")
        if part[:2] == ["gpus", "scaling"] and len(part) == 6 and part[5].isdigit():
            values.setdefault(part[2], {}).setdefault((part[3], int(part[4])), {})[int(part[5])] = row["value"]
    out = []
    for i, (model, lines) in enumerate(values.items()):
        x0, most = left + i * (width + gap), max(max(v.values()) for v in lines.values())
        step = 10 ** (len(str(int(most))) - 1)
        step = step if most / step > 2.5 else step // 2
        x = lambda s, x0=x0: x0 + width * (s.bit_length() - 1) / 7
        y = lambda v, most=most: top + height * (1 - v / (most * 1.05))
        out.append(f'<text x="{x0}" y="18" font-weight="bold">{model}: tokens per second, all streams</text>')
        for v in range(0, int(most * 1.05) + 1, step):
            out.append(f'<path d="M{x0} {y(v):.1f}h{width}" stroke="#8884"/>'
                       f'<text x="{x0 - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:,}</text>')
        for s in (1, 2, 4, 8, 16, 32, 64, 128):
            out.append(f'<text x="{x(s):.1f}" y="{top + height + 16}" text-anchor="middle">{s}</text>')
        for k, ((split, cards), v) in enumerate(lines.items()):
            points = " ".join(f"{x(s):.1f},{y(t):.1f}" for s, t in sorted(v.items()))
            dash = ' stroke-dasharray="6 3"' if cards > 2 else ""
            label = names[split] + ("" if split == "one" else f", {cards} cards")
            out.append(f'<polyline points="{points}" fill="none" stroke="{colours[split]}" stroke-width="2"{dash}/>'
                       f'<text x="{x0 + 10}" y="{top + 14 + 16 * k}" fill="{colours[split]}">{label}</text>')
    total = left + len(values) * (width + gap) - gap + 16
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {top + height + 40}" role="img" '
          'font-family="sans-serif" font-size="12" fill="#777">\n<title>Tokens per second by number of streams, '
          'split and number of cards</title>')
    print("\n".join(out))
    print(f'<text x="{total / 2}" y="{top + height + 34}" text-anchor="middle">streams at once</text>\n</svg>')


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    if sys.argv[1:2] == ["record"] and len(sys.argv) == 4:
        record(*sys.argv[2:])
    elif sys.argv[1:] == ["plot"]:
        plot()
    elif len(sys.argv) == 1:
        run()
    else:
        sys.exit(__doc__)
