"""Offline is found out in seconds."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from huggingface_hub import constants

from flashtrace_lib import load, load_model
from flashtrace_lib.model import hub


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def at(monkeypatch, port):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")


def test_a_closed_port_is_offline_and_the_model_refused_at_once(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at(monkeypatch, free.getsockname()[1])
    start = time.perf_counter()
    assert hub.is_offline()
    with pytest.raises(ValueError, match=r"'nobody/none'.*the hub cannot be reached, and its local cache") as error:
        load_model("nobody/none")
    assert time.perf_counter() - start < 10 and "\n" not in str(error.value)


def test_a_server_that_says_nothing_is_offline(monkeypatch):
    monkeypatch.setattr(hub, "PATIENCE", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        at(monkeypatch, silent.getsockname()[1])
        start = time.perf_counter()
        assert hub.is_offline() and time.perf_counter() - start < 5


@pytest.mark.parametrize("status", [200, 404, 503])
def test_any_answer_is_online(monkeypatch, status):
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at(monkeypatch, server.server_port)
    assert not hub.is_offline() and load._hub_options() == {}
    server.shutdown()
    server.server_close()


def test_the_switch_asks_nobody(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_ask", lambda *_: pytest.fail("asked"))
    assert hub.is_offline() and load._hub_options() == {"local_files_only": True}


def test_a_local_folder_asks_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "is_offline", lambda: pytest.fail("asked"))
    (tmp_path / "config.json").write_text("{}")
    assert load._resolve(str(tmp_path), None) == (str(tmp_path), {})
