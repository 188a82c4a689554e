#!/usr/bin/env python3
"""faults.py [--seed S] [--kills N] [--rounds N] [--seconds S] [NAME...]: a server under load meets the faults of its machine.

The load is seven clients: conversations, facts and documents are stored, chats answered and their states saved, large texts
read, all at once; beside them keys are made, a model is fetched, and nights run. A fault comes at a random moment. What holds: what was acknowledged is
still there, as it was, after the next start; an answer with status 200 is the right one; the program never dies of a
fault that is not a kill, and says a sentence if it refuses to start.

kill     kill -9 of the server, of a download, of a night and of a new key, --kills times
disk     the n-th write, sync or rename fails: ENOSPC from there on, or EIO once (FAULT_FULL, test/faults/full.c)
clock    the time of day steps by years, back and forth (FAULT_CLOCK, test/faults/clock.c)
fds      no descriptor is left for a while
memory   no memory is left for a while

$CHIMERE is the program."""
import argparse, hashlib, http.client, http.server, json, os, random, re, resource, shutil, signal, sqlite3, struct
import subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
CHIMERE = os.path.abspath(os.environ.get("CHIMERE", "build/release/chimere"))
PLACE = os.path.dirname(CHIMERE)
SHIMS = {name: os.path.abspath(os.environ.get("FAULT_" + name.upper(), f"{PLACE}/test/fault_{name}.so"))
         for name in ("full", "clock")}
SECONDS = 120  # no single step takes longer on a machine that others load
LARGE = "herons and more herons.\n" * 1000
# Libraries that end the program if memory is short, by what they print: the server may end, but loses nothing.
ABORTS = {"jansson": "lex_scan_string: Assertion `0' failed"}
FACTS_MOST = 150  # a user's memory is bounded
LONG = ("Tell me about herons, their nests, their young, what they eat, where they live and how long they live there, "
        "and be exact and brief, please, as always, number %d.")


def die(what):
    print(f"FAILED: {what}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


children = []  # all that were started


def start(*args, **how):
    children.append(subprocess.Popen(*args, **how))
    return children[-1]


class Server:
    def __init__(self, preload=None, **env):
        self.log = open("log", "wb")
        self.name = preload
        self.refused = 0  # answers other than 200
        full = dict(os.environ, HOME=os.getcwd(), XDG_DATA_HOME=os.getcwd() + "/xdg", XDG_CONFIG_HOME=os.getcwd() + "/xdg", **env)
        if preload:
            full["LD_PRELOAD"] = SHIMS[preload]
        self.process = start(
            [CHIMERE, "serve", "-m", "nano", "--port", "0", "-q", "--ctx", "2048", "--db", "serve.db", "--state-dir", "kept",
             "--state-disk", "32M", "--prompt-cache", "1M", "--no-keys", "--no-speculate", "--keep-days", "0", "--deterministic"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, env=full)
        line = self.process.stdout.readline().decode()
        self.port = int(line.split("http://")[1].split()[0].rstrip("/").rsplit(":", 1)[1]) if "http://" in line else 0
        if not self.port:
            self.process.wait(SECONDS)

    def said(self):
        return read("log").decode(errors="replace")[-2000:]

    def alive(self):
        return self.process.poll() is None

    def end(self, how=signal.SIGTERM):
        """Returns the status."""
        if self.alive():
            self.process.send_signal(how)
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            die("the server does not end")
        self.process.stdout.close()
        self.log.close()
        return status

    def ask(self, method, path, body=None, raw=False):
        """Status and body; an OSError or HTTPException where there is no answer."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            data = body if raw else None if body is None else json.dumps(body)
            c.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = c.getresponse()
            self.refused += answer.status != 200
            return answer.status, answer.read()
        finally:
            c.close()


class Ledger:
    """What was acknowledged, and what may or may not be there because its acknowledgement did not come."""

    def __init__(self, rng):
        self.lock = threading.Lock()
        self.rng = rng
        self.conversations = {}  # id: texts of its items
        self.unsure = set()  # texts
        self.facts, self.documents, self.keys = [], [], []
        self.right = {}  # question: answer
        self.n = 0
        self.wrong = []

    def next(self):
        with self.lock:
            self.n += 1
            return self.n


def talk(stream, number):
    return {"messages": [{"role": "user", "content": LONG % number}], "max_tokens": 12, "temperature": 0, "stream": stream}


def said_in(answer, stream):
    """The text of an answer; None where it ends with an error or is cut."""
    if not stream:
        o = json.loads(answer)
        return None if o.get("error") else o["choices"][0]["message"]["content"]
    lines = [l[5:].strip() for l in answer.decode().splitlines() if l.startswith("data:")]
    if not lines or lines[-1] != "[DONE]":
        return None
    parts = [json.loads(l) for l in lines[:-1]]
    if any("error" in p for p in parts):
        return None
    return "".join(c["delta"].get("content") or "" for p in parts for c in p.get("choices", []))


# ---- the load: each function does one thing, and notes it if it was acknowledged ----

def one_chat(server, book, rng):
    number, stream = rng.randrange(12), rng.random() < 0.5
    status, answer = server.ask("POST", "/v1/chat/completions", talk(stream, number))
    text = said_in(answer, stream) if status == 200 else None
    if status == 200 and text is None and not stream:
        book.wrong.append(f"status 200 without an answer: {answer[:300]!r}")
    if text is not None and text != book.right[number]:
        book.wrong.append(f"question {number}: {text!r}, not {book.right[number]!r}")


def one_conversation(server, book, rng):
    n = book.next()
    text = f"item {n} of herons"
    ids = list(book.conversations)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    if ids and rng.random() < 0.8:
        where = rng.choice(ids[-20:])
        with book.lock:
            book.unsure.add(text)
        status, answer = server.ask("POST", f"/v1/conversations/{where}/items", {"items": [item]})
        if status == 200:
            with book.lock:
                book.conversations[where].append(text)
                book.unsure.discard(text)
    else:
        status, answer = server.ask("POST", "/v1/conversations", {"title": f"t{n}", "items": [item]})
        if status == 200:
            with book.lock:
                book.conversations[json.loads(answer)["id"]] = [text]


def one_fact(server, book, rng):
    n = book.next()
    if len(book.facts) >= FACTS_MOST:
        return one_conversation(server, book, rng)
    status, _ = server.ask("POST", "/v1/memory", {"text": f"I keep {n} herons.", "pinned": True})
    if status == 200:
        book.facts.append(f"I keep {n} herons.")


def one_document(server, book, rng):
    n = book.next()
    status, _ = server.ask("POST", f"/chimere/v1/documents?name=d{n}.md", f"# Page {n}\n\nHeron{n} lives on lake {n}.\n", raw=True)
    if status == 200:
        book.documents.append(n)


def one_large(server, book, rng):
    """Takes megabytes for a moment."""
    times = rng.randrange(1, 100)
    status, answer = server.ask("POST", "/tokenize", {"content": LARGE * times})
    if status == 200 and json.loads(answer)["tokens"] != book.right["large"] * times:
        book.wrong.append(f"a large text: {answer[:300]!r}")
    time.sleep(0.05)


WORK = [one_chat, one_chat, one_chat, one_conversation, one_fact, one_document, one_large]


class Load:
    """The clients. They go on until stop(); a fault of the connection only counts."""

    def __init__(self, server, book):
        self.server, self.book = server, book
        self.over = False
        self.done = self.failed = 0
        self.threads = [threading.Thread(target=self.work, args=(one, random.Random(book.rng.random())), daemon=True)
                        for one in WORK]
        for t in self.threads:
            t.start()

    def work(self, one, rng):
        while not self.over:
            try:
                one(self.server, self.book, rng)
                self.done += 1
            except (OSError, http.client.HTTPException):
                self.failed += 1
                time.sleep(0.01)
            except Exception as e:  # what came is no answer
                self.book.wrong.append(repr(e))
                return

    def stop(self):
        self.over = True
        for t in self.threads:
            t.join(2 * SECONDS)
            if t.is_alive():
                die("a request hangs")


# ---- what must hold afterwards ----

def check_conversation(server, book, where):
    status, answer = server.ask("GET", f"/v1/conversations/{where}/items?order=asc&limit=100")
    if status != 200:
        die(f"conversation {where} is lost: {status} {answer[:300]!r}")
    have = [i["content"][0]["text"] for i in json.loads(answer)["data"]]
    sure = [t for t in have if t not in book.unsure]
    want = book.conversations[where]
    if len(want) < 100 and sorted(sure) != sorted(want):
        die(f"conversation {where}: {sure}, not {want}")


def verify(server, book, when):
    """Everything acknowledged is there, of the conversations the newest and some older."""
    if book.wrong:
        die(f"{when}: {book.wrong[:3]}")
    ids = list(book.conversations)
    for where in set(ids[-20:] + book.rng.sample(ids, min(5, len(ids)))):
        check_conversation(server, book, where)
    status, answer = server.ask("GET", "/v1/memory")
    have = answer.decode(errors="replace")
    lost = [f for f in book.facts if f not in have]
    if status != 200 or lost:
        die(f"{when}: facts are lost: {status} {lost[:5]} of {len(book.facts)}: {have[:300]}")
    status, answer = server.ask("GET", "/chimere/v1/documents")
    listed = json.loads(answer) if status == 200 else {"data": [], "has_more": False}
    have = {d["name"] for d in listed["data"]}
    # the list is in the order of names, and bounded
    end = max(have) if listed["has_more"] else "~"
    lost = [n for n in book.documents if f"d{n}.md" not in have and f"d{n}.md" < end]
    if status != 200 or lost:
        die(f"{when}: documents are lost: {status} {lost[:5]} of {len(book.documents)}: {answer[:300]!r}")
    for n in book.documents[-1:]:
        status, answer = server.ask("GET", f"/chimere/v1/documents/search?query=Heron{n}")
        if status != 200 or f"lake {n}".encode() not in answer:
            die(f"{when}: document {n} is not found: {status} {answer[:300]!r}")
    for number in book.rng.sample(range(12), 2):
        status, answer = server.ask("POST", "/v1/chat/completions", talk(False, number))
        if status != 200 or said_in(answer, False) != book.right[number]:
            die(f"{when}: question {number}: {status} {answer[:300]!r}, not {book.right[number]!r}")


def started(book, when, **how):
    server = Server(**how)
    if not server.port:
        die(f"{when}: no server: {server.said()}")
    return server


def first(book):
    """The undisturbed answers."""
    server = started(book, "first start")
    for number in range(12):
        status, answer = server.ask("POST", "/v1/chat/completions", talk(False, number))
        if status != 200:
            die(f"without a fault: {status} {answer}")
        book.right[number] = said_in(answer, False)
    book.right["large"] = json.loads(server.ask("POST", "/tokenize", {"content": LARGE})[1])["tokens"]
    if server.end():
        die(f"without a fault: {server.said()}")


# ---- programs that are killed beside the server ----

class Hub:
    """A model hub with one model."""

    FILE = "Tiny-Q8_0.gguf"

    def __init__(self):
        # every byte of the file is known
        self.bytes = read(f"{HERE}/../../models/chimere-nano-bf16.gguf")
        self.hash = hashlib.sha256(self.bytes)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.handle_error = lambda *_: None  # the client was killed
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handler(hub):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body, **head):
                self.send_response(status)
                for name, value in {"Content-Length": len(body), **head}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def do_GET(self):
                path, n = self.path.split("?")[0], len(hub.bytes)
                if path.startswith("/api/models/tiny/model/revision/"):
                    file = {"rfilename": hub.FILE, "size": n, "lfs": {"sha256": hub.hash.hexdigest(), "size": n}}
                    return self.answer(200, json.dumps({"id": "tiny/model", "sha": "c" * 40, "siblings": [file]}).encode())
                if path.startswith("/tiny/model/resolve/"):
                    return self.answer(302, b"", Location=f"http://127.0.0.1:{hub.port}/cdn/{hub.FILE}")
                if not path.startswith("/cdn/"):
                    return self.answer(404, b"{}")
                part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                if not part:
                    return self.answer(200, hub.bytes)
                begin, end = int(part[1]), min(int(part[2] or n - 1), n - 1)
                self.answer(206, hub.bytes[begin:end + 1], Content_Range=f"bytes {begin}-{end}/{n}")

            do_HEAD = do_GET

        return Handler

    def pull(self):
        env = dict(os.environ, CHIMERE_HF_ENDPOINT=f"http://127.0.0.1:{self.port}", CHIMERE_MODELS_DIR=os.getcwd() + "/models",
                   HOME=os.getcwd())
        return start([CHIMERE, "pull", "hf:tiny/model"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def check(self, when):
        got = f"models/tiny/model/{self.FILE}"
        if os.path.exists(got):
            if read(got) != self.bytes:
                die(f"{when}: a wrong file was served as downloaded")
            os.remove(got)

    def complete(self):
        """Of what the last kill left."""
        p = self.pull()
        err = p.communicate(timeout=SECONDS)[1]
        if p.returncode:
            die(f"the download cannot be completed: {err!r}")
        self.check("at the end")

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def prepare_night():
    subprocess.run([CHIMERE, "odo", "log", "--db", "day.db"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    db = sqlite3.connect("day.db")
    names = [a + b for a in ("Mira", "Tolo", "Kesh", "Varn", "Ilo") for b in ("na", "dor", "vik", "lis", "mar")]
    for k, n in enumerate(names):
        db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score, judge)"
                   " VALUES(?, 0, ?, '', 'nano', 'answer', ?, ?, 0.9, 'nano')",
                   (int(time.time() * 1000), f"a{k}", f"Where does {n} live?", f"{n} lives in town {k % 5}."))
    db.commit()
    db.close()


def night():
    return start([CHIMERE, "night", "run", "-m", "nano", "--db", "day.db", "-q", "-n", "2", "--steps", "engram",
                             "--night-dir", "nights"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def new_key(book):
    name = f"k{book.next()}"
    p = start([CHIMERE, "key", "add", name, "--state-dir", "keys"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return name, p


def check_keys(book, when):
    listed = subprocess.run([CHIMERE, "key", "list", "--state-dir", "keys"], capture_output=True, timeout=SECONDS)
    lost = [k for k in book.keys if k.encode() not in listed.stdout.split()]
    if (book.keys and listed.returncode) or lost:
        die(f"{when}: keys are lost: {lost} {listed.stderr!r}")


def check_night(when):
    status = subprocess.run([CHIMERE, "night", "status", "--night-dir", "nights"], capture_output=True, timeout=SECONDS)
    table = "nights/live/night.engram"
    if status.returncode:
        die(f"{when}: {status.stderr!r}")
    if os.path.exists(table):
        whole = subprocess.run([CHIMERE, "engram", "verify", table], capture_output=True, timeout=SECONDS)
        if whole.returncode:
            die(f"{when}: the table of a night is damaged: {whole.stderr!r}")


# ---- the faults ----

def moments(args, most):
    """0, 1, ... to most, or until the time of this fault is up."""
    end = time.monotonic() + args.seconds
    for i in range(most):
        if time.monotonic() >= end:
            break
        yield i


def kill(args, book):
    hub = Hub()
    prepare_night()
    counts = {"server": 0, "download": 0, "night": 0, "key": 0}
    done = n_kill = 0
    try:
        for i in moments(args, args.kills):
            n_kill = i + 1
            when = f"kill {i + 1}"
            server = started(book, when)
            if i:
                verify(server, book, when)
            load = Load(server, book)
            others = {"night": night(), "download": hub.pull()}
            name, others["key"] = new_key(book)
            end = {k: time.monotonic() + book.rng.random() * book.rng.choice((0.05, 0.5, 1.5)) for k in ("server", *others)}
            for who in sorted(end, key=end.get):
                time.sleep(max(0, end[who] - time.monotonic()))
                p = server.process if who == "server" else others[who]
                counts[who] += p.poll() is None
                p.kill()
                p.wait()
            told_key = others["key"].stdout.read()
            if b"sk-chimere-" in told_key:
                book.keys.append(name)
            for p in others.values():
                for stream in (p.stdout, p.stderr):
                    if stream:
                        stream.close()
            load.stop()
            server.end()
            done += load.done
            check_keys(book, when)
            check_night(when)
            hub.check(when)
        hub.complete()
        server = started(book, "after the kills")
        verify(server, book, "after the kills")
        for where in book.conversations:
            check_conversation(server, book, where)
        if server.end():
            die(f"after the kills: {server.said()}")
        for db in ("serve.db", "day.db", "keys/chimere.db"):
            if os.path.exists(db) and sqlite3.connect(db).execute("PRAGMA integrity_check").fetchone() != ("ok",):
                die(f"{db} is damaged")
    finally:
        hub.end()
    print(f"kill: {n_kill} moments ({', '.join(f'{n} of a {k}' for k, n in counts.items())} at work); {done} requests; kept: "
          f"{sum(map(len, book.conversations.values()))} items, {len(book.facts)} facts, {len(book.documents)} documents, "
          f"{len(book.keys)} keys", flush=True)


def disturbed(book, when, server, disturb):
    """A while of load, in which disturb() is called. The server lives, and serves what was acknowledged. None where a library
    ended it: the next server serves that."""
    load = Load(server, book)
    try:
        time.sleep(0.2)
        disturb(server)
    finally:
        load.stop()
    time.sleep(0.3)  # one that aborts is there for a moment
    if not server.alive() and any(words in server.said() for words in ABORTS.values()):
        server.end()
        server = started(book, f"after {when}")
        verify(server, book, f"after {when}")
        server.end()
        return None
    if not server.alive():
        die(f"{when}: the server is gone ({server.process.returncode}): {server.said()}")
    if not server.name == "full":  # a full disk stays full until the next start
        verify(server, book, when)
    status = server.end()
    if status < 0 or status > 125:
        die(f"{when}: status {status}: {server.said()}")
    load.refused = server.refused
    return load


def disk(args, book):
    refused = errors = done = 0
    n_round = 0
    for i in moments(args, args.rounds):
        n_round = i + 1
        # a start writes some dozens of times, the load some hundreds
        n, code = int(10 ** (book.rng.random() * 3)), book.rng.choice(("ENOSPC", "EIO"))
        when = f"{code} at write {n}"
        server = Server(preload="full", FAULT_NTH=str(n), FAULT_ERRNO=code)
        if not server.port:
            refused += 1
            if server.process.returncode < 0 or "chimere: " not in server.said():
                die(f"{when}: status {server.process.returncode}: {server.said()}")
            server.end()
        else:
            load = disturbed(book, when, server, lambda _: time.sleep(1))
            done, errors = done + load.done, errors + load.refused + load.failed
        server = started(book, f"after {when}")
        verify(server, book, f"after {when}")
        if server.end():
            die(f"after {when}: {server.said()}")
    print(f"disk: {n_round} moments, {refused} starts refused, {done} requests, {errors} refused or not answered", flush=True)


def clock(args, book):
    done = n_round = 0
    for i in moments(args, args.rounds):
        n_round = i + 1
        with open("offset", "wb") as f:
            f.write(bytes(8))

        def steps(_):
            for _ in range(10):
                with open("offset", "r+b") as f:
                    f.write(struct.pack("q", int(book.rng.choice((-1, 1)) * 10 ** (book.rng.random() * 8) * 1e9)))
                time.sleep(0.1)

        server = started(book, f"clock {i}", preload="clock", FAULT_FILE="offset")
        done += disturbed(book, f"clock {i}", server, steps).done
    print(f"clock: {n_round} servers, 10 steps each, {done} requests", flush=True)


def limited(args, book, name, what, room):
    """For a while the process may have only `room` more than it has; room(server) tells the whole."""
    done = failed = refused = aborted = n_round = 0
    for i in moments(args, args.rounds):
        n_round = i + 1

        def squeeze(server):
            pid = server.process.pid
            before = resource.prlimit(pid, what)
            for _ in range(5):
                try:
                    resource.prlimit(pid, what, (room(pid), before[1]))
                except OSError:
                    return
                time.sleep(0.15)
                resource.prlimit(pid, what, before)
                time.sleep(0.05)

        server = started(book, f"{name} {i}")
        load = disturbed(book, f"{name} {i}", server, squeeze)
        if not load:
            aborted += 1
            continue
        done, failed, refused = done + load.done, failed + load.failed, refused + load.refused
    print(f"{name}: {n_round} servers, 5 times each, {done} requests, {refused} refused, {failed} not answered, "
          f"{aborted} ended by a library ({', '.join(ABORTS)})", flush=True)


def fds(args, book):
    limited(args, book, "fds", resource.RLIMIT_NOFILE, lambda pid: len(os.listdir(f"/proc/{pid}/fd")) + book.rng.randrange(3))


def memory(args, book):
    def room(pid):
        data = re.search(rb"VmData:\s*(\d+)", read(f"/proc/{pid}/status"))
        if not data:  # it has ended
            raise OSError
        return int(data[1]) * 1024 + book.rng.randrange(1 << 18)

    limited(args, book, "memory", resource.RLIMIT_DATA, room)


FAULTS = {"kill": kill, "disk": disk, "clock": clock, "fds": fds, "memory": memory}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kills", type=int, default=980)
    p.add_argument("--rounds", type=int, default=60)
    p.add_argument("--seconds", type=float, default=float("inf"), help="of one fault: fewer kills or rounds")
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("name", nargs="*")
    args = p.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    work = tempfile.mkdtemp()
    os.chdir(work)
    try:
        for name in args.name or FAULTS:
            if name not in FAULTS:
                die(f"no {name}; there are: {' '.join(FAULTS)}")
            os.mkdir(name)
            os.chdir(name)
            book = Ledger(random.Random(seed))
            first(book)
            FAULTS[name](args, book)
            os.chdir("..")
    finally:
        for p in children:
            if p.poll() is None:
                p.kill()
                p.wait()
        os.chdir("/")
        shutil.rmtree(work, ignore_errors=True)
    print("faults: ok")


main()
