#!/usr/bin/env python3
"""Draws forced tool calls of random schemas in every form and validates them with jsonschema.

usage: test/peers/forced_calls.py [--calls N] [--cuts N] [--seed N] [--tools FILE...] [--build DIR]

FILE: a JSON list of tools of MCP servers ({"name", "inputSchema"}) or of OpenAI tools. With --tools each of
these is called in every form instead of random ones. Needs build/release/test/bench_forced and the package
jsonschema."""
import argparse
import collections
import decimal
import json
import random
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skip: jsonschema, pip install jsonschema")
    sys.exit(0)

N_FORM = 31
FORMATS = ["date", "ipv4", "ipv6", "uuid", "password"]
PATTERNS = ["^[a-z]{2,5}$", "^\\d{3}-\\d{2}$", "x+y", "^(?!ab)[a-d]+$", "^(?=.*1)[0-9a]{2,6}$", "^[^ ]+$"]
NAMES = ["city", "n", "unit", "a b", "größe", "list", "x_1", "type", "$v", "deep.name"]


def string(r):
    s = {"type": "string"}
    k = r.random()
    if k < 0.15:
        s["minLength"] = r.randrange(4)
        s["maxLength"] = s["minLength"] + r.randrange(20)
    elif k < 0.3:
        s["pattern"] = r.choice(PATTERNS)
    elif k < 0.4:
        s["format"] = r.choice(FORMATS)
    elif k < 0.55:
        s["enum"] = r.sample(["a", "b/c", 'q"', "é", "two words", "5", "null", ""], 3)
    elif k < 0.6:
        s = {"const": r.choice(["fixed", "a\nb", "{}"])}
    return s


def number(r):
    s = {"type": r.choice(["integer", "number"])}
    if r.random() < 0.3:
        s["minimum"] = r.randrange(-50, 50)
    if r.random() < 0.3:
        s["maximum"] = s.get("minimum", 0) + r.randrange(1, 500)
    if r.random() < 0.15:
        s["multipleOf"] = r.choice([2, 5, 10])
    return s


def array(r, depth):
    s = {"type": "array", "items": schema(r, depth - 1)}
    k = r.random()
    if k < 0.2:
        s["minItems"] = r.randrange(3)
        s["maxItems"] = s["minItems"] + r.randrange(1, 4)
    elif k < 0.3:
        s["prefixItems"] = [schema(r, 0), schema(r, 0)]
    elif k < 0.4:
        s["items"] = {"enum": ["a", "b", 1, None]}
        s["uniqueItems"] = True
    elif k < 0.45:
        s["contains"] = {"type": "integer"}
        s["items"] = {"type": ["integer", "string"]}
    return s


def obj(r, depth):
    names = r.sample(NAMES, r.randrange(1, 5))
    s = {"type": "object", "properties": {n: schema(r, depth - 1) for n in names}}
    s["required"] = [n for n in names if r.random() < 0.6]
    k = r.random()
    if k < 0.4:
        s["additionalProperties"] = False
    elif k < 0.5:
        s["additionalProperties"] = {"type": "integer"}
    elif k < 0.6:
        s["patternProperties"] = {"^p_": {"type": "boolean"}}
        s["additionalProperties"] = False
    if r.random() < 0.15 and len(names) > 1:
        s["dependentRequired"] = {names[0]: [names[1]]}
    if r.random() < 0.1:
        s["minProperties"] = 1
    return s


def schema(r, depth):
    k = r.random()
    if depth > 0 and k < 0.15:
        return array(r, depth)
    if depth > 0 and k < 0.3:
        return obj(r, depth)
    if k < 0.45:
        return number(r)
    if k < 0.55:
        return r.choice([{"type": "boolean"}, {"type": ["string", "null"]}, {"type": ["integer", "string"]},
                         {"anyOf": [string(r), number(r)]}, {"oneOf": [{"type": "boolean"}, string(r)]},
                         {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
                         {"allOf": [number(r), {"minimum": 1}]}, {"type": "string", "nullable": True},
                         {"$ref": "#/$defs/kind"}, {}])
    return string(r)


def tool(r, i):
    s = obj(r, 2)
    s["$defs"] = {"kind": r.choice([{"enum": ["k", 1, None]}, {"type": "integer", "minimum": 3}, string(r)])}
    if r.random() < 0.1:
        s["allOf"] = [{"properties": {"extra": number(r)}}]
        s.pop("additionalProperties", None)
    return {"type": "function", "function": {"name": f"tool_{i}", "parameters": s}}


def plain(s):
    """nullable as OpenAPI has it, which jsonschema does not know."""
    if isinstance(s, dict):
        s = {k: plain(v) for k, v in s.items()}
        if s.pop("nullable", None) is True and isinstance(s.get("type"), str):
            s["type"] = [s["type"], "null"]
        return s
    return [plain(v) for v in s] if isinstance(s, list) else s


def exact(text):
    """Numbers beyond 2^53 that are whole stay exact; a double of them may no longer be the multiple that was written."""
    d = decimal.Decimal(text)
    return int(d) if d == d.to_integral_value() else float(text)


def validate(name, arguments, tools):
    found = [t["function"]["parameters"] for t in tools if t["function"]["name"] == name]
    if not found:
        return f"{name} was not offered"
    try:
        value = json.loads(arguments, parse_float=exact)
    except ValueError as e:
        return f"not JSON: {e}"
    kind = jsonschema.validators.validator_for(found[0], default=jsonschema.Draft202012Validator)
    checker = jsonschema.FormatChecker(["date", "ipv4", "ipv6", "uuid"])
    bad = next(kind(plain(found[0]), format_checker=checker).iter_errors(value), None)
    return str(bad.message) if bad else None


def load_tools(paths):
    for path in paths:
        data = json.load(open(path))
        for t in data.get("tools", data) if isinstance(data, dict) else data:
            f = t.get("function", t)
            s = f.get("inputSchema") or f.get("input_schema") or f.get("parameters") or {"type": "object"}
            yield path, {"type": "function", "function": {"name": f["name"], "parameters": s}}


def requests(args):
    r = random.Random(args.seed)
    if args.tools:
        for path, t in load_tools(args.tools):
            for form in range(N_FORM):
                yield path, {"form": form, "tools": [t], "seed": form, "stream": form % 2 == 1}
        return
    for i in range(1 << 30):
        tools = [tool(r, k) for k in range(r.randrange(1, 4))]
        yield "", {"form": i % N_FORM, "tools": tools, "seed": r.randrange(1 << 40),
                   "stream": bool(r.randrange(2))}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--calls", type=int, default=2000)
    p.add_argument("--cuts", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", action="store_true", help="texts that the stand-in did not end")
    p.add_argument("--tools", nargs="*")
    p.add_argument("--build", default="build/release")
    args = p.parse_args()
    peer = subprocess.Popen([f"{args.build}/test/bench_forced"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, encoding="utf-8", errors="surrogatepass")
    n = collections.Counter()
    for path, q in requests(args):
        if not args.tools and n["calls"] >= args.calls:
            break
        q["cut"] = not args.tools and n["cut texts"] < args.cuts
        peer.stdin.write(json.dumps(q) + "\n")
        peer.stdin.flush()
        a = json.loads(peer.stdout.readline())
        if a.get("error") == "the text does not end":  # the stand-in model's fault
            n["unfinished"] += 1
            if args.show:
                print("unfinished:", q["form"], repr(a.get("text"))[-200:])
            continue
        if "error" in a:
            n["refused"] += 1
            if args.tools or "no value" not in a["error"]:
                n["refused otherwise"] += 1
                print(path, a["error"][:300], repr(a.get("text", ""))[-300:], "" if args.tools else json.dumps(q["tools"])[:300])
            continue
        n["texts"] += 1
        n["streamed"] += q["stream"]
        n["cut texts"] += q["cut"]
        if a["cut_valid"]:
            n["valid although cut"] += a["cut_valid"]
            print("cut:", a["form"], repr(a["text"])[:300])
        bad = None if a["calls"] and not a["malformed"] else "no call was read"
        for c in a["calls"]:
            n["calls"] += 1
            n[a["form"]] += 1
            bad = bad or validate(c["name"], c["arguments"], q["tools"])
        if bad:
            n["invalid"] += 1
            print("invalid:", a["form"], bad[:200], "\n ", repr(a["text"])[:500], "\n ", json.dumps(q["tools"])[:700])
        if n["invalid"] > 20 or n["refused otherwise"] > 50:
            break
    peer.stdin.close()
    print(", ".join(f"{k} {v}" for k, v in n.items()))
    sys.exit(1 if n["invalid"] or n["valid although cut"] or n["refused otherwise"] else 0)


main()
