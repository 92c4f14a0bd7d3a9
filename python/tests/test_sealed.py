import asyncio

import pytest

from tern._run.sealed import Sealed, Stranger, _Direction, as_client, as_server

SECRET = b"a secret of the test's own"


async def streams():
    """Both ends of one connection on this machine: (reader, writer) of each."""
    ready = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda *ends: ready.set_result(ends), "127.0.0.1", 0)
    client = await asyncio.open_connection(*server.sockets[0].getsockname())
    server.close()
    return client, await ready


async def pair(client_secret=SECRET, server_secret=SECRET):
    client, server = await streams()
    return await asyncio.gather(as_client(*client, client_secret),
                                as_server(*server, server_secret), return_exceptions=True)


def test_messages_arrive_in_both_directions_and_the_wire_does_not_show_them():
    async def main():
        client, server = await pair()
        for number in range(3):
            await client.send({"number": number})
            await server.send({"answer": "x" * 1000 * number})
            assert await server.receive() == {"number": number}
            assert await client.receive() == {"answer": "x" * 1000 * number}
        assert client.local_address == "127.0.0.1"

    asyncio.run(main())
    sealed = _Direction(bytes(32), bytes(32)).seal(b"cluster key")
    assert b"cluster" not in sealed


def test_a_side_with_another_secret_is_a_stranger_to_the_other():
    async def main():
        client, server = await streams()
        serving = asyncio.create_task(as_server(*server, SECRET))
        with pytest.raises(Stranger):
            await as_client(*client, SECRET + b"!")
        client[1].close()
        with pytest.raises((Stranger, EOFError)):
            await serving

    asyncio.run(main())


def test_an_echo_of_the_servers_own_bytes_proves_nothing():
    async def main():
        (reader, writer), server = await streams()
        serving = asyncio.create_task(as_server(*server, SECRET))
        writer.write(b"tern rendezvous 1\n" + bytes(32))
        await reader.readexactly(32)
        writer.write(await reader.readexactly(32))
        with pytest.raises(Stranger):
            await serving

    asyncio.run(main())


@pytest.mark.parametrize("change", ["flip", "repeat", "swap", "turn"])
def test_a_record_that_is_changed_is_refused(change):
    def direction(sender):
        return _Direction(sender * 32, sender.upper() * 32)

    sender = direction(b"a")
    first, second = sender.seal(b"first"), sender.seal(b"other")
    arrive = {"flip": [first[:-33] + bytes([first[-33] ^ 1]) + first[-32:]],
              "repeat": [first, first], "swap": [second, first],
              "turn": [direction(b"b").seal(b"first")]}[change]

    async def main():
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(arrive))
        receiver = Sealed(reader, None, direction(b"a"), _Opens(direction(b"a")))
        for _ in arrive:
            await receiver.receive()

    with pytest.raises(Stranger):
        asyncio.run(main())


class _Opens:
    """Gives JSON for any text that opens."""

    def __init__(self, direction):
        self._direction = direction

    def open(self, *record):
        self._direction.open(*record)
        return b"{}"


def test_a_record_without_bound_is_refused_before_it_is_read():
    async def main():
        reader = asyncio.StreamReader()
        reader.feed_data(b"\xff\xff\xff\xff")
        await Sealed(reader, None, None, None).receive()

    with pytest.raises(Stranger, match="bytes"):
        asyncio.run(main())
