"""walk_openai.py: what openai-python can do with a server like ours; each step asserts what a caller would rely on."""
import asyncio
import base64
import json
import struct

MODEL = "chimere-nano"
QUESTION = [{"role": "user", "content": "What is 12 plus 30?"}]
EVALUATE = [{"role": "user", "content": "Please evaluate 6157 - 7343."}]
CALCULATOR = {"name": "calculator", "description": "Calculator.", "parameters": {
    "type": "object", "properties": {"expression": {"type": "string", "description": "The expression"}},
    "required": ["expression"], "additionalProperties": False}}
TOOLS = [{"type": "function", "function": CALCULATOR}]
FLAT = [{"type": "function", "strict": False, **CALCULATOR}]


def expect(kind, call, status=None):
    try:
        call()
    except kind as e:
        if status:
            assert e.status_code == status, e
        return e
    raise AssertionError(f"expected {kind.__name__}")


def steps(url):
    import openai
    import pydantic
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    chat, text, answers = client.chat.completions, client.completions, client.responses
    base = {"model": MODEL, "temperature": 0, "max_tokens": 40}
    out = []

    def step(f):
        out.append(f)
        return f

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        adult: bool

    # ---- chat ----
    @step
    def chat_create():
        r = chat.create(messages=QUESTION, **base)
        assert r.object == "chat.completion" and r.choices[0].message.role == "assistant"
        assert "42" in r.choices[0].message.content and r.choices[0].finish_reason == "stop"
        assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens

    @step
    def chat_stream():
        parts = list(chat.create(messages=QUESTION, stream=True, **base))
        whole = chat.create(messages=QUESTION, **base).choices[0].message.content
        assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == whole
        assert len({p.id for p in parts}) == 1

    @step
    def chat_stream_usage():
        last = list(chat.create(messages=QUESTION, stream=True, stream_options={"include_usage": True}, **base))[-1]
        assert last.choices == [] and last.usage.completion_tokens > 0

    @step
    def chat_stream_helper():
        with chat.stream(messages=QUESTION, **base) as s:
            kinds = {e.type for e in s}
            final = s.get_final_completion()
        assert {"chunk", "content.delta", "content.done"} <= kinds and "42" in final.choices[0].message.content

    @step
    def chat_stream_helper_tools():
        with chat.stream(messages=EVALUATE, tools=TOOLS, **{**base, "max_tokens": 80}) as s:
            kinds = {e.type for e in s}
            call = s.get_final_completion().choices[0].message.tool_calls[0]
        assert "tool_calls.function.arguments.done" in kinds and "expression" in json.loads(call.function.arguments)

    @step
    def chat_parse():
        p = chat.parse(messages=[{"role": "user", "content": "A person, as JSON."}], response_format=Person, **{**base, "max_tokens": 60})
        assert isinstance(p.choices[0].message.parsed, Person)

    @step
    def chat_stream_parse():
        with chat.stream(messages=[{"role": "user", "content": "A person, as JSON."}], response_format=Person, **{**base, "max_tokens": 60}) as s:
            for _ in s:
                pass
            assert isinstance(s.get_final_completion().choices[0].message.parsed, Person)

    @step
    def chat_parse_length():
        expect(openai.LengthFinishReasonError, lambda: chat.parse(messages=QUESTION, response_format=Person, **{**base, "max_tokens": 3}))

    @step
    def chat_pydantic_tool():
        class calculator(pydantic.BaseModel):
            expression: str
        p = chat.parse(messages=EVALUATE, tools=[openai.pydantic_function_tool(calculator)], tool_choice="required", **{**base, "max_tokens": 80})
        assert isinstance(p.choices[0].message.tool_calls[0].function.parsed_arguments, calculator)

    @step
    def chat_tool_round():
        r = chat.create(messages=EVALUATE, tools=TOOLS, **{**base, "max_tokens": 80})
        assert r.choices[0].finish_reason == "tool_calls"
        m = r.choices[0].message
        history = [*EVALUATE, m, {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "6157 - 7343 = -1186"}]
        assert "1186" in chat.create(messages=history, tools=TOOLS, **base).choices[0].message.content

    @step
    def chat_tool_named():
        r = chat.create(messages=QUESTION, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "calculator"}}, **{**base, "max_tokens": 80})
        assert r.choices[0].message.tool_calls[0].function.name == "calculator"

    @step
    def chat_tool_none():
        assert not chat.create(messages=EVALUATE, tools=TOOLS, tool_choice="none", **base).choices[0].message.tool_calls

    @step
    def chat_tool_allowed():
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "calculator"}}]}}
        r = chat.create(messages=QUESTION, tools=TOOLS, tool_choice=choice, **{**base, "max_tokens": 80})
        assert r.choices[0].message.tool_calls

    @step
    def chat_tool_custom():
        r = chat.create(messages=QUESTION, tools=[{"type": "custom", "custom": {"name": "shout"}}], tool_choice="required", **{**base, "max_tokens": 80})
        call = r.choices[0].message.tool_calls
        assert r.choices[0].finish_reason == "length" or call[0].type == "custom" and isinstance(call[0].custom.input, str)

    @step
    def chat_functions():
        r = chat.create(messages=EVALUATE, functions=[CALCULATOR], function_call={"name": "calculator"}, **{**base, "max_tokens": 80})
        assert json.loads(r.choices[0].message.function_call.arguments)["expression"]

    @step
    def chat_json_object():
        r = chat.create(messages=QUESTION, response_format={"type": "json_object"}, **{**base, "max_tokens": 120})
        assert r.choices[0].finish_reason == "length" or isinstance(json.loads(r.choices[0].message.content), dict)

    @step
    def chat_json_schema():
        schema = {"type": "object", "properties": {"n": {"type": "integer", "enum": [42]}}, "required": ["n"], "additionalProperties": False}
        r = chat.create(messages=QUESTION, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}, **base)
        assert json.loads(r.choices[0].message.content) == {"n": 42}

    @step
    def chat_choices():
        r = chat.create(messages=QUESTION, n=3, seed=1, **{**base, "temperature": 1})
        assert [c.index for c in r.choices] == [0, 1, 2]

    @step
    def chat_logprobs():
        r = chat.create(messages=QUESTION, logprobs=True, top_logprobs=3, **base)
        first = r.choices[0].logprobs.content[0]
        assert first.logprob <= 0 and len(first.top_logprobs) == 3 and first.top_logprobs[0].token == first.token
        assert "".join(t.token for t in r.choices[0].logprobs.content) == r.choices[0].message.content

    @step
    def chat_stop():
        r = chat.create(messages=QUESTION, stop=["42"], **base)
        assert "42" not in r.choices[0].message.content and r.choices[0].finish_reason == "stop"

    @step
    def chat_length():
        assert chat.create(messages=QUESTION, **{**base, "max_tokens": 2}).choices[0].finish_reason == "length"

    @step
    def chat_seed():
        a, b = (chat.create(messages=QUESTION, seed=7, **{**base, "temperature": 1.5}).choices[0].message.content for _ in range(2))
        assert a == b

    @step
    def chat_bias():
        ids = client.post("/tokenize", body={"content": "42"}, cast_to=object)["tokens"]
        r = chat.create(messages=QUESTION, logit_bias={str(i): -100 for i in ids}, **base)
        assert "42" not in r.choices[0].message.content

    @step
    def chat_sampling():
        chat.create(messages=QUESTION, **{**base, "temperature": 1}, top_p=0.9, frequency_penalty=0.5, presence_penalty=0.5)

    @step
    def chat_roles():
        m = [{"role": "developer", "content": "Be brief."}, {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
             {"role": "user", "content": [{"type": "text", "text": "What is 12 "}, {"type": "text", "text": "plus 30?"}], "name": "ann"}]
        assert chat.create(messages=m, **base).choices[0].message.content

    @step
    def chat_hints():
        chat.create(messages=QUESTION, user="ann", metadata={"a": "b"}, store=False, service_tier="auto", prompt_cache_key="k",
                    safety_identifier="x", verbosity="low", reasoning_effort="none", max_completion_tokens=5, model=MODEL, temperature=0)

    @step
    def chat_raw():
        raw = chat.with_raw_response.create(messages=QUESTION, **base)
        assert raw.headers["x-request-id"] and raw.parse().choices

    @step
    def chat_streaming_response():
        with chat.with_streaming_response.create(messages=QUESTION, **base) as r:
            assert r.status_code == 200 and "choices" in r.json()

    @step
    def chat_closed_early():
        s = chat.create(messages=QUESTION, stream=True, **{**base, "max_tokens": 2000})
        next(iter(s))
        s.close()
        assert chat.create(messages=QUESTION, **base).choices

    # ---- completions ----
    @step
    def text_create():
        r = text.create(model=MODEL, prompt="One, two,", max_tokens=5, temperature=0)
        assert r.object == "text_completion" and r.choices[0].text

    @step
    def text_stream():
        whole = text.create(model=MODEL, prompt="One, two,", max_tokens=8, temperature=0).choices[0].text
        parts = text.create(model=MODEL, prompt="One, two,", max_tokens=8, temperature=0, stream=True)
        assert "".join(p.choices[0].text for p in parts if p.choices) == whole

    @step
    def text_many():
        r = text.create(model=MODEL, prompt=["One", "Two"], n=2, max_tokens=3)
        assert [c.index for c in r.choices] == [0, 1, 2, 3]

    @step
    def text_echo_logprobs():
        r = text.create(model=MODEL, prompt="One, two, three", max_tokens=1, echo=True, logprobs=2, temperature=0)
        p = r.choices[0].logprobs
        assert p.token_logprobs[0] is None and all(x <= 0 for x in p.token_logprobs[1:])
        assert "".join(p.tokens) == r.choices[0].text and len(p.top_logprobs[1]) == 2

    @step
    def text_ids():
        ids = client.post("/tokenize", body={"content": "One, two,"}, cast_to=object)["tokens"]
        a = text.create(model=MODEL, prompt=ids, max_tokens=5, temperature=0).choices[0].text
        assert a == text.create(model=MODEL, prompt="One, two,", max_tokens=5, temperature=0).choices[0].text

    # ---- responses ----
    more = {"model": MODEL, "temperature": 0, "max_output_tokens": 40}

    @step
    def responses_create():
        r = answers.create(input="What is 12 plus 30?", **more)
        assert "42" in r.output_text and r.status == "completed" and r.usage.total_tokens > 0

    @step
    def responses_stream():
        events = list(answers.create(input="What is 12 plus 30?", stream=True, **more))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert events[0].type == "response.created" and events[-1].type == "response.completed"
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == events[-1].response.output_text

    @step
    def responses_stream_helper():
        with answers.stream(input="What is 12 plus 30?", **more) as s:
            for _ in s:
                pass
            assert "42" in s.get_final_response().output_text

    @step
    def responses_parse():
        r = answers.parse(input="A person, as JSON.", text_format=Person, **{**more, "max_output_tokens": 60})
        assert isinstance(r.output_parsed, Person)

    @step
    def responses_tools():
        r = answers.create(input=EVALUATE, tools=FLAT, **{**more, "max_output_tokens": 80})
        call = next(i for i in r.output if i.type == "function_call")
        items = [*EVALUATE, *r.output, {"type": "function_call_output", "call_id": call.call_id, "output": "6157 - 7343 = -1186"}]
        assert "1186" in answers.create(input=items, tools=FLAT, **more).output_text

    @step
    def responses_previous():
        first = answers.create(input="What is 12 plus 30?", **more)
        r = answers.create(input="And plus 1?", previous_response_id=first.id, **more)
        assert r.previous_response_id == first.id and r.usage.input_tokens > first.usage.input_tokens

    @step
    def responses_reference():
        first = answers.create(input="What is 12 plus 30?", **more)
        assert answers.create(input=[{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "Sure?"}], **more).output_text

    @step
    def responses_retrieve():
        r = answers.create(input="Hi", **more)
        assert answers.retrieve(r.id).output == r.output

    @step
    def responses_input_items():
        r = answers.create(input="Hi there", **more)
        items = list(answers.input_items.list(r.id))
        assert len(items) == 1 and items[0].content

    @step
    def responses_delete():
        r = answers.create(input="Hi", **more)
        answers.delete(r.id)
        expect(openai.NotFoundError, lambda: answers.retrieve(r.id))

    @step
    def responses_tokens():
        n = answers.input_tokens.count(model=MODEL, input="Hi there").input_tokens
        assert n == answers.create(input="Hi there", **more).usage.input_tokens

    @step
    def responses_incomplete():
        r = answers.create(input="What is 12 plus 30?", **{**more, "max_output_tokens": 1})
        assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"

    @step
    def responses_instructions():
        r = answers.create(input="Hi", instructions="Be brief.", metadata={"a": "b"}, user="ann", reasoning={"effort": "none"}, **more)
        assert r.instructions == "Be brief." and r.metadata == {"a": "b"}

    @step
    def responses_custom():
        r = answers.create(input="Shout.", tools=[{"type": "custom", "name": "shout"}], tool_choice="required", **{**more, "max_output_tokens": 80})
        assert r.status == "incomplete" or any(i.type == "custom_tool_call" for i in r.output)

    # ---- the rest ----
    @step
    def models_list():
        assert MODEL in [m.id for m in client.models.list()]

    @step
    def models_retrieve():
        assert client.models.retrieve(MODEL).id == MODEL
        expect(openai.NotFoundError, lambda: client.models.retrieve("none"))

    @step
    def embeddings():  # the package asks for base64 and decodes it
        a = client.embeddings.create(model=MODEL, input=["One", "Two"])
        b = client.embeddings.create(model=MODEL, input="One", encoding_format="float")
        assert len(a.data) == 2 and max(abs(x - y) for x, y in zip(a.data[0].embedding, b.data[0].embedding)) < 1e-6

    @step
    def embeddings_short():
        r = client.embeddings.create(model=MODEL, input=[[1, 2, 3]], dimensions=8, encoding_format="base64")
        v = struct.unpack("<8f", base64.b64decode(r.data[0].embedding))
        assert abs(sum(x * x for x in v) - 1) < 1e-3

    @step
    def errors():
        expect(openai.BadRequestError, lambda: chat.create(messages=[], **base), 400)
        expect(openai.NotFoundError, lambda: chat.create(model="none", messages=QUESTION), 404)
        e = expect(openai.BadRequestError, lambda: chat.create(messages=[{"role": "user", "content": "a " * 20000}], **base), 400)
        assert e.code == "context_length_exceeded"
        e = expect(openai.BadRequestError, lambda: chat.create(messages=QUESTION, extra_body={"no_such_field": 1}, **base), 400)
        assert "no_such_field" in str(e)

    @step
    def timeouts():
        expect(openai.APITimeoutError, lambda: client.with_options(timeout=0.001).chat.completions.create(messages=QUESTION, **base))

    @step
    def asynchronous():
        async def work():
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as c:
                many = await asyncio.gather(*(c.chat.completions.create(messages=QUESTION, **base) for _ in range(6)))
                assert len({r.choices[0].message.content for r in many}) == 1
                s = await c.chat.completions.create(messages=QUESTION, stream=True, **base)
                assert "42" in "".join([p.choices[0].delta.content or "" async for p in s if p.choices])
                async with c.responses.stream(input="What is 12 plus 30?", **more) as s:
                    assert "42" in (await s.get_final_response()).output_text
        asyncio.run(work())

    @step
    def extra_body():
        r = chat.create(messages=QUESTION, extra_body={"top_k": 5, "min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}},
                        extra_headers={"X-Session-Id": "s"}, **base)
        assert r.timings["predicted_n"] > 0

    return out
