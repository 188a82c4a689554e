"""Stand-in for the module `utils` of llama.cpp's server tests: the names that those tests import, over `chimere serve`.

A test sets attributes of a ServerProcess (n_ctx, api_key, jinja, ...), starts it, and sends requests. Here an attribute
becomes an option of `chimere serve` where there is one. Models are this project's own: chimere-nano answers in place of
each of theirs. Written from the names that the tests use; CHIMERE is the program."""
import concurrent.futures
import json
import os
import re
import socket
import subprocess
import time
from typing import *  # noqa: F403: the tests take their annotations from here

import requests

DEFAULT_HTTP_TIMEOUT = 60
servers = set()


class ServerError(Exception):
    def __init__(self, code, body):
        super().__init__(f"{code}: {body}")
        self.code, self.body = code, body


class ServerResponse:
    def __init__(self, response):
        self.status_code, self.headers = response.status_code, dict(response.headers)
        try:
            self.body = response.json()
        except ValueError:
            self.body = response.text


# attribute -> option with its value; None: no option is needed for it here
VALUES = {"n_slots": "--parallel", "n_batch": "--batch", "n_threads": "--threads", "ctk": "--cache-type-k",
          "ctv": "--cache-type-v", "api_key": "--api-key", "slot_save_path": "--slot-save-path",
          "chat_template": "--chat-template", "chat_template_file": "--chat-template", "temperature": "--temp",
          "seed": "--seed", "n_predict": "--n-predict", "cors_origins": "--cors"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ServerProcess:
    def __init__(self, alias=None, **attributes):
        self.server_port, self.server_host, self.process = free_port(), "127.0.0.1", None
        self.model_alias = alias
        self.__dict__.update(attributes)

    def __getattr__(self, name):  # what a test does not set
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def options(self):
        nano = os.path.join(os.path.dirname(os.environ["CHIMERE"]), "chimere-nano.gguf")
        out = ["-m", nano, "--no-odo", "--no-keys", "-q", "--alias", "*"]
        for host in self.server_host.split(","):
            out += ["--host", host.strip()]
        out += ["--port", self.server_port]
        if self.n_ctx:
            out += ["--ctx", self.n_ctx]
        for name, option in VALUES.items():
            value = getattr(self, name)
            if value is not None and not (name == "n_predict" and value < 0):
                out += [option, value]
        if self.model_alias:
            out += ["--name", self.model_alias]
        for lora in self.lora_files or []:
            out += ["--lora", lora]
        if self.server_embeddings:
            out += ["--embedding-model", nano]
        if self.server_reranking:
            out += ["--rerank-model", os.environ["RERANKER"]]
        if self.debug:
            out.append("--verbose")
        if self.server_metrics:
            out += ["--metrics-compat", "llamacpp"]
        if self.reasoning in ("on", "auto"):
            out.append("--think")
        return [str(x) for x in out]

    def start(self, timeout_seconds=DEFAULT_HTTP_TIMEOUT):
        self.log = open(self.log_path, "w") if self.log_path else None
        self.process = subprocess.Popen([os.environ["CHIMERE"], "serve", *self.options()], stdout=self.log,
                                        stderr=self.log)
        servers.add(self)
        until = time.time() + timeout_seconds
        while time.time() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}")
            try:
                if requests.get(self.make_url("/health"), timeout=5).status_code == 200:
                    self.ready = True
                    return
            except requests.RequestException:
                time.sleep(0.02)
        raise TimeoutError("the server did not start")

    def stop(self):
        servers.discard(self)
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def make_url(self, path, host=None):
        return f"http://{host or self.server_host.split(',')[0].strip()}:{self.server_port}{path}"

    def make_request(self, method, path, data=None, headers=None, timeout=120, host=None):
        body = {"json": data} if method == "POST" else {}
        headers = {k: v for k, v in (headers or {}).items() if v is not None}
        return ServerResponse(requests.request(method, self.make_url(path, host), headers=headers, timeout=timeout, **body))

    def make_stream_request(self, method, path, data=None, headers=None, host=None):
        response = requests.request(method, self.make_url(path, host), json=data, headers=headers, stream=True, timeout=120)
        if response.status_code != 200:
            raise ServerError(response.status_code, response.json())
        for line in response.iter_lines():
            if line.startswith(b"data: [DONE]"):
                return
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def make_any_request(self, method, path, data=None, headers=None, timeout=120):
        """The body of a whole answer, also of one that was streamed: its deltas, joined."""
        if not (data or {}).get("stream"):
            response = self.make_request(method, path, data, headers, timeout)
            assert response.status_code == 200, f"{response.status_code}: {response.body}"
            return response.body
        texts, calls, finish = {"content": [], "reasoning_content": []}, [], None
        for chunk in self.make_stream_request(method, path, data, headers):
            if not chunk["choices"]:
                assert "usage" in chunk and "timings" in chunk, chunk
                continue
            choice, = chunk["choices"]
            finish = choice["finish_reason"] or finish
            for kind, parts in texts.items():
                if choice["delta"].get(kind):
                    parts.append(choice["delta"][kind])
            for part in choice["delta"].get("tool_calls") or []:
                if part["index"] >= len(calls):
                    assert part["id"] and part["type"] == "function" and part["function"]["name"], part
                    calls.append({"id": part["id"], "type": "function",
                                  "function": {"name": part["function"]["name"], "arguments": ""}})
                calls[part["index"]]["function"]["arguments"] += part["function"].get("arguments") or ""
        message = {"role": "assistant", "tool_calls": calls or None}
        message.update({kind: "".join(parts) or None for kind, parts in texts.items()})
        return {"choices": [{"index": 0, "finish_reason": finish, "message": message}]}


class ServerPreset:
    @staticmethod
    def load_all():
        pass  # nothing to fetch

    @staticmethod
    def tinyllama2():
        return ServerProcess("tinyllama-2", temperature=0.8, n_ctx=512, n_batch=32, n_slots=2, n_predict=64, seed=42)

    @staticmethod
    def bert_bge_small():
        return ServerProcess("bert-bge-small", n_ctx=512, n_batch=128, n_slots=2, seed=42, server_embeddings=True)

    @staticmethod
    def bert_bge_small_with_fa():
        return ServerProcess("bert-bge-small", n_ctx=1024, n_batch=300, n_slots=2, seed=42, server_embeddings=True)

    @staticmethod
    def tinyllama_infill():
        return ServerProcess("tinyllama-infill", temperature=0.0, n_ctx=2048, n_batch=1024, n_slots=1, n_predict=64, seed=42)

    @staticmethod
    def stories15m_moe():
        return ServerProcess("stories15m-moe", temperature=0.0, n_ctx=2048, n_batch=1024, n_slots=1, n_predict=64, seed=42)

    @staticmethod
    def jina_reranker_tiny():
        return ServerProcess("jina-reranker", n_ctx=512, n_batch=512, n_slots=1, seed=42, server_reranking=True)

    @staticmethod
    def tinygemma3():
        return ServerProcess("tinygemma3", temperature=0.8, n_ctx=1024, n_batch=512, n_slots=2, n_predict=4, seed=42)

    @staticmethod
    def router():
        return ServerProcess(None, n_ctx=1024, n_batch=16, n_slots=1, n_predict=16, seed=42)


def parallel_function_calls(calls):
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(len(calls), 1)) as pool:
        futures = [pool.submit(function, *arguments) for function, arguments in calls]
        results = []
        for future in futures:
            try:
                results.append(future.result())
            except Exception as e:  # a test looks at its results
                print(f"call failed: {e}")
                results.append(None)
        return results


def match_regex(regex, text):
    return re.search(regex, text, re.IGNORECASE | re.MULTILINE | re.DOTALL) is not None


def download_file(url, output_file_path=None):
    raise RuntimeError(f"this run fetches nothing ({url})")


def is_slow_test_allowed():
    return False
