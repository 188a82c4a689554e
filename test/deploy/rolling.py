"""A simulated cluster: replicas on loopback, a stand-in for a gateway that hashes conversations consistently with
bounded loads and looks at readiness, clients that keep asking, and a rolling restart meanwhile. Every request must
be answered whole, by the replica that has its conversation while that one is ready.

usage: rolling.py CHIMERE [--replicas N] [--clients N] [--seconds N]"""

import argparse
import asyncio
import bisect
import hashlib
import json
import os
import signal
import sys
import time

LOAD_BOUND = 1.25  # of the mean number of requests of a replica, before the next one on the ring is asked
POINTS = 64        # of a replica on the ring
PROBE_S = 0.2


def point(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


async def exchange(port, method, path, body=b"", session="", deadline=60):
    """One request on a connection of its own: status, headers, body. A body that ends early raises."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 60)
    try:
        head = "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n" % (method, path, len(body))
        writer.write((head + ("x-session-id: %s\r\n" % session if session else "") + "\r\n").encode() + body)
        await writer.drain()
        data = await asyncio.wait_for(reader.read(), deadline)
    finally:
        writer.close()
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    if not lines[0].startswith("HTTP/1.1 "):
        raise ConnectionError("no answer")
    headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:])}
    if headers.get("transfer-encoding") == "chunked":
        text, left = b"", rest
        while True:
            size, _, left = left.partition(b"\r\n")
            n = int(size, 16) if size else -1
            if n <= 0:
                if n < 0 or not left.startswith(b"\r\n"):
                    raise ConnectionError("the stream was cut")
                break
            text, left = text + left[:n], left[n + 2:]
        rest = text
    elif len(rest) != int(headers.get("content-length", len(rest))):
        raise ConnectionError("the body was cut")
    return int(lines[0].split()[1]), headers, rest


class Replica:
    def __init__(self, args, i, *options):
        self.args, self.name, self.ready, self.n_open, self.n_start = args, "replica-%d" % i, False, 0, 0
        self.options = options
        self.port = 0

    async def start(self):
        """As a pod: a new process, which is asked for until it is ready. The address stays, as a name would."""
        self.process = await asyncio.create_subprocess_exec(
            self.args.chimere, "serve", "-q", "-m", "nano", "--port", str(self.port), "--ctx", "1024", "--parallel", "4", "--no-odo",
            "--grace", "20", *self.options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL)
        line = (await asyncio.wait_for(self.process.stdout.readline(), 120)).decode()
        if "http://" not in line:
            raise SystemExit("FAILED: a replica does not start: %s" % (await self.process.stderr.read()).decode())
        self.port = int(line.split("http://127.0.0.1:")[1].split()[0])
        self.n_start += 1
        asyncio.ensure_future(self.process.stdout.read())
        asyncio.ensure_future(self.process.stderr.read())

    async def probe(self):
        """The readiness probe, which alone decides whether requests are sent here."""
        while True:
            try:
                status, _, _ = await exchange(self.port, "GET", "/health/ready", deadline=10)
                self.ready = status == 200
            except (OSError, asyncio.TimeoutError, ConnectionError):
                self.ready = False
            await asyncio.sleep(PROBE_S)

    async def restart(self):
        """What the kubelet does: preStop, SIGTERM, a new container."""
        drain = await asyncio.create_subprocess_exec(
            self.args.chimere, "drain", "--url", "http://127.0.0.1:%d" % self.port, "--wait", "60",
            stderr=asyncio.subprocess.PIPE)
        _, err = await drain.communicate()
        if drain.returncode:
            raise SystemExit("FAILED: drain: %s" % err.decode())
        n_open = self.n_open
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.process.wait(), 60)
        if code:
            raise SystemExit("FAILED: a replica ended with %d" % code)
        await self.start()
        while not self.ready:
            await asyncio.sleep(0.05)
        return n_open


class Gateway:
    """Consistent hashing with bounded loads; what a replica did not begin to answer goes to the next one."""

    def __init__(self, replicas):
        self.ring = sorted((point("%s/%d" % (r.name, k)), i) for i, r in enumerate(replicas) for k in range(POINTS))
        self.keys = [p for p, _ in self.ring]
        self.replicas, self.n_retry = replicas, 0

    def order(self, session):
        """The ready replicas, in the order in which the session's point meets them on the ring."""
        at, seen = bisect.bisect(self.keys, point(session)), []
        for k in range(len(self.ring)):
            i = self.ring[(at + k) % len(self.ring)][1]
            if i not in seen and self.replicas[i].ready:
                seen.append(i)
        bound = LOAD_BOUND * (sum(r.n_open for r in self.replicas) + 1) / max(1, len(seen))
        fits = [i for i in seen if self.replicas[i].n_open + 1 <= max(1, -(-bound // 1))]
        return fits + [i for i in seen if i not in fits]

    async def ask(self, session, body):
        for _ in range(2400):
            for i in self.order(session):
                r = self.replicas[i]
                r.n_open += 1
                try:
                    status, headers, rest = await exchange(r.port, "POST", "/v1/chat/completions", body, session)
                except (OSError, asyncio.TimeoutError) as e:
                    if isinstance(e, ConnectionRefusedError):
                        self.n_retry += 1  # nothing was begun: the next one may answer
                        continue
                    return 0, str(e).encode() or type(e).__name__.encode(), i
                finally:
                    r.n_open -= 1
                if status == 503 and "retry-after" in headers:
                    self.n_retry += 1
                    continue
                return status, rest, i
            await asyncio.sleep(0.05)
        return 0, b"no replica was ready", -1


class Client:
    def __init__(self, gateway, k):
        self.gateway, self.session, self.streams = gateway, "conversation-%d" % k, k % 2 == 1
        self.homes, self.n, self.lost = [], 0, []

    async def run(self, go_on):
        messages = []
        while go_on():
            n_tok = 8 + 8 * (self.n % 3)
            messages = messages[-4:] + [{"role": "user", "content": "What is %d plus %d?" % (self.n, len(self.session))}]
            body = {"messages": messages, "max_tokens": n_tok, "ignore_eos": True, "stream": self.streams}
            status, rest, home = await self.gateway.ask(self.session, json.dumps(body).encode())
            text = self.text_of(status, rest, n_tok)
            self.n += 1
            self.homes.append((time.monotonic(), home))
            if text is None:
                self.lost.append((status, rest[-300:]))
                continue
            messages.append({"role": "assistant", "content": text})

    def text_of(self, status, rest, n_tok):
        """The answer's text; None: it is not whole."""
        if status != 200:
            return None
        if not self.streams:
            o = json.loads(rest)
            return o["choices"][0]["message"]["content"] if o["usage"]["completion_tokens"] == n_tok else None
        frames = [f[6:] for f in rest.decode().split("\n\n") if f.startswith("data: ")]
        if not frames or frames[-1] != "[DONE]":
            return None
        parts = [json.loads(f) for f in frames[:-1]]
        if not any(p["choices"] and p["choices"][0].get("finish_reason") == "length" for p in parts):
            return None
        return "".join((p["choices"][0]["delta"].get("content") or "") for p in parts if p["choices"])


async def main():
    p = argparse.ArgumentParser()
    p.add_argument("chimere")
    p.add_argument("--replicas", type=int, default=3)
    p.add_argument("--clients", type=int, default=9)
    p.add_argument("--quiet-seconds", type=float, default=3)
    args = p.parse_args()
    replicas = [Replica(args, i) for i in range(args.replicas)]
    for r in replicas:
        await r.start()
    probes = [asyncio.ensure_future(r.probe()) for r in replicas]
    while not all(r.ready for r in replicas):
        await asyncio.sleep(0.05)
    gateway = Gateway(replicas)
    clients = [Client(gateway, k) for k in range(args.clients)]
    going = True
    asks = [asyncio.ensure_future(c.run(lambda: going)) for c in clients]
    await asyncio.sleep(args.quiet_seconds)
    quiet_end = time.monotonic()
    for r in replicas:  # one after another, under load
        await r.restart()
    back = time.monotonic()
    await asyncio.sleep(args.quiet_seconds)
    going = False
    await asyncio.gather(*asks)
    for t in probes:
        t.cancel()
    for r in replicas:
        r.process.send_signal(signal.SIGTERM)
        await r.process.wait()
    return report(replicas, gateway, clients, quiet_end, back)


def report(replicas, gateway, clients, quiet_end, back):
    n, lost = sum(c.n for c in clients), [x for c in clients for x in c.lost]
    moved = at_home = n_quiet = 0
    for c in clients:
        before = [h for t, h in c.homes if t < quiet_end]
        after = [h for t, h in c.homes if t > back]
        home = max(set(before), key=before.count) if before else -1
        n_quiet += len(before) + len(after)
        at_home += before.count(home) + after.count(home)
        moved += len({h for _, h in c.homes}) > 1
    print("rolling: %d requests, %d lost, %d retried on another replica, %d conversations moved, %.0f %% at home in quiet times"
          % (n, len(lost), gateway.n_retry, moved, 100 * at_home / max(1, n_quiet)))
    problems = []
    if lost:
        problems.append("lost: %s" % lost[:3])
    if n < 3 * len(clients):
        problems.append("only %d requests: too few to show anything" % n)
    if any(r.n_start != 2 for r in replicas):
        problems.append("a replica was not restarted")
    if at_home < 0.7 * n_quiet:
        problems.append("conversations do not stay with their replica")
    if not moved:
        problems.append("no conversation moved, though every replica was away")
    for x in problems:
        print("FAILED:", x, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(asyncio.run(main()))
