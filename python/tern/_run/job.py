"""A job from its start to its exit status, on one node or as one node of several."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from ..client import Client
from ..errors import LaunchError, TernError
from ..launched import write_private
from .place import job_daemon, private_folder, shared_daemon
from .ranks import GRACE_SECONDS, Job, Ranks, exit_status
from .rendezvous import Server, expect, meet
from .sealed import Sealed

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Options(NamedTuple):
    """Of the command line. `node_rank`: -1 by order of arrival."""

    command: list[str]
    nproc: int
    nnodes: int
    host: str
    port: int
    secret: bytes
    node_rank: int
    timeout: float


@contextlib.asynccontextmanager
async def _signals() -> AsyncIterator[asyncio.Queue[int]]:
    """The signals that this process gets, in place of their default."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _FORWARDED:
        loop.add_signal_handler(number, queue.put_nowait, int(number))
    try:
        yield queue
    finally:
        for number in _FORWARDED:
            loop.remove_signal_handler(number)


async def _first(*waits: Any) -> int:
    """The result of whichever ends first; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Of two that have ended at once, the first named counts.
        result: int = next(task for task in tasks if task in done).result()
        return result
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next_signal(signals: asyncio.Queue[int]) -> int:
    """Its number, negative: no exit status is."""
    return -await signals.get()


async def _end_by(number: int, ranks: Ranks) -> int:
    """Passes a signal on and gives the ranks time to end by it; the exit status that follows."""
    ranks.send(number)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(ranks.all_ended(), GRACE_SECONDS)
    return exit_status(-number)


async def _run_ranks(job: Job, *ends: Any) -> int:
    """Runs this node's ranks until they have ended, a signal has come, or one of `ends` has."""
    ranks = Ranks(job)
    async with _signals() as signals:
        try:
            await ranks.start()
            status = await _first(_next_signal(signals), *ends, ranks.wait())
            return status if status >= 0 else await _end_by(-status, ranks)
        except FileNotFoundError as error:
            raise LaunchError(f"the program cannot be started: {error}") from error
        finally:
            await ranks.end()


async def run_on_one_node(options: Options) -> int:
    with private_folder() as folder, shared_daemon() as client:
        write_private(folder / "group", client.mint())
        return await _run_ranks(Job(
            options.command, options.nproc, 0, options.nproc, 0, client.socket, folder / "group",
            folder.name))


async def run_on_nodes(options: Options) -> int:
    """This node's part. The node that can listen at the rendezvous serves it, and then joins as the
    others do."""
    server = Server(options.secret)
    serves = await server.listen(options.host, options.port)
    coordination = asyncio.create_task(_coordinate(server, options)) if serves else None
    try:
        node = await meet(options.host, options.port, options.secret, options.timeout)
        try:
            return await _take_part(node, options, serves)
        except TernError as error:
            with contextlib.suppress(OSError):
                await node.send({"kind": "ended", "status": 1, "reason": str(error)})
            raise
        finally:
            if coordination is not None:
                await asyncio.wait([coordination], timeout=GRACE_SECONDS)
            node.close()
    finally:
        if coordination is not None:
            coordination.cancel()
            await asyncio.gather(coordination, return_exceptions=True)
        server.close()


async def _take_part(node: Sealed, options: Options, serves: bool) -> int:
    await node.send({"kind": "join", "ranks": options.nproc, "serves": serves,
                     "node": options.node_rank})
    place = await _with_timeout(expect(node, "place"), options)
    with private_folder() as folder, job_daemon(
            folder, node.local_address, place["cluster_key"]) as client:
        await node.send({"kind": "ready", "group": _mint(client, place)})
        group = await _with_timeout(expect(node, "group"), options)
        write_private(folder / "group", group["id"])
        end = asyncio.create_task(expect(node, "end"))
        status = await _run_ranks(
            Job(options.command, options.nproc, place["first_rank"], place["size"], place["node"],
                client.socket, folder / "group", place["run"]), _told(end))
        if not end.done():
            await node.send({"kind": "ended", "status": status})
        # The daemon of another node may still need this one's.
        told = await _told(end)
        return status or told


def _mint(client: Client, place: dict[str, Any]) -> str:
    return client.mint() if place["node"] == 0 else ""


async def _with_timeout(message: Any, options: Options) -> dict[str, Any]:
    """The serving node says when the time is over; this is for one that says nothing more."""
    try:
        got: dict[str, Any] = await asyncio.wait_for(message, options.timeout + GRACE_SECONDS)
        return got
    except asyncio.TimeoutError:
        raise LaunchError(f"the node at {options.host}:{options.port} is silent") from None


async def _told(end: asyncio.Task[dict[str, Any]]) -> int:
    message = await asyncio.shield(end)
    if message.get("reason"):
        print(f"tern run: {message['reason']}", file=sys.stderr, flush=True)
    return int(message["status"])


async def _coordinate(server: Server, options: Options) -> None:
    """What the serving node does for all. Whatever goes wrong ends the job on every node."""
    nodes: list[Sealed] = []
    try:
        status, reason = await _lead(server, options, nodes)
    except LaunchError as error:
        status, reason = 1, str(error)
    for node in nodes:
        with contextlib.suppress(OSError):
            await node.send({"kind": "end", "status": status, "reason": reason})
    for node in nodes:
        node.close()


async def _gather(server: Server, count: int, nodes: list[Sealed]) -> list[dict[str, Any]]:
    """Takes in so many nodes; what each has said."""
    joins: list[dict[str, Any]] = []
    while len(nodes) < count:
        node = await server.nodes.get()
        nodes.append(node)
        joins.append(await expect(node, "join"))
    server.close()
    return joins


async def _lead(server: Server, options: Options, nodes: list[Sealed]) -> tuple[int, str]:
    count = options.nnodes
    try:
        joins = await asyncio.wait_for(_gather(server, count, nodes), options.timeout)
    except asyncio.TimeoutError:
        raise LaunchError(f"{len(nodes)} of {count} nodes have come within {options.timeout:g} s; "
                          "start the job on all of them, or give --timeout a longer time") from None
    # The serving node is the first; others by the place they want, else as they have come.
    order = sorted(range(count), key=lambda i: (
        not joins[i]["serves"], joins[i]["node"] if joins[i]["node"] >= 0 else count))
    nodes[:], joins = [nodes[i] for i in order], [joins[i] for i in order]
    size = sum(join["ranks"] for join in joins)
    cluster_key, run, first_rank = secrets.token_hex(32), secrets.token_hex(8), 0
    for index, (node, join) in enumerate(zip(nodes, joins)):
        await node.send({"kind": "place", "node": index, "first_rank": first_rank, "size": size,
                         "cluster_key": cluster_key, "run": run})
        first_rank += join["ranks"]
    ready = [await expect(node, "ready") for node in nodes]
    for node in nodes:
        await node.send({"kind": "group", "id": ready[0]["group"]})
    return await _until_the_end(nodes)


async def _until_the_end(nodes: list[Sealed]) -> tuple[int, str]:
    """Status and reason of the job: those of the first node that fails, else 0."""
    ends = {asyncio.create_task(expect(node, "ended")): i for i, node in enumerate(nodes)}
    pending = set(ends)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                status = int(task.result()["status"])
                if status != 0:
                    return status, f"a rank of node {ends[task]} has failed; the job is ended"
        return 0, ""
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
