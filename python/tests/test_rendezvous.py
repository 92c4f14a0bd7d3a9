"""The place where nodes meet, among strangers: in one loop, without programs."""

import asyncio
import contextlib

import pytest

from tern._run import coordination, rendezvous
from tern._run.coordination import Meeting, _coordinate, _gather, take_place
from tern._run.rendezvous import _MAX_STRANGERS, Server, expect, meet
from tern._run.sealed import MAGIC, _Keys, as_client, as_server
from tern.errors import LaunchError

HOST, SECRET = "127.0.0.1", b"a secret of the test's own"
# Of one node. Whoever is not answered at once waits for ever.
MEETING = Meeting(1, HOST, 0, SECRET, -1, 1e9, "the job")


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
        gathering = asyncio.create_task(_gather(server, MEETING, nodes))
        again = await meet(HOST, port, SECRET, 60)
        coming = asyncio.create_task(take_place(again, MEETING, 2, False))
        assert [join["ranks"] for join in await gathering] == [2] and len(nodes) == 1
        coming.cancel()
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("other, sentence", [
    ({"job": "another"}, "has another command"), ({"nnodes": 2}, "it is 1 there, and 2 here")])
def test_a_node_of_another_job_is_refused_at_once(other, sentence):
    async def main():
        server, port = await listening()
        nodes = []
        gathering = asyncio.create_task(_gather(server, MEETING, nodes))
        with pytest.raises(LaunchError, match=f"{sentence}.*Give each job a port of its own"):
            await take_place(await meet(HOST, port, SECRET, 60), MEETING._replace(**other), 1,
                             False)
        assert not nodes and not gathering.done()
        own = asyncio.create_task(
            take_place(await meet(HOST, port, SECRET, 60), MEETING, 1, False))
        assert len(await gathering) == len(nodes) == 1
        own.cancel()
        server.close()

    asyncio.run(main())


def test_nodes_too_many_are_told_at_once_that_the_job_is_complete():
    """Those that had proved the secret by then, and those that come while the job runs. Once a node
    hears of the end, the next job may have the port."""
    async def main():
        server, port = await listening()
        node, early = [await meet(HOST, port, SECRET, 60) for _ in range(2)]
        coordinating = asyncio.create_task(_coordinate(server, MEETING))
        await take_place(node, MEETING, 1, True)
        late = await meet(HOST, port, SECRET, 60)
        for surplus in (early, late):
            with pytest.raises(LaunchError, match="is complete: all of its 1 nodes .*--rdzv"):
                await take_place(surplus, MEETING, 1, False)
        with pytest.raises(LaunchError, match="has another command"):
            await take_place(await meet(HOST, port, SECRET, 60), MEETING._replace(job="another"),
                             1, False)
        await node.send({"kind": "ready", "group": "id"})
        await expect(node, "group")
        await node.send({"kind": "ended", "status": 0})
        assert (await expect(node, "end"))["status"] == 0
        following = Server(SECRET)
        assert await following.listen(HOST, port)
        await coordinating
        following.close()

    asyncio.run(main())


def test_a_node_that_says_nothing_does_not_keep_others_from_their_answer(monkeypatch):
    monkeypatch.setattr(coordination, "_LATE_SECONDS", 0.1)

    async def main():
        server, port = await listening()
        node, silent, surplus = [await meet(HOST, port, SECRET, 60) for _ in range(3)]
        coordinating = asyncio.create_task(_coordinate(server, MEETING))
        await take_place(node, MEETING, 1, True)
        with pytest.raises(LaunchError, match="is complete"):
            await take_place(surplus, MEETING, 1, False)
        node.close()
        await coordinating
        silent.close()

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
