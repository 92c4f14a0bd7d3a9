"""Where the nodes of a job meet: one serves, all others come to it.

Messages, in order: `join` from each node (ranks, wanted place), `place` to each (node, first rank,
size, cluster key), `ready` from each, `group` to each (the group's id), `ended` from each (exit
status), and `end` to each with the status of the job. A connection that is lost counts as a node
that has failed.

A stranger has _HANDSHAKE_SECONDS for the proof, on one of _MAX_STRANGERS connections. For a further
one the oldest of the address goes that has most, so that other addresses keep theirs.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import socket
from typing import Any

from ..errors import LaunchError
from .sealed import Sealed, Stranger, as_client, as_server

_HANDSHAKE_SECONDS = 5.0
_MAX_STRANGERS = 64
_RETRY_SECONDS = 0.2
# A node whose machine has died is noticed after some 25 seconds.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))

_LOST = (OSError, EOFError, Stranger, ValueError)


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Server:
    """Accepts nodes that prove the secret; `nodes` gives them as they come."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._server: asyncio.Server | None = None
        self._strangers: list[tuple[str, asyncio.Task[Any]]] = []
        self.nodes: asyncio.Queue[Sealed] = asyncio.Queue()

    async def listen(self, host: str, port: int) -> bool:
        """False if the address is not this machine's, or somebody listens there already."""
        try:
            self._server = await asyncio.start_server(self._meet, host, port)
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                return False
            raise LaunchError(f"cannot listen on {host}:{port}: {error}") from error
        return True

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        entry = (str(writer.get_extra_info("peername")[0]), task)
        self._make_room()
        self._strangers.append(entry)
        proved = False
        try:
            _keep_alive(writer)
            node = await asyncio.wait_for(
                as_server(reader, writer, self._secret), _HANDSHAKE_SECONDS)
            proved = True
            self.nodes.put_nowait(node)
        except (*_LOST, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # nobody whom it would help to hear why
        finally:
            self._strangers.remove(entry)
            if not proved:
                writer.transport.abort()

    def _make_room(self) -> None:
        if len(self._strangers) < _MAX_STRANGERS:
            return
        greedy, _ = collections.Counter(source for source, _ in self._strangers).most_common(1)[0]
        next(task for source, task in self._strangers if source == greedy).cancel()

    def close(self) -> None:
        """Takes no more nodes; those that have come stay."""
        if self._server is not None:
            self._server.close()
        for _, task in list(self._strangers):
            task.cancel()


async def meet(host: str, port: int, secret: bytes, seconds: float) -> Sealed:
    """Connects to the node that serves, which may start later than this one. Raises LaunchError."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(host, port), _HANDSHAKE_SECONDS)
            _keep_alive(writer)
            return await asyncio.wait_for(as_client(reader, writer, secret), _HANDSHAKE_SECONDS)
        except Stranger as stranger:
            raise LaunchError(f"{host}:{port} has not proved the job's secret: {stranger}. Give "
                              "all nodes the same secret and the same --rdzv") from stranger
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise LaunchError(f"nobody serves the rendezvous at {host}:{port} "
                                  f"({error or type(error).__name__}): start the job on the node "
                                  "that has this address") from error
            await asyncio.sleep(_RETRY_SECONDS)


async def expect(node: Sealed, kind: str) -> dict[str, Any]:
    """The next message, which must be of this kind. Raises LaunchError if the node is lost or has
    ended instead."""
    try:
        message = await node.receive()
    except _LOST as error:
        raise LaunchError(f"a node of the job was lost: {error or type(error).__name__}") from error
    if message.get("kind") != kind:
        reason = message.get("reason") or f"a message {message.get('kind')!r} came out of turn"
        raise LaunchError(f"the job has ended: {reason}")
    return message
