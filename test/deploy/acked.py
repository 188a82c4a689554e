"""Replicas that share one store: clients ask for answers that are stored, while every replica is restarted in turn and
one is killed. A request whose answer came whole is acknowledged; each of those must be in the store once, with the text
that the client got. A request that broke is not acknowledged, and is asked again.

usage: acked.py CHIMERE STORE LOG [--requests N]; LOG: what PostgreSQL logs, with the duration of every statement"""

import argparse
import asyncio
import json
import re
import subprocess
import sys

from rolling import Replica, exchange

KILLED_AT, RESTARTED_AT = 0.5, 0.2  # of all requests
P99_MS = 100


class Client:
    def __init__(self, replicas, k):
        self.replicas, self.k, self.acked, self.n_broken, self.wrong = replicas, k, {}, 0, []

    async def once(self, number, at):
        """The id and the text, or None: not acknowledged."""
        ready = [r for r in self.replicas if r.ready]
        if not ready:
            await asyncio.sleep(0.05)
            return None
        body = {"input": "What is %d plus %d?" % (number, self.k), "max_output_tokens": 2, "temperature": 0}
        try:
            status, _, rest = await exchange(ready[at % len(ready)].port, "POST", "/v1/responses", json.dumps(body).encode())
        except (OSError, EOFError, asyncio.TimeoutError):
            self.n_broken += 1
            return None
        if status == 503:  # draining
            return None
        if status != 200:
            self.wrong.append((status, rest[-200:]))
            return None
        o = json.loads(rest)
        return o["id"], o

    async def run(self, numbers):
        for number in numbers:
            got = None
            for at in range(2000):
                got = await self.once(number, number + at)
                if got:
                    break
            if not got:
                self.wrong.append((number, "never answered"))
            elif got[0] in self.acked:
                self.wrong.append((number, "an id given twice"))
            else:
                self.acked[got[0]] = got[1]


def stored(args):
    """id: texts of the answers in the store."""
    sql = "COPY (SELECT name, encode(convert_to(response, 'UTF8'), 'base64') FROM answers) TO STDOUT WITH (FORMAT csv)"
    out = subprocess.run(["psql", "-X", "-q", args.store, "-c", sql], check=True, capture_output=True, text=True).stdout
    import base64
    import csv
    import io
    rows = {}
    for name, text in csv.reader(io.StringIO(out)):
        rows.setdefault(name, []).append(json.loads(base64.b64decode(text)))
    return rows


def calls_ms(path):
    """Durations of the store's calls: of a transaction with all that it waited for, or of a statement outside of one."""
    open_calls, done = {}, []
    for line in open(path, errors="replace"):
        m = re.match(r"(\d+) LOG:  duration: ([\d.]+) ms(.*)", line)
        if not m:
            continue
        pid, ms, what = m[1], float(m[2]), m[3]
        if "BEGIN" in what:
            open_calls[pid] = ms
        elif pid in open_calls:
            open_calls[pid] += ms
            if "COMMIT" in what or "ROLLBACK" in what:
                done.append(open_calls.pop(pid))
        else:
            done.append(ms)
    return sorted(done)


async def trouble(replicas, clients, n):
    """Restarts each replica, kills one, and restarts each again."""
    async def reached(part):
        while sum(len(c.acked) for c in clients) < part * n:
            await asyncio.sleep(0.05)
    await reached(RESTARTED_AT)
    for r in replicas:
        await r.restart()
    await reached(KILLED_AT)
    killed = replicas[0]
    killed.process.kill()
    await killed.process.wait()
    await killed.start()
    for r in replicas[1:]:
        while not killed.ready:
            await asyncio.sleep(0.05)
        await r.restart()


async def main():
    p = argparse.ArgumentParser()
    p.add_argument("chimere")
    p.add_argument("store")
    p.add_argument("log")
    p.add_argument("--requests", type=int, default=10000)
    p.add_argument("--clients", type=int, default=8)
    args = p.parse_args()
    replicas = [Replica(args, i, "--store", args.store) for i in range(3)]
    for r in replicas:
        await r.start()
    probes = [asyncio.ensure_future(r.probe()) for r in replicas]
    clients = [Client(replicas, k) for k in range(args.clients)]
    restarts = asyncio.ensure_future(trouble(replicas, clients, args.requests))
    await asyncio.gather(*(c.run(range(c.k, args.requests, args.clients)) for c in clients))
    await asyncio.wait_for(restarts, 120)
    for t in probes:
        t.cancel()
    for r in replicas:
        r.process.terminate()
        await r.process.wait()
    return report(args, replicas, clients)


def report(args, replicas, clients):
    acked = {k: v for c in clients for k, v in c.acked.items()}
    n_broken, wrong = sum(c.n_broken for c in clients), [x for c in clients for x in c.wrong]
    rows, calls = stored(args), calls_ms(args.log)
    lost = [k for k in acked if k not in rows]
    doubled = [k for k in rows if len(rows[k]) > 1]
    differ = [k for k in acked if k in rows and rows[k][0]["output"] != acked[k]["output"]]
    extra = len(rows) - len(acked)
    p99 = calls[int(len(calls) * 0.99)] if calls else -1
    print("acked: %d requests, %d broken and asked again, %d starts; in the store: %d lost, %d doubled, %d different, %d of "
          "broken requests; %d calls of the store, p99 %.1f ms" % (len(acked), n_broken, sum(r.n_start for r in replicas),
                                                                   len(lost), len(doubled), len(differ), extra, len(calls), p99))
    problems = [x for x in (
        lost and "lost: %s" % lost[:3], doubled and "doubled: %s" % doubled[:3], differ and "different: %s" % differ[:3],
        wrong and "wrong: %s" % wrong[:3], len(acked) != args.requests and "not every request was acknowledged",
        extra > n_broken and "more answers than requests", not 0 <= p99 <= P99_MS and "p99 of the store: %.1f ms" % p99) if x]
    for x in problems:
        print("FAILED:", x, file=sys.stderr)
    return 1 if problems else 0


sys.exit(asyncio.run(main()))
