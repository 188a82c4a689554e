"""The chat form of chimere-nano: special tokens, template, and a plain renderer.

The form is Qwen3.5's (im_start/im_end turns, think block, XML tool calls); the template text is
our own. `render` is the fast path used for training data and must give, byte for byte, what the
Jinja template gives (test_nano.py checks it).
"""

import json

ENDOFTEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Order is the order of the last token ids. The first three are control tokens; the rest are
# ordinary added tokens, as in Qwen3.5: a reader may print them.
CONTROL_TOKENS = [ENDOFTEXT, IM_START, IM_END]
MARK_TOKENS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
               "<think>", "</think>"]

TOOLS_HEAD = "# Tools\n\nYou can call these functions:\n\n<tools>"
TOOLS_TAIL = (
    "\n</tools>\n\nTo call a function, answer with this form only:\n\n"
    "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>"
    "\n\nRepeat the block to call several. If no function helps, answer in plain words."
)

TEMPLATE = r"""
{%- macro text_of(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is none or content is undefined -%}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part.text is defined -%}
                {{- part.text -}}
            {%- else -%}
                {{- raise_exception('This model reads text only.') -}}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- raise_exception('Message content must be text.') -}}
    {%- endif -%}
{%- endmacro -%}
{%- if not messages -%}
    {{- raise_exception('There are no messages.') -}}
{%- endif -%}
{%- set first = messages[0] -%}
{%- if tools -%}
    {{- '<|im_start|>system\n' + TOOLS_HEAD -}}
    {%- for tool in tools -%}
        {{- '\n' -}}{{- tool | tojson -}}
    {%- endfor -%}
    {{- TOOLS_TAIL -}}
    {%- if first.role == 'system' and text_of(first.content) | trim -%}
        {{- '\n\n' + text_of(first.content) | trim -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
{%- elif first.role == 'system' -%}
    {{- '<|im_start|>system\n' + text_of(first.content) | trim + '<|im_end|>\n' -}}
{%- endif -%}
{%- set last = namespace(user=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {%- set last.user = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set content = text_of(message.content) | trim -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}
            {{- raise_exception('A system message may only come first.') -}}
        {%- endif -%}
    {%- elif message.role == 'user' -%}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- set thought = '' -%}
        {%- if message.reasoning_content is string -%}
            {%- set thought = message.reasoning_content | trim -%}
        {%- elif '</think>' in content -%}
            {%- set thought = content.split('</think>')[0].split('<think>')[-1] | trim -%}
            {%- set content = content.split('</think>')[-1] | trim -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if loop.index0 > last.user -%}
            {{- '<think>\n' + thought + '\n</think>\n\n' -}}
        {%- endif -%}
        {{- content -}}
        {%- if message.tool_calls -%}
            {%- for call in message.tool_calls -%}
                {%- set fn = call.function if call.function is defined else call -%}
                {%- if loop.first and content -%}
                    {{- '\n\n' -}}
                {%- elif not loop.first -%}
                    {{- '\n' -}}
                {%- endif -%}
                {{- '<tool_call>\n<function=' + fn.name + '>\n' -}}
                {%- if fn.arguments is mapping -%}
                    {%- for key, value in fn.arguments | items -%}
                        {%- if value is string -%}
                            {%- set shown = value -%}
                        {%- elif value is boolean or value is mapping or value is iterable -%}
                            {%- set shown = value | tojson -%}
                        {%- else -%}
                            {%- set shown = value | string -%}
                        {%- endif -%}
                        {{- '<parameter=' + key + '>\n' + shown + '\n</parameter>\n' -}}
                    {%- endfor -%}
                {%- endif -%}
                {{- '</function>\n</tool_call>' -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
            {{- '<|im_start|>user' -}}
        {%- endif -%}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' -}}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}
            {{- '<|im_end|>\n' -}}
        {%- endif -%}
    {%- else -%}
        {{- raise_exception('Unknown role: ' + message.role | string) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n<think>\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}
        {{- '\n</think>\n\n' -}}
    {%- endif -%}
{%- endif -%}
"""


def chat_template():
    def quoted(s):
        return "'" + s.replace("\n", "\\n") + "'"
    body = TEMPLATE.replace("TOOLS_HEAD", quoted(TOOLS_HEAD)).replace("TOOLS_TAIL", quoted(TOOLS_TAIL))
    return body.strip("\n")


def tool_json(tool):
    return json.dumps(tool, ensure_ascii=False)


def call_text(calls):
    """The assistant text of tool calls: [(name, {key: value})...]."""
    out = []
    for name, args in calls:
        rows = "".join(f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}"
                       f"\n</parameter>\n" for k, v in args.items())
        out.append(f"<tool_call>\n<function={name}>\n{rows}</function>\n</tool_call>")
    return "\n".join(out)


def render(messages, tools=None, think=False):
    """Prompt text up to and including the generation prompt."""
    out = []
    system = messages[0]["content"].strip() if messages[0]["role"] == "system" else ""
    if tools:
        out.append(f"{IM_START}system\n{TOOLS_HEAD}" + "".join("\n" + tool_json(t) for t in tools)
                   + TOOLS_TAIL + ("\n\n" + system if system else "") + f"{IM_END}\n")
    elif messages[0]["role"] == "system":
        out.append(f"{IM_START}system\n{system}{IM_END}\n")
    last_user = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    for i, m in enumerate(messages):
        role, content = m["role"], (m.get("content") or "").strip()
        if role == "user":
            out.append(f"{IM_START}user\n{content}{IM_END}\n")
        elif role == "assistant":
            head = ""
            if i > last_user:
                head = f"<think>\n{(m.get('reasoning_content') or '').strip()}\n</think>\n\n"
            calls = [(c["name"], c["arguments"]) for c in m.get("tool_calls") or []]
            tail = ("\n\n" if content and calls else "") + (call_text(calls) if calls else "")
            out.append(f"{IM_START}assistant\n{head}{content}{tail}{IM_END}\n")
        elif role == "tool":
            first = i == 0 or messages[i - 1]["role"] != "tool"
            final = i == len(messages) - 1 or messages[i + 1]["role"] != "tool"
            out.append((f"{IM_START}user" if first else "") + f"\n<tool_response>\n{content}\n</tool_response>"
                       + (f"{IM_END}\n" if final else ""))
    out.append(f"{IM_START}assistant\n<think>\n" + ("" if think else "\n</think>\n\n"))
    return "".join(out)


def completion(answer, thought, think):
    """What the model must write after `render`: with thinking, the thought comes first."""
    if not think:
        return answer + IM_END
    return (thought.strip() + "\n</think>\n\n" if thought else "\n</think>\n\n") + answer + IM_END
