"""walk_anthropic.py: what anthropic-python can do with a server like ours; each step asserts what a caller would rely on."""
import asyncio
import json

MODEL = "chimere-nano"
QUESTION = [{"role": "user", "content": "What is 12 plus 30?"}]
EVALUATE = [{"role": "user", "content": "Please evaluate 6157 - 7343."}]
TOOLS = [{"name": "calculator", "description": "Calculator.", "input_schema": {
    "type": "object", "properties": {"expression": {"type": "string", "description": "The expression"}}, "required": ["expression"]}}]


def expect(kind, call, text=""):
    try:
        call()
    except kind as e:
        assert text in str(e), e
        return e
    raise AssertionError(f"expected {kind.__name__}")


def text_of(message):
    return "".join(b.text for b in message.content if b.type == "text")


def steps(url):
    import anthropic
    import pydantic
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120)
    base = {"model": MODEL, "max_tokens": 40, "extra_body": {"temperature": 0}}
    long = {**base, "max_tokens": 80}
    out = []

    def step(f):
        out.append(f)
        return f

    def create(messages, **more):
        return client.messages.create(messages=messages, **{**base, **more})

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        adult: bool

    # ---- messages ----
    @step
    def message():
        m = create(QUESTION)
        assert m.type == "message" and m.role == "assistant" and "42" in text_of(m) and m.stop_reason == "end_turn"
        assert m.usage.input_tokens > 0 and m.usage.output_tokens > 0

    @step
    def message_parts():
        assert "42" in text_of(create([{"role": "user", "content": [{"type": "text", "text": "What is 12 plus 30?"}]}]))

    @step
    def message_system():
        assert text_of(create(QUESTION, system="Be brief."))

    @step
    def message_system_blocks():
        system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
        assert text_of(create(QUESTION, system=system))

    @step
    def message_history():
        assert text_of(create([*QUESTION, {"role": "assistant", "content": "42."}, {"role": "user", "content": "And plus 1?"}]))

    @step
    def message_prefill():
        assert text_of(create([*QUESTION, {"role": "assistant", "content": "The answer is"}]))

    @step
    def message_length():
        assert create(QUESTION, max_tokens=2).stop_reason == "max_tokens"

    @step
    def message_stop():
        m = create(QUESTION, stop_sequences=["42"])
        assert m.stop_reason == "stop_sequence" and m.stop_sequence == "42" and "42" not in text_of(m)

    @step
    def message_sampling():
        assert text_of(create(QUESTION, extra_body={"temperature": 1.0, "top_p": 0.9, "top_k": 5}))

    @step
    def message_metadata():
        assert create(QUESTION, metadata={"user_id": "ann"}, service_tier="auto").id.startswith("msg_")

    @step
    def message_thinking_off():
        assert text_of(create(QUESTION, thinking={"type": "disabled"}))

    @step
    def message_thinking_on():
        m = create(QUESTION, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1200)
        assert {b.type for b in m.content} <= {"thinking", "text"} and m.content

    @step
    def message_document():
        parts = [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Twelve plus thirty is 42."}},
                 {"type": "text", "text": "What is 12 plus 30?"}]
        assert text_of(create([{"role": "user", "content": parts}]))

    @step
    def message_search_result():
        parts = [{"type": "search_result", "source": "https://a", "title": "Sums", "content": [{"type": "text", "text": "12 + 30 = 42"}]},
                 {"type": "text", "text": "What is 12 plus 30?"}]
        assert text_of(create([{"role": "user", "content": parts}]))

    @step
    def message_raw():
        raw = client.messages.with_raw_response.create(messages=QUESTION, **base)
        assert raw.headers["request-id"] and raw.parse().content

    @step
    def message_streaming_response():
        with client.messages.with_streaming_response.create(messages=QUESTION, **base) as r:
            assert r.status_code == 200 and r.json()["type"] == "message"

    @step
    def message_request_id():
        assert create(QUESTION)._request_id

    # ---- tools ----
    @step
    def tool_use():
        m = create(EVALUATE, tools=TOOLS, max_tokens=80)
        call = next(b for b in m.content if b.type == "tool_use")
        assert m.stop_reason == "tool_use" and call.input["expression"]

    @step
    def tool_round():
        m = create(EVALUATE, tools=TOOLS, max_tokens=80)
        call = next(b for b in m.content if b.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "6157 - 7343 = -1186"}
        assert "1186" in text_of(create([*EVALUATE, {"role": "assistant", "content": m.content}, {"role": "user", "content": [result]}], tools=TOOLS))

    @step
    def tool_result_blocks():
        call = {"type": "tool_use", "id": "t1", "name": "calculator", "input": {"expression": "1 - 2"}}
        result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [{"type": "text", "text": "error"}]}
        assert create([*EVALUATE, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}], tools=TOOLS).content

    @step
    def tool_any():
        assert create(QUESTION, tools=TOOLS, tool_choice={"type": "any"}, max_tokens=80).stop_reason == "tool_use"

    @step
    def tool_named():
        m = create(QUESTION, tools=TOOLS, tool_choice={"type": "tool", "name": "calculator", "disable_parallel_tool_use": True}, max_tokens=80)
        assert [b.name for b in m.content if b.type == "tool_use"] == ["calculator"]

    @step
    def tool_none():
        assert create(EVALUATE, tools=TOOLS, tool_choice={"type": "none"}).stop_reason != "tool_use"

    @step
    def tool_strict():
        strict = [{**TOOLS[0], "strict": True, "input_schema": {**TOOLS[0]["input_schema"], "additionalProperties": False}}]
        m = create(QUESTION, tools=strict, tool_choice={"type": "any"}, max_tokens=80)
        assert set(m.content[-1].input) == {"expression"}

    @step
    def tool_cut():
        m = create(QUESTION, tools=TOOLS, tool_choice={"type": "any"}, max_tokens=8)
        assert m.stop_reason == "max_tokens" and not any(b.type == "tool_use" for b in m.content)

    @step
    def tool_runner():
        @anthropic.beta_tool
        def calculator(expression: str) -> str:
            """Calculator.

            Args:
                expression: The expression
            """
            return f"{expression} = {eval(expression, {'__builtins__': {}})}"  # digits and signs, from our own grammar
        runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=80, tools=[calculator], messages=EVALUATE, max_iterations=3,
                                                  extra_body={"temperature": 0})
        assert "1186" in text_of(runner.until_done())

    # ---- streams ----
    @step
    def stream_events():
        kinds = [e.type for e in create(QUESTION, stream=True)]
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and "content_block_delta" in kinds

    @step
    def stream_text():
        with client.messages.stream(messages=QUESTION, **base) as s:
            text = "".join(s.text_stream)
        assert text == text_of(create(QUESTION))

    @step
    def stream_final_message():
        with client.messages.stream(messages=QUESTION, **base) as s:
            assert text_of(s.get_final_message()) == text_of(create(QUESTION))

    @step
    def stream_final_text():
        with client.messages.stream(messages=QUESTION, **base) as s:
            assert "42" in s.get_final_text()

    @step
    def stream_until_done():
        with client.messages.stream(messages=QUESTION, **base) as s:
            s.until_done()
            assert s.current_message_snapshot.usage.output_tokens > 0

    @step
    def stream_helper_events():
        with client.messages.stream(messages=QUESTION, **base) as s:
            kinds = {e.type for e in s}
        assert {"text", "content_block_stop", "message_stop"} <= kinds

    @step
    def stream_tool():
        with client.messages.stream(messages=EVALUATE, tools=TOOLS, **long) as s:
            kinds = {e.type for e in s}
            call = next(b for b in s.get_final_message().content if b.type == "tool_use")
        assert "input_json" in kinds and call.input["expression"]

    @step
    def stream_closed_early():
        with client.messages.stream(messages=QUESTION, **{**base, "max_tokens": 2000}) as s:
            next(iter(s))
        assert create(QUESTION).content

    @step
    def stream_raw():
        with client.messages.with_streaming_response.create(messages=QUESTION, stream=True, **base) as r:
            assert any(line.startswith("event: message_stop") for line in r.iter_lines())

    # ---- forms ----
    @step
    def parse():
        m = client.messages.parse(messages=[{"role": "user", "content": "A person, as JSON."}], output_format=Person, **{**base, "max_tokens": 60})
        assert isinstance(m.parsed_output, Person)

    @step
    def parse_stream():
        with client.messages.stream(messages=[{"role": "user", "content": "A person, as JSON."}], output_format=Person, **{**base, "max_tokens": 60}) as s:
            assert isinstance(s.get_final_message().parsed_output, Person)

    @step
    def output_config():
        schema = {"type": "object", "properties": {"n": {"type": "integer", "enum": [42]}}, "required": ["n"], "additionalProperties": False}
        m = create(QUESTION, output_config={"format": {"type": "json_schema", "schema": schema}})
        assert json.loads(text_of(m)) == {"n": 42}

    # ---- the rest ----
    @step
    def count_tokens():
        n = client.messages.count_tokens(model=MODEL, messages=QUESTION, system="Be brief.", tools=TOOLS).input_tokens
        usage = create(QUESTION, system="Be brief.", tools=TOOLS).usage
        assert n == usage.input_tokens + usage.cache_read_input_tokens

    @step
    def models_list():
        assert MODEL in [m.id for m in client.models.list()]

    @step
    def models_retrieve():
        assert client.models.retrieve(MODEL).type == "model"
        expect(anthropic.NotFoundError, lambda: client.models.retrieve("none"))

    @step
    def beta_message():
        m = client.beta.messages.create(messages=QUESTION, betas=["context-management-2025-06-27"],
                                        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, **base)
        assert "42" in text_of(m)

    @step
    def beta_stream():
        with client.beta.messages.stream(messages=QUESTION, **base) as s:
            assert "42" in s.get_final_text()

    @step
    def beta_count_tokens():
        assert client.beta.messages.count_tokens(model=MODEL, messages=QUESTION).input_tokens > 0

    @step
    def errors():
        expect(anthropic.BadRequestError, lambda: create([]))
        expect(anthropic.NotFoundError, lambda: create(QUESTION, model="none"))
        e = expect(anthropic.BadRequestError, lambda: create([{"role": "user", "content": "a " * 20000}]), "prompt is too long")
        assert e.body["error"]["type"] == "invalid_request_error"
        expect(anthropic.BadRequestError, lambda: create(QUESTION, extra_body={"no_such_field": 1}), "no_such_field")

    @step
    def timeouts():
        expect(anthropic.APITimeoutError, lambda: client.with_options(timeout=0.001).messages.create(messages=QUESTION, **base))

    @step
    def asynchronous():
        async def work():
            async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as c:
                many = await asyncio.gather(*(c.messages.create(messages=QUESTION, **base) for _ in range(6)))
                assert len({text_of(m) for m in many}) == 1
                async with c.messages.stream(messages=QUESTION, **base) as s:
                    assert "42" in await s.get_final_text()
        asyncio.run(work())

    @step
    def session_header():
        assert create(QUESTION, extra_headers={"X-Session-Id": "s"}).content

    @step
    def integers_beyond_64_bits():
        big = [{"name": "keep", "input_schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 10 ** 20}}, "required": ["n"]}}]
        m = create(QUESTION, tools=big, tool_choice={"type": "any"}, max_tokens=120)
        call = next(b for b in m.content if b.type == "tool_use")
        assert isinstance(call.input["n"], int) and call.input["n"] >= 10 ** 20, call.input
        # in a history too: other digits are other tokens
        def tokens(n):
            history = [*QUESTION, {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "keep", "input": {"n": n}}]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "kept"}]}]
            return client.messages.count_tokens(model=MODEL, messages=history, tools=big).input_tokens
        assert tokens(10 ** 60) - tokens(10 ** 30) == tokens(10 ** 90) - tokens(10 ** 60) > 0

    return out
