"""Where the nodes of a job meet: one serves, all others come to it.

Messages, in order: `join` from each node (ranks, wanted place, how many nodes, the job's identity),
`place` to each (node, first rank, size, cluster key, a port of the serving node), `ready` from
each, `group` to each (the group's id), `ended` from each (exit status), and `end` to each with the
status of the job. A connection that is lost after its `join` counts as a node that has failed. A
`join` of another job, or one more than the job has nodes, is answered by `refused` (reason). So the
server listens until the job ends.

A stranger has _HANDSHAKE_SECONDS for the proof, on one of _MAX_STRANGERS connections. For a further
one the oldest of the address goes that has most. An address that has as many as any does not get
more that way: there a newcomer is turned away while the oldest has had less than _SURE_SECONDS. So
strangers can neither take the places of other addresses, nor come so fast that a node at their own
address never ends its proof. Whoever is turned away comes again: a node is in when the server has
welcomed it.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import socket
from typing import Any, NamedTuple

from ..errors import LaunchError
from .sealed import Sealed, Stranger, as_client, as_server

_HANDSHAKE_SECONDS = 5.0
_SURE_SECONDS = 2.0
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


class _Place(NamedTuple):
    """Of a connection that has not proved the secret yet."""

    address: str
    since: float
    task: asyncio.Task[Any]


class NodeLostError(LaunchError):
    """A node's connection has ended."""


class Server:
    """Accepts nodes that prove the secret; `nodes` gives them as they come."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._server: asyncio.Server | None = None
        self._strangers: list[_Place] = []
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

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def strangers(self) -> int:
        """How many connections have not proved the secret yet."""
        return len(self._strangers)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # One that is gone again has no address.
        address, *_ = writer.get_extra_info("peername") or ("",)
        place = _Place(str(address), asyncio.get_running_loop().time(), task)
        if not self._makes_room(place):
            writer.transport.abort()
            return
        self._strangers.append(place)
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
            if place in self._strangers:
                self._strangers.remove(place)
            if not proved:
                writer.transport.abort()

    def _makes_room(self, newcomer: _Place) -> bool:
        """Whether there is a place for it, after another one has lost his if need be."""
        if len(self._strangers) < _MAX_STRANGERS:
            return True
        taken = collections.Counter(place.address for place in self._strangers)
        greedy, most = taken.most_common(1)[0]
        if taken[newcomer.address] == most:
            greedy = newcomer.address
        oldest = next(place for place in self._strangers if place.address == greedy)
        if greedy == newcomer.address and newcomer.since - oldest.since < _SURE_SECONDS:
            return False
        # It gives its place up now, not when its task runs: others may come before that.
        self._strangers.remove(oldest)
        oldest.task.cancel()
        return True

    def close(self) -> None:
        """Takes no more nodes; those that have come stay."""
        if self._server is not None:
            self._server.close()
        for place in list(self._strangers):
            place.task.cancel()


async def meet(host: str, port: int, secret: bytes, seconds: float) -> Sealed:
    """Connects to the node that serves, which may start later than this one. Raises LaunchError."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await asyncio.wait_for(_come(host, port, secret), _HANDSHAKE_SECONDS)
        except Stranger as stranger:
            raise LaunchError(f"{host}:{port} has not proved the job's secret: {stranger}. Give "
                              "all nodes the same secret and the same --rdzv") from stranger
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise LaunchError(f"nobody serves the rendezvous at {host}:{port} "
                                  f"({error or type(error).__name__}): start the job on the node "
                                  "that has this address") from error
            await asyncio.sleep(_RETRY_SECONDS)


async def _come(host: str, port: int, secret: bytes) -> Sealed:
    """One attempt. Raises Stranger, OSError or EOFError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        _keep_alive(writer)
        return await as_client(reader, writer, secret)
    except BaseException:
        writer.transport.abort()
        raise


async def expect(node: Sealed, kind: str) -> dict[str, Any]:
    """The next message, which must be of this kind. Raises NodeLostError, or LaunchError if the
    node has ended or refuses this one instead."""
    try:
        message = await node.receive()
    except _LOST as error:
        reason = error or type(error).__name__
        raise NodeLostError(f"a node of the job was lost: {reason}") from error
    if message.get("kind") == "refused":
        raise LaunchError(str(message.get("reason")))
    if message.get("kind") != kind:
        reason = message.get("reason") or f"a message {message.get('kind')!r} came out of turn"
        raise LaunchError(f"the job has ended: {reason}")
    return message
