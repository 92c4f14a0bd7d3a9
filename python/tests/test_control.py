"""One question to a control socket, which a listener of the test's own answers."""

import json
import os
import pathlib
import socket
import threading

import pytest

from tern import _control
from tern._control import ask


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "control.sock"))
        listening.listen(0)
        yield listening


def answer(listening, text):
    connection, _ = listening.accept()
    with connection, connection.makefile("rwb") as lines:
        request = json.loads(lines.readline())
        lines.write(text + b"\n")
    return request


def test_a_daemon_whose_queue_is_full_is_waited_for(listener):
    asker_id, result = [], []

    def work():
        asker_id.append(threading.get_native_id())
        result.append(ask(listener.getsockname(), "status"))

    with socket.socket(socket.AF_UNIX) as first:
        first.connect(listener.getsockname())
        asker = threading.Thread(target=work)
        asker.start()
        while asker.is_alive() and not (asker_id and connects(asker_id[0])):
            pass
        assert asker.is_alive()
        listener.accept()[0].close()
        assert answer(listener, b'{"ok": true, "result": {"clients": 3}}')["verb"] == "status"
        asker.join()
    assert result == [{"clients": 3}]


def connects(thread_id):
    """Whether the thread waits in a connect()."""
    number = {"x86_64": "42", "aarch64": "203"}[os.uname().machine]
    return pathlib.Path(f"/proc/self/task/{thread_id}/syscall").read_text().split()[0] == number


@pytest.mark.parametrize("text", [b"", b"garbage", b'{"ok": false, "error": {"text": "no"}}'])
def test_what_is_no_result_is_an_error(listener, text):
    server = threading.Thread(target=answer, args=(listener, text))
    server.start()
    with pytest.raises(ValueError):
        ask(listener.getsockname(), "status")
    server.join()


def test_a_daemon_that_is_silent_is_an_error(listener, monkeypatch):
    monkeypatch.setattr(_control, "_TIMEOUT_S", 0.01)
    with pytest.raises(OSError):
        ask(listener.getsockname(), "status")


def test_nobody_there_is_an_error(tmp_path):
    with pytest.raises(OSError):
        ask(tmp_path / "control.sock", "status")
