"""The nodes of a job from their first message to their last: what the serving node does for all,
and what every node does alike. The messages are those of tern._run.rendezvous."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ..errors import LaunchError, TernError
from .output import outputs
from .place import held_port
from .ranks import GRACE_SECONDS
from .rendezvous import NodeLostError, Server, expect, meet
from .sealed import Sealed

_REMEDY = ("Give each job a port of its own in --rdzv. The nodes of one job are started by the "
           "same line, or with the same TERN_JOB")
# For one that comes too late to say who it is.
_LATE_SECONDS = 5.0


class Meeting(NamedTuple):
    """Where so many nodes meet, and by which secret. `node_rank`: place of this node after the one
    that serves, -1 by order of arrival. `timeout`: seconds that nodes wait for each other. `job`:
    of identity(), the same on all nodes of a job."""

    nnodes: int
    host: str
    port: int
    secret: bytes
    node_rank: int
    timeout: float
    job: str = ""


def identity(verb: str, words: Sequence[str] = ()) -> str:
    """By which the nodes of a job know each other, where two jobs with one secret have come to one
    rendezvous: a digest of the verb of `tern`, and of $TERN_JOB, else of the words that are the
    same on all nodes."""
    job = os.environ.get("TERN_JOB")
    known_by = [verb, "TERN_JOB", job] if job else [verb, "words", *words]
    return hashlib.sha256(json.dumps(known_by).encode()).hexdigest()


async def attend(meeting: Meeting, take_part: Callable[[Sealed, bool], Awaitable[int]]) -> int:
    """Runs this node's part: take_part(connection to the serving node, whether this node serves),
    which returns an exit status. The node that can listen at the rendezvous serves it, and then
    joins as the others do."""
    server = Server(meeting.secret)
    serves = await server.listen(meeting.host, meeting.port)
    coordination = asyncio.create_task(_coordinate(server, meeting)) if serves else None
    try:
        node = await meet(meeting.host, meeting.port, meeting.secret, meeting.timeout)
        try:
            return await take_part(node, serves)
        except TernError as error:
            with contextlib.suppress(OSError):
                await node.send({"kind": "ended", "status": 1, "reason": str(error)})
            raise
        except BaseException:
            # By a signal: others hear that this node is gone.
            if coordination is not None:
                coordination.cancel()
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


async def take_place(node: Sealed, meeting: Meeting, ranks: int, serves: bool) -> dict[str, Any]:
    """Comes with so many ranks; this node's place, once all nodes have come."""
    await node.send({"kind": "join", "ranks": ranks, "serves": serves, "node": meeting.node_rank,
                     "nnodes": meeting.nnodes, "job": meeting.job})
    return await _with_timeout(expect(node, "place"), meeting)


async def report_ready(node: Sealed, meeting: Meeting, group_id: str) -> str:
    """Says that this node's daemon serves; the id that the first node has given, once all do."""
    await node.send({"kind": "ready", "group": group_id})
    text: str = (await _with_timeout(expect(node, "group"), meeting))["id"]
    return text


async def _with_timeout(message: Any, meeting: Meeting) -> dict[str, Any]:
    """The serving node says when the time is over; this is for one that says nothing more."""
    try:
        got: dict[str, Any] = await asyncio.wait_for(message, meeting.timeout + GRACE_SECONDS)
        return got
    except asyncio.TimeoutError:
        raise LaunchError(f"the node at {meeting.host}:{meeting.port} is silent") from None


async def told(end: asyncio.Task[dict[str, Any]]) -> int:
    """The status with which the job has ended on all nodes; says why, if there is a reason."""
    message = await asyncio.shield(end)
    if message.get("reason"):
        await outputs().err.say(f"tern: {message['reason']}")
    return int(message["status"])


async def _coordinate(server: Server, meeting: Meeting) -> None:
    """What the serving node does for all. Whatever goes wrong ends the job on every node."""
    nodes: list[Sealed] = []
    try:
        status, reason = await _lead(server, meeting, nodes)
    except LaunchError as error:
        status, reason = 1, str(error)
    # Before any node hears of the end: it may come here again at once, with the next job.
    server.close()
    for node in nodes:
        with contextlib.suppress(OSError):
            await node.send({"kind": "end", "status": status, "reason": reason})
    for node in nodes:
        node.close()


async def _gather(server: Server, meeting: Meeting, nodes: list[Sealed]) -> list[dict[str, Any]]:
    """Takes in the nodes of the job; what each has said. Others are told that they are none."""
    joins: list[dict[str, Any]] = []
    while len(nodes) < meeting.nnodes:
        node = await server.nodes.get()
        try:
            join = await expect(node, "join")
        except NodeLostError:
            node.close()  # it may come again, or has given up
            continue
        other = _misfit(join, meeting)
        if other:
            await _refuse(node, f"{other}. {_REMEDY}")
        else:
            joins.append(join)
            nodes.append(node)
    return joins


def _misfit(join: dict[str, Any], meeting: Meeting) -> str:
    """What says that a node is of another job; empty if nothing does."""
    place = f"the rendezvous at {meeting.host}:{meeting.port} is that of another job"
    if join.get("job") != meeting.job:
        return f"{place}, which has another command or another TERN_JOB"
    if join.get("nnodes") != meeting.nnodes:
        return (f"{place}, or --nnodes is not the same on all nodes: it is {meeting.nnodes} there, "
                f"and {join.get('nnodes')} here")
    return ""


async def _refuse(node: Sealed, reason: str) -> None:
    with contextlib.suppress(OSError):
        await node.send({"kind": "refused", "reason": reason})
    node.close()


@contextlib.asynccontextmanager
async def _others_refused(server: Server, meeting: Meeting) -> AsyncIterator[None]:
    """While the block runs, nodes that come to the job, which is complete, are told so."""
    refusing = asyncio.create_task(_refuse_all(server, meeting))
    try:
        yield
    finally:
        refusing.cancel()
        await asyncio.gather(refusing, return_exceptions=True)


async def _refuse_all(server: Server, meeting: Meeting) -> None:
    while True:
        node = await server.nodes.get()
        # Read first: a connection that is closed with something unread loses the answer too.
        join = await _join_of(node)
        if join is None:
            node.close()
        else:
            other = _misfit(join, meeting)
            await _refuse(node, f"{other or _complete(meeting)}. {_REMEDY}")


async def _join_of(node: Sealed) -> dict[str, Any] | None:
    """Of one that comes late; None if it says nothing. Until Python 3.12 wait_for() forgets that it
    is cancelled where a message has just come."""
    reading = asyncio.ensure_future(expect(node, "join"))
    try:
        await asyncio.wait({reading}, timeout=_LATE_SECONDS)
        return None if not reading.done() or reading.exception() else reading.result()
    finally:
        reading.cancel()


def _complete(meeting: Meeting) -> str:
    return (f"the job at {meeting.host}:{meeting.port} is complete: all of its {meeting.nnodes} "
            "nodes have come before this one, so two jobs meet there, or one node was started "
            "twice")


async def _lead(server: Server, meeting: Meeting, nodes: list[Sealed]) -> tuple[int, str]:
    count = meeting.nnodes
    try:
        joins = await asyncio.wait_for(_gather(server, meeting, nodes), meeting.timeout)
    except asyncio.TimeoutError:
        raise LaunchError(f"{len(nodes)} of {count} nodes have come within {meeting.timeout:g} s; "
                          "start the job on all of them, or give --timeout a longer time") from None
    async with _others_refused(server, meeting):
        with held_port() as port:
            return await _run_job(nodes, joins, port)


async def _run_job(nodes: list[Sealed], joins: list[dict[str, Any]],
                   master_port: int) -> tuple[int, str]:
    """From the places of all nodes to the status and reason of the end."""
    count = len(nodes)
    # The serving node is the first; others by the place they want, else as they have come.
    order = sorted(range(count), key=lambda i: (
        not joins[i]["serves"], joins[i]["node"] if joins[i]["node"] >= 0 else count))
    nodes[:], joins = [nodes[i] for i in order], [joins[i] for i in order]
    size = sum(join["ranks"] for join in joins)
    cluster_key, run, first_rank = secrets.token_hex(32), secrets.token_hex(8), 0
    for index, (node, join) in enumerate(zip(nodes, joins)):
        await node.send({"kind": "place", "node": index, "first_rank": first_rank, "size": size,
                         "cluster_key": cluster_key, "run": run, "master_port": master_port})
        first_rank += join["ranks"]
    ready = [await expect(node, "ready") for node in nodes]
    for node in nodes:
        await node.send({"kind": "group", "id": ready[0]["group"]})
    return await _until_the_end(nodes)


async def _until_the_end(nodes: list[Sealed]) -> tuple[int, str]:
    """Status and reason of the job: those of the first node that fails or ends it for all, else
    0."""
    ends = {asyncio.create_task(expect(node, "ended")): i for i, node in enumerate(nodes)}
    pending = set(ends)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                message = task.result()
                status = int(message["status"])
                if status != 0 or message.get("all"):
                    return status, (message.get("reason") or
                                    f"a rank of node {ends[task]} has failed; the job is ended")
        return 0, ""
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
