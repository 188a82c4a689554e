"""Scoring of one answer, the reference for the C harness. eval/README.md states the same rules in words."""

import json
import re


def visible(text):
    """The answer without its thinking block."""
    return text.split("</think>")[-1]


def normal(text):
    """Blanks collapsed, ASCII lower case, outer quotes and closing full stops removed."""
    text = " ".join(text.split())
    text = "".join(c.lower() if c.isascii() else c for c in text)
    return text.strip("\"'").rstrip(".").strip()


def last_number(text):
    found = re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d\d\d)", "", text))
    return float(found[-1]) if found else None


def tool_calls(text):
    """(calls, well formed). A call: (name, {key: text})."""
    calls, rest = [], text
    if "<tool_call>" not in text:
        return [], not any(s in text for s in ("</tool_call>", "<function=", "<parameter="))
    head, rest = text.split("<tool_call>", 1)
    rest = "<tool_call>" + rest
    block = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n((?:<parameter=[^>\n]+>\n.*?\n</parameter>\n)*)</function>\n</tool_call>\s*", re.S)
    while rest.strip():
        m = block.match(rest)
        if not m:
            return calls, False
        args = dict(re.findall(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", m.group(2), re.S))
        calls.append((m.group(1), args))
        rest = rest[m.end():]
    return calls, True


def calls_valid(text, tools):
    """Well formed, known names, required keys there, no unknown key, integers and numbers parse."""
    calls, ok = tool_calls(text)
    if not ok:
        return False
    known = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    for name, args in calls:
        if name not in known:
            return False
        props = known[name]["properties"]
        if any(k not in args for k in known[name].get("required", [])) or any(k not in props for k in args):
            return False
        for k, v in args.items():
            kind = props[k].get("type")
            if kind == "integer" and not re.fullmatch(r"-?\d+", v) or kind == "number" and not re.fullmatch(r"-?\d+(\.\d+)?", v):
                return False
    return True


def _value(expression):
    expression = expression.replace("x", "*").replace("÷", "/")
    if len(expression) > 80 or not re.fullmatch(r"[0-9+\-*/(). ]+", expression):
        return None
    try:
        return float(eval(expression))
    except Exception:
        return None


def _argument(want, got):
    if isinstance(want, dict) and "value" in want:
        v = _value(got)
        return v is not None and abs(v - want["value"]) <= 1e-6 * max(1, abs(want["value"]))
    if isinstance(want, dict):
        return normal(want["has"]) in normal(got)
    return normal(str(want)) == normal(got)


def calls_right(text, answer):
    """The same calls in any order."""
    calls, ok = tool_calls(text)
    if not ok or len(calls) != len(answer):
        return False
    left = list(answer)
    for name, args in calls:
        for w in left:
            if w["name"] == name and set(w["arguments"]) == set(args) and all(_argument(w["arguments"][k], args[k]) for k in args):
                left.remove(w)
                break
        else:
            return False
    return True


def schema_valid(value, schema):
    kind = schema.get("type")
    if kind == "object":
        props = schema.get("properties", {})
        return (isinstance(value, dict) and all(k in value for k in schema.get("required", []))
                and all(k in props and schema_valid(v, props[k]) for k, v in value.items()))
    if kind == "array":
        return isinstance(value, list) and all(schema_valid(v, schema.get("items", {})) for v in value)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, str) and ("enum" not in schema or value in schema["enum"])


def _json(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def score(item, text):
    """{"right": bool} plus, by kind, "valid" (tool calls, JSON) or "said" (verdict given)."""
    check, text = item["check"], visible(text).strip()
    kind, want = check["kind"], check.get("answer")
    if kind == "exact":
        return {"right": normal(text) in [normal(w) for w in want]}
    if kind == "number":
        got = last_number(text)
        return {"right": got is not None and abs(got - want) <= 1e-6 * max(1, abs(want))}
    if kind == "choice":
        words = re.findall(r"[a-z_]+", text.lower())
        return {"right": bool(words) and words[0] == want, "valid": bool(words) and words[0] in check["choices"]}
    if kind == "contains":
        return {"right": all(normal(w) in normal(text) for w in want)}
    if kind == "citation":
        cited = set(re.findall(r"\[(\d+)\]", text))
        return {"right": any(normal(w) in normal(text) for w in want) and cited == {str(check["source"])},
                "valid": any(normal(w) in normal(text) for w in want)}
    if kind == "refusal":
        return {"right": any(w in normal(text) for w in want)}
    if kind == "toolcall":
        valid = calls_valid(text, item["tools"])
        return {"right": valid and calls_right(text, want), "valid": valid}
    if kind == "json_schema":
        v = _json(text)
        valid = v is not None and schema_valid(v, check["schema"])
        return {"right": valid and v == want, "valid": valid}
    if kind == "array":
        v = _json(text)
        valid = isinstance(v, list) and all(isinstance(x, str) for x in v)
        return {"right": valid and len(v) == check["n"] and len(set(v)) == len(v) and all(check["has"] in normal(x) for x in v), "valid": valid}
    if kind == "verdict":
        boxes = re.findall(r"\\boxed\{(correct|incorrect)\}", text)
        said = "no" if "incorrect" in boxes else "yes" if boxes else None
        return {"right": said == want, "valid": boxes == check["steps"], "want": want}
    if kind == "copy":
        return {"right": text == want.strip()}
    raise ValueError(f"unknown check kind {kind}")
