"""Daemons that are not as the library expects them: of another version, of none, or of a processor
that can do less."""

import contextlib
import os
import shlex
import shutil
import socket
import struct
import threading

import numpy as np
import pytest

import tern
from cluster import Daemon, daemons, run_ranks
from tern._library import program

MAGIC = 0x4B504E54  # "TNPK"
HEADER = struct.Struct("<IHHQ")
WELCOME, WELCOME_BYTES = 2, 72


@contextlib.contextmanager
def fake_daemon(path, answer):
    """Answers the hello of one client by answer(hello), then leaves the connection open until the
    client has gone."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen()

    def serve():
        with listening.accept()[0] as connection:
            connection.sendall(answer(connection.recv(4096)))
            while connection.recv(4096):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        listening.close()


def request_of(hello):
    magic, version, kind, request = HEADER.unpack_from(hello)
    assert (magic, kind) == (MAGIC, 1)
    return version, request


def test_a_daemon_of_a_later_protocol_is_told_from_a_lost_one(tmp_path):
    def answer(hello):
        version, request = request_of(hello)
        return HEADER.pack(MAGIC, version + 1, WELCOME, request).ljust(WELCOME_BYTES, b"\0")

    with fake_daemon(tmp_path / "ternd.sock", answer):
        with pytest.raises(tern.VersionMismatchError, match="different versions"):
            tern.Client(tmp_path / "ternd.sock")


def test_a_daemon_of_another_shared_memory_is_told_too(tmp_path):
    def answer(hello):
        version, request = request_of(hello)
        return struct.pack("<IHHQH", MAGIC, version, WELCOME, request, 99).ljust(
            WELCOME_BYTES, b"\0")

    with fake_daemon(tmp_path / "ternd.sock", answer):
        with pytest.raises(tern.VersionMismatchError, match="chose shared memory version 99"):
            tern.Client(tmp_path / "ternd.sock")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 4096, b"x"],
                         ids=["another program", "zeros", "one byte"])
def test_what_is_no_daemon_is_said_and_nothing_hangs(tmp_path, answer):
    with fake_daemon(tmp_path / "ternd.sock", lambda hello: answer):
        with pytest.raises(tern.TernError) as caught:
            tern.Client(tmp_path / "ternd.sock")
    assert isinstance(caught.value, (tern.DaemonLostError, tern.ProtocolError,
                                     tern.VersionMismatchError))


def test_a_daemon_that_says_nothing_is_given_up(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(tmp_path / "ternd.sock"))
        silent.listen()
        with pytest.raises(tern.WaitTimeoutError):
            tern.Client(tmp_path / "ternd.sock", timeout=0.05)


COUNT = 1 << 14
RECIPES = ("3lc:s=1.5", "int:bits=4+huffman", "topk:p=0.05+fp16", "lossless")


def bits(nodes, run):
    """What two ranks get at two nodes: an exact sum, and three lossy ones by each recipe. `run`:
    another word for each, so that none adopts the residuals of another."""
    def work(group):
        x = np.random.default_rng(group.rank).standard_normal(COUNT).astype(np.float32)
        sums = [group.all_reduce(x, out=np.empty_like(x)).wait()]
        for recipe in RECIPES:
            tensor = group.declare(f"{recipe} {run}", COUNT, role="gradient", recipe=recipe)
            sums += [group.all_reduce(x, out=np.empty_like(x), tensor=tensor).wait()
                     for _ in range(3)]
        return np.array(sums).tobytes()

    return run_ranks(nodes, 2, work)


def compare_with(folder, command, kernels):
    """A node whose daemon `command` runs gets the bits that two usual nodes get, and so does the
    other. `kernels`: which ones it may say that it uses."""
    with daemons(2) as nodes:
        wanted = bits(nodes, "usual")
        other = Daemon(folder, "--peer-timeout", "30s", command=command)
        try:
            assert other.ask("status")["kernel_target"] in kernels
            assert bits([nodes[0], other], "second") == wanted
            assert bits([other, nodes[0]], "first") == wanted
        finally:
            other.stop()


def test_a_processor_without_avx2_gives_the_same_bits(tmp_path):
    """One node of two is of 2008, and uses slower kernels."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("there is no qemu-x86_64 (Debian: qemu-user)")
    compare_with(tmp_path / "old", (emulator, "-cpu", "Nehalem", program("ternd")),
                 ("scalar", "sse4"))


def test_a_node_of_aarch64_gives_the_same_bits(tmp_path):
    """One node of two has another instruction set, and the other's ranks are of x86-64: they share
    its memory, whose layout is the same."""
    ternd = os.environ.get("TERN_AARCH64_TERND")
    if ternd is None:
        pytest.skip("TERN_AARCH64_TERND does not say how to run one: qemu-aarch64 -L ROOT TERND")
    compare_with(tmp_path / "aarch64", shlex.split(ternd), ("neon",))
