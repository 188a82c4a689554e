"""pytest plugin of llama_server.py: puts the stand-in in the place of `utils`, stops servers, notes why tests fail."""
import json
import os
import sys

import pytest

import llama_server_utils

sys.modules["utils"] = llama_server_utils
results = {}


@pytest.fixture(autouse=True)
def stop_servers():
    yield
    for server in list(llama_server_utils.servers):
        server.stop()


def failing_line(report):
    """The assertion that failed, and the value that it met, on one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    source = ""
    entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", [])
    for entry in entries:  # the test's own line
        lines = [x[1:].strip() for x in getattr(entry, "lines", []) if x.startswith(">")]
        if lines and "/unit/" in str(getattr(getattr(entry, "reprfileloc", None), "path", "")).replace("\\", "/") + "/unit/":
            source = lines[-1]
            break
    return source, " ".join(text.split())[:300]


def pytest_runtest_logreport(report):
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        source, text = failing_line(report) if report.outcome == "failed" else ("", "")
        if report.outcome == "skipped":
            text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        results[report.nodeid] = {"outcome": report.outcome, "line": source, "text": text}


def pytest_collectreport(report):
    if report.outcome == "failed":
        results[report.nodeid] = {"outcome": "error", "line": "", "text": " ".join(str(report.longrepr).split())[-300:]}


def pytest_sessionfinish(session):
    with open(os.environ["LLAMA_SERVER_RESULTS"], "w", encoding="utf-8") as f:
        json.dump(results, f)
