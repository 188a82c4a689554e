#!/usr/bin/env python3
"""Asks a server about images, for test/cli/test_llama_images.sh.

    ask_images.py URL blind                  a model that reads text only refuses them
    ask_images.py URL sees MODEL MMPROJ      its tokens are those that libmtmd and libllama prefer (./oracle)
"""

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

TIE = 0.05  # of a logit: sums in another order. A wrong row changes logits by whole numbers


def post(path, body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def data(path):
    with open(path, "rb") as f:
        return base64.b64encode(f.read()).decode()


def url(path):
    return "data:image/png;base64," + data(path)


def text(s):
    return {"type": "text", "text": s}


def image(path):
    return {"type": "image_url", "image_url": {"url": url(path)}}


def chat(parts, **more):
    return post("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": parts}], "temperature": 0,
                                         "max_tokens": 12, **more})


QUESTION = "What is this?"
MODEL = "smollm2-135m-instruct-q4_1"


def others():
    """The same question by the other two APIs."""
    yield post("/v1/responses", {"model": MODEL, "max_output_tokens": 4, "input": [{"role": "user", "content": [
        {"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": url("1.png")}]}]})
    yield post("/v1/messages", {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": [
        text(QUESTION), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data("1.png")}}]}]})


def blind():
    for status, answer in [chat([text(QUESTION), image("1.png")]), chat([image("1.png")], model="odo"), *others()]:
        assert status == 400, answer
        assert "this model reads text only" in json.dumps(answer), answer


def gap(path, answer, prompt):
    """How far the answer's tokens are from those that libllama prefers after this prompt and that image."""
    with open("pieces", "w", encoding="ascii") as f:
        for token in answer["choices"][0]["logprobs"]["content"]:
            f.write(bytes(token["bytes"]).hex() + "\n")
    out = subprocess.run(["./oracle", sys.argv[3], sys.argv[4], path, "pieces"], input=prompt.encode(), capture_output=True,
                         check=True).stdout.split()
    return int(out[0]), float(out[1])


def sees():
    parts = {path: [text(QUESTION), image(path), text("Say it.")] for path in ("1.png", "2.png")}
    marked = re.compile(r"<picture:[0-9a-f]{16}:\d\d>")
    prompt = post("/apply-template", {"messages": [{"role": "user", "content": parts["1.png"]}]})[1]["prompt"]
    assert len(marked.findall(prompt)) == 1, prompt
    prompt = marked.sub("<__media__>", prompt)
    for path, other in (("1.png", "2.png"), ("2.png", "1.png")):
        status, answer = chat(parts[path], logprobs=True)
        assert status == 200, answer
        n, far = gap(path, answer, prompt)
        print(f"{path}: {n} tokens of prompt, at most {far} from the best logit; of the other image {gap(other, answer, prompt)[1]}")
        assert answer["usage"]["prompt_tokens"] == n, answer["usage"]
        assert far < TIE, far
        assert gap(other, answer, prompt)[1] > 4 * TIE
    counts = [answer["usage"] for status, answer in others() if status == 200]
    assert len(counts) == 2 and counts[0]["input_tokens"] == counts[1]["input_tokens"] > 16, counts
    # the same image goes on from the kept state, another does not
    long = "Tell me all about it, please. " * 12
    cached = []
    for path in ("1.png", "1.png", "2.png"):
        status, answer = chat([image(path), text(long)], max_tokens=2)
        assert status == 200, answer
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] < 64 <= cached[1] and cached[2] < 64, cached
    two = chat([image("1.png"), text("and"), image("2.png")], max_tokens=2)
    assert two[0] == 200 and two[1]["usage"]["prompt_tokens"] >= 32, two
    for bad, sentence in [
        ([image("1.png")] * 33, "expected at most 32 images"),
        ([{"type": "image_url", "image_url": {"url": "http://192.0.2.1/x.png"}}], "addresses are not fetched"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "expected a PNG, JPEG, GIF or BMP image"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "!" * 40}}], "expected base64"),
        ([{"type": "image_url", "image_url": {"url": url("1.png")[:100]}}], "cannot be decoded"),
        ([{"type": "image_url", "image_url": 7}], "expected an image as data:"),
    ]:
        status, answer = chat(bad)
        assert status == 400 and sentence in answer["error"]["message"], (sentence, status, answer)
    assert chat([text("Hello")])[0] == 200


{"blind": blind, "sees": sees}[sys.argv[2]]()
