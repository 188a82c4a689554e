#!/usr/bin/env python3
"""torture.py [--first N] [--drawn N] [--seed S] [--share K/N] [--no-leaks] [NAME...]: the n-th allocation fails.

Each row of COMMANDS is run once to count its allocations, then once for every n up to --first, then for --drawn values of
n between that and the last one. Each row of REQUESTS is the same for a request to one server that lives on. What holds:
no signal, no hang, a status other than 0 comes with one sentence, status 0 with the result of the undisturbed run; the
server's next answer is the right one; no memory is out of reach at the end of a program, or of a server after at most
SERVED failures (the leak check of GCC's liblsan, found by itself or named by $TORTURE_LSAN).

$CHIMERE is the program, $FAULT_ALLOC the library test/faults/alloc.c. --share 2/5 does every fifth n from the second on. A
finding is printed with the stack of the failed allocation."""
import argparse, ctypes.util, http.client, json, mmap, os, random, re, shutil, signal, struct, subprocess, sys, tempfile
import time

CHIMERE = os.path.abspath(os.environ.get("CHIMERE", "build/release/chimere"))
SHIM = os.path.abspath(os.environ.get("FAULT_ALLOC", os.path.join(os.path.dirname(CHIMERE), "test/fault_alloc.so")))
# Libraries that end the program if memory is short: by what they print, or by the function whose allocation failed.
ABORTS = {"jansson": b"lex_scan_string: Assertion `0' failed"}
CRASHES = {"glibc, which uses what it could not allocate": b"fts64_open"}
LEAK = b"LeakSanitizer: detected memory leaks"
CHECK_FAILED = b"LeakSanitizer: CHECK failed"  # the failed allocation was the check's own
SERVED = 50  # failures that one server meets before it ends and its memory is checked
SECONDS = float(os.environ.get("TORTURE_SECONDS", "120"))  # of one run: more is a hang

# name: arguments, and the file that they write
COMMANDS = {
    "run": ("run -m nano -q -n 4 --temp 0 Hi", None),
    "ask": ("odo ask -m nano -q -n 8 --temp 0 --db ask.db On_which_river_does_Kala_lie?", None),
    "index": ("odo index docs --db index.db", "index.db"),
    "quantize": ("quantize m.gguf q.gguf Q4_0", "q.gguf"),
    "convert": ("convert model c.gguf --type F32", "c.gguf"),
    "inspect": ("inspect m.gguf --json", None),
    "imatrix": ("imatrix -m m.gguf -f text -o m.imatrix --ctx 64 --chunks 1 -q", "m.imatrix"),
    "engram": ("engram build -q -m nano --date 2026-01-01 -o t.engram text", "t.engram"),
    "template": ("template -t chatml.jinja -j chat.json", None),
    "grammar": ("grammar --schema schema.json --check {}", None),
    "key": ("key list --state-dir keys", None),
}
CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0, "seed": 1}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer", "maximum": 9}}, "required": ["a"]}}}
# name: path, body
REQUESTS = {
    "chat": ("/v1/chat/completions", CHAT),
    "stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "tools": ("/v1/chat/completions", {**CHAT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 64}),
    "odo": ("/v1/chat/completions", {**CHAT, "model": "odo"}),
    "responses": ("/v1/responses", {"input": "Say hello.", "max_output_tokens": 8, "temperature": 0}),
    "messages": ("/v1/messages", {**{k: v for k, v in CHAT.items() if k != "seed"}}),
    "completions": ("/v1/completions", {"prompt": "Hello", "max_tokens": 4, "temperature": 0}),
    "models": ("/v1/models", None),
    "count": ("/v1/messages/count_tokens", {"messages": CHAT["messages"]}),
}


class Moment:
    """The mapped file that tells the library which allocation fails, and counts them."""

    def __init__(self, path):
        with open(path, "wb") as f:
            f.write(bytes(16))
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 16)

    def set(self, nth, count=0):
        self.map[8:16] = struct.pack("q", nth)
        if count is not None:
            self.map[0:8] = struct.pack("q", count)

    def count(self):
        return struct.unpack("q", self.map[0:8])[0]


leak_check = None  # the library


def environment(check=True, **more):
    env = dict(os.environ, FAULT_FILE="moment", FAULT_TRACE="trace", HOME=os.getcwd(), XDG_DATA_HOME=os.getcwd() + "/xdg",
               XDG_CONFIG_HOME=os.getcwd() + "/xdg", LSAN_OPTIONS="exitcode=23", **more)
    env["LD_PRELOAD"] = " ".join(filter(None, [SHIM, check and leak_check]))
    return env


def find_leak_check():
    """Uses the library if it finds a leak that is there."""
    global leak_check
    leak_check = os.environ.get("TORTURE_LSAN") or ctypes.util.find_library("lsan")
    if not leak_check:
        return print("skip: leaks: no liblsan (Debian: liblsan0)", flush=True)
    got = subprocess.run([CHIMERE, "--version"], env=environment(FAULT_LEAK="1"), capture_output=True)
    if LEAK not in got.stderr:  # it reads the memory of all threads by ptrace, which a container may refuse
        leak_check = None
        print(f"skip: leaks: the check does not work here: {got.stderr[-200:].decode(errors='replace')}", flush=True)


def leaks(err):
    """What the leak check said; None if it said nothing."""
    at = err.find(LEAK)
    return None if at < 0 else err[at:at + 3000].decode(errors="replace")


def prepare():
    """The files that the commands read."""
    with open("text", "w") as f:
        f.writelines(f"The {i} cats sat on {i * 7} mats; none of them moved.\n" for i in range(40))
    os.mkdir("docs")
    for i in range(3):
        with open(f"docs/{i}.md", "w") as f:
            f.write(f"# Page {i}\nKala {i} lies on the river Goza.\n")
    with open("chat.json", "w") as f:
        json.dump({"messages": CHAT["messages"]}, f)
    with open("chatml.jinja", "w") as f:
        f.write("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}")
    with open("schema.json", "w") as f:
        json.dump({"type": "object", "properties": {"messages": {"type": "array"}}}, f)
    data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/hf")
    os.mkdir("model")
    for name in ("llama/config.json", "tokenizer-qwen35/tokenizer.json", "tokenizer-qwen35/tokenizer_config.json"):
        shutil.copy(os.path.join(data, name), "model")
    tensors, at = {}, 0
    for line in open(os.path.join(data, "llama/weights.tsv")):
        name, shape = line.split("\t")[:2]
        shape, n = [int(k) for k in shape.split(",")], 4
        for k in shape:
            n *= k
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    head = json.dumps(tensors).encode()
    with open("model/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + bytes(at))
    for line in ("convert model m.gguf --type F32", "odo index docs --db ask.db",
                 "key add someone --state-dir keys"):
        subprocess.run([CHIMERE, *line.split()], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def values(args, n_all, rng):
    first = list(range(1, min(args.first, n_all) + 1))
    rest = range(args.first + 1, n_all + 1)
    one, of = map(int, args.share.split("/"))
    return (first + sorted(rng.sample(rest, min(args.drawn, len(rest)))))[one - 1::of]


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


findings = []


def finding(name, n, what):
    stack = read("trace").decode(errors="replace").strip()
    findings.append(name)
    print(f"FINDING {name} n={n}: {what}\n{stack}\n", flush=True)


def once(line, check=True):
    try:
        return subprocess.run([CHIMERE, *line.split()], env=environment(check), stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None


def plain(out):
    """Output without times and speeds."""
    return re.sub(rb"[0-9.]+ (s|MB/s|million weights per second)", b"", out)


def is_sentence(err):
    """The last line is the program's."""
    lines = [l for l in err.decode(errors="replace").splitlines() if l.startswith("chimere: ")]
    return bool(lines) and len(lines[-1]) > len("chimere: ")


def command(name, args, moment, rng):
    line, made = COMMANDS[name]

    def clear():
        for path in (made, f"{made}-wal", f"{made}-shm", "trace"):
            if path and os.path.exists(path):
                os.remove(path)

    for _ in range(2):  # the first run may fill caches
        clear()
        moment.set(0)
        right = once(line)
    if not right or right.returncode:
        sys.exit(f"torture: {line}: without a fault: {right and right.stderr.decode()}")
    n_all, whole = moment.count(), made and read(made)
    refused = aborted = 0
    todo = values(args, n_all, rng)
    for n in todo:
        clear()
        moment.set(n)
        got = once(line)
        if got and CHECK_FAILED in got.stderr:
            clear()
            moment.set(n)
            got = once(line, check=False)
        moment.set(0)
        if got is None:
            finding(name, n, "hangs")
        elif leaks(got.stderr):
            finding(name, n, leaks(got.stderr))
        elif got.returncode == -signal.SIGABRT and any(words in got.stderr for words in ABORTS.values()):
            aborted += 1
        elif got.returncode == -signal.SIGSEGV and any(name in read("trace") for name in CRASHES.values()):
            aborted += 1
        elif got.returncode < 0 or got.returncode > 125:
            finding(name, n, f"status {got.returncode}: {got.stderr.decode(errors='replace')[-2000:]}")
        elif got.returncode == 0:
            if plain(got.stdout) != plain(right.stdout):
                finding(name, n, f"status 0 with another output: {got.stdout[:500]!r} {got.stderr[-500:]!r}")
            elif made and name != "index" and read(made) != whole:
                finding(name, n, f"status 0 with another {made}")
        else:
            refused += 1
            if not is_sentence(got.stderr):
                finding(name, n, f"status {got.returncode} without a sentence: {got.stderr[-500:]!r}")
            if made and name != "index" and os.path.exists(made) and read(made) != whole:
                finding(name, n, f"failed and left a part of {made}")
        if name == "index":
            after = once(line)
            found = once("odo search Goza --db index.db")
            if after.returncode or found.stdout.count(b".md") < 3:
                finding(name, n, f"the index cannot be completed: {after.stderr!r} {found.stdout!r}")
    print(f"{name:12} {n_all:8} allocations, {len(todo):5} failed one by one: {refused} refusals, "
          f"{aborted} aborts of a library", flush=True)


servers = []  # all that were started


class Server:
    def __init__(self, moment):
        self.moment = moment
        moment.set(0)
        self.log = open("log", "wb")
        self.process = subprocess.Popen(
            [CHIMERE, "serve", "-m", "nano", "--port", "0", "-q", "--ctx", "2048", "--db", "serve.db", "--prompt-cache", "1M"],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log)
        servers.append(self.process)
        line = self.process.stdout.readline().decode()
        if "http://" not in line:
            sys.exit(f"torture: no server: {line} {read('log').decode()}")
        self.port = int(line.split("http://")[1].split()[0].rstrip("/").rsplit(":", 1)[1])

    def ask(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            data = None if body is None else json.dumps(body)
            c.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"} if data else {})
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def stop(self, name, since):
        """Its status. A leak is of one of the failures after `since`."""
        self.moment.set(0, None)
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        self.log.close()
        said = read("log")
        if CHECK_FAILED in said:
            return status
        if leaks(said):
            finding(name, since, f"and those after it: {leaks(said)}")
        elif status:
            finding(name, since, f"the server ended with status {status}: {said[-1500:].decode(errors='replace')}")
        return status


def told(body):
    """What an answer says, without what differs each time; None where it ends with an error."""
    text = body.decode(errors="replace")
    if text.startswith(("data:", "event:")):
        parts = [json.loads(l[5:]) for l in text.splitlines() if l.startswith("data:") and l[5:].strip() != "[DONE]"]
        if any("error" in p for p in parts):
            return None
        if not text.rstrip().endswith("[DONE]"):
            return "cut: " + text
        return [[c.get("delta", {}).get("content") for p in parts for c in p.get("choices", [])]]
    answer = json.loads(text)
    if "error" in answer and answer["error"]:
        return None
    keep = {}
    for key in ("choices", "output", "content", "data", "input_tokens"):
        if key in answer:
            keep[key] = json.dumps(answer[key])
    for key, value in keep.items():
        for word in ("id", "call_id", "created", "logprobs"):
            value = re.sub(rf'"{word}": ("[^"]*"|[0-9.]+)', "", value)
        keep[key] = value
    return keep


def request(name, args, moment, rng):
    path, body = REQUESTS[name]
    server = Server(moment)
    counts = []
    for _ in range(4):
        before = moment.count()
        status, answer = server.ask(path, body)
        if status != 200:
            sys.exit(f"torture: {name}: without a fault: {status} {answer}")
        right = told(answer)
        counts.append(moment.count() - before)
    n_all = max(counts[1:])
    refused = closed = 0
    todo = values(args, n_all, rng)
    since = 0
    for i, n in enumerate(todo):
        if os.path.exists("trace"):
            os.truncate("trace", 0)  # the server appends to it
        if i % SERVED == 0:
            server.stop(name, since)
            server, since = Server(moment), n
            server.ask(path, body)
        moment.set(n)
        try:
            status, answer = server.ask(path, body)
            moment.set(0, None)
            got = told(answer)
            if status != 200 or got is None:
                refused += 1
                if got is not None:
                    finding(name, n, f"status {status} without an error: {answer[:500]!r}")
            elif got != right:
                finding(name, n, f"another answer: {answer[:1500]!r}, not {right!r}")
        except (OSError, http.client.HTTPException) as e:
            closed += 1
            moment.set(0, None)
            time.sleep(0.05)
            if args.verbose:
                finding(name, n, f"closed: {e!r}")
            if isinstance(e, TimeoutError):
                finding(name, n, f"hangs: {read('log')[-500:]!r}")
                server.process.kill()
        except ValueError as e:
            finding(name, n, f"broken answer: {e}: {answer[:1000]!r}")
        try:
            status, answer = server.ask(path, body)
            if status != 200 or told(answer) != right:
                finding(name, n, f"the next answer is wrong: {status} {answer[:500]!r}, not {right!r}")
        except (OSError, ValueError, http.client.HTTPException) as e:
            status = server.stop(name, since)
            if CHECK_FAILED not in read("log"):
                finding(name, n, f"the server is gone ({status}): {e!r} {read('log')[-1500:]!r}")
            server, since = Server(moment), n
            server.ask(path, body)
    server.stop(name, since)
    print(f"{name:12} {n_all:8} allocations, {len(todo):5} failed one by one: {refused} refusals, {closed} closed",
          flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--first", type=int, default=1000)
    p.add_argument("--drawn", type=int, default=500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--share", default="1/1")
    p.add_argument("--no-leaks", action="store_true")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("name", nargs="*")
    args = p.parse_args()
    rng = random.Random(args.seed)
    work = tempfile.mkdtemp()
    os.chdir(work)
    try:
        prepare()
        moment = Moment("moment")
        if not args.no_leaks:
            find_leak_check()
        for name in args.name or [*COMMANDS, *REQUESTS]:
            if name not in COMMANDS and name not in REQUESTS:
                sys.exit(f"torture: no {name}; there are: {' '.join([*COMMANDS, *REQUESTS])}")
            (command if name in COMMANDS else request)(name, args, moment, rng)
    finally:
        for process in servers:
            if process.poll() is None:
                process.kill()
                process.wait()
        os.chdir("/")
        shutil.rmtree(work)
    if findings:
        sys.exit(f"torture: {len(findings)} findings: {' '.join(sorted(set(findings)))}")
    print("torture: ok")


main()
