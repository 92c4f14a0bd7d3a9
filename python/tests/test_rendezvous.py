"""The place where nodes meet, among strangers: in one loop, without programs."""

import asyncio
import contextlib

import pytest

from tern._run import rendezvous
from tern._run.coordination import _gather
from tern._run.rendezvous import _MAX_STRANGERS, Server, meet
from tern._run.sealed import MAGIC, _Keys, as_client, as_server
from tern.errors import LaunchError

HOST, SECRET = "127.0.0.1", b"a secret of the test's own"


async def serving(handler):
    """A server of the test's own, and its port."""
    server = await asyncio.start_server(handler, HOST, 0)
    return server, server.sockets[0].getsockname()[1]


async def listening():
    server = Server(SECRET)
    assert await server.listen(HOST, 0)
    return server, server.port


async def half_of_a_server(reader, writer):
    """Proves itself, and drops the client before it has read the client's proof."""
    hello = await reader.readexactly(len(MAGIC) + 32)
    keys = _Keys(SECRET, hello[len(MAGIC):], bytes(32))
    writer.write(bytes(32) + keys.server_proof)
    await writer.drain()
    writer.transport.abort()


def test_a_node_whose_proof_was_not_read_comes_again():
    """The server makes room at any moment; only its welcome says that a node is in."""
    async def main():
        came = []

        async def meeting(reader, writer):
            came.append(writer)
            if len(came) < 3:
                await half_of_a_server(reader, writer)
            else:
                node = await as_server(reader, writer, SECRET)
                await node.send({"kind": "place"})

        server, port = await serving(meeting)
        node = await meet(HOST, port, SECRET, 60)
        assert (await node.receive())["kind"] == "place" and len(came) == 3
        node.close()
        server.close()

    asyncio.run(main())


def test_a_node_that_is_never_welcome_gives_up():
    async def main():
        server, port = await serving(half_of_a_server)
        with pytest.raises(LaunchError, match="nobody serves the rendezvous"):
            await meet(HOST, port, SECRET, 0)
        server.close()

    asyncio.run(main())


async def pester(port):
    """A stranger who comes again as soon as he is turned away."""
    while True:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(MAGIC)
            await reader.read()
        except OSError:
            pass
        finally:
            writer.transport.abort()


@pytest.mark.parametrize("sure_seconds", [0.1, rendezvous._SURE_SECONDS])
def test_strangers_from_a_nodes_own_address_do_not_keep_it_out(monkeypatch, sure_seconds):
    monkeypatch.setattr(rendezvous, "_SURE_SECONDS", sure_seconds)

    async def main():
        server, port = await listening()
        strangers = [asyncio.create_task(pester(port)) for _ in range(_MAX_STRANGERS + 8)]
        for _ in range(3):
            node = await meet(HOST, port, SECRET, 300)
            await node.send({"kind": "join"})
            assert (await (await server.nodes.get()).receive()) == {"kind": "join"}
            assert server.strangers <= _MAX_STRANGERS
        for task in strangers:
            task.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
        server.close()

    asyncio.run(main())


def test_strangers_from_one_address_give_way_to_another_at_once(monkeypatch):
    monkeypatch.setattr(rendezvous, "_SURE_SECONDS", 1e9)
    monkeypatch.setattr(rendezvous, "_HANDSHAKE_SECONDS", 1e9)

    async def main():
        server, port = await listening()
        strangers = [await asyncio.open_connection(HOST, port) for _ in range(2 * _MAX_STRANGERS)]
        for reader, _ in strangers[_MAX_STRANGERS:]:
            with contextlib.suppress(OSError):
                assert await reader.read() == b""
        assert server.strangers == _MAX_STRANGERS
        reader, writer = await asyncio.open_connection(HOST, port, local_addr=("127.0.0.2", 0))
        await as_client(reader, writer, SECRET)
        assert server.strangers == _MAX_STRANGERS - 1
        for _, stranger in strangers:
            stranger.transport.abort()
        server.close()

    asyncio.run(main())


def test_a_node_that_is_lost_before_it_joins_may_come_again():
    async def main():
        server, port = await listening()
        (await meet(HOST, port, SECRET, 60)).close()
        nodes = []
        gathering = asyncio.create_task(_gather(server, 1, nodes))
        again = await meet(HOST, port, SECRET, 60)
        await again.send({"kind": "join", "ranks": 2})
        assert [join["ranks"] for join in await gathering] == [2] and len(nodes) == 1

    asyncio.run(main())


def test_a_stranger_that_is_gone_at_once_leaves_no_trace(capfd):
    async def main():
        server, port = await listening()
        for _ in range(20):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.transport.abort()
        (await meet(HOST, port, SECRET, 60)).close()
        server.close()

    asyncio.run(main(), debug=True)
    assert "never retrieved" not in capfd.readouterr().err
