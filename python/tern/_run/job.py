"""A job from its start to its exit status, on one node or as one node of several."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, NamedTuple

from ..errors import LaunchError
from ..launched import write_private
from .coordination import Meeting, attend, identity, report_ready, take_place, told
from .place import held_port, job_daemon, private_folder, shared_daemon
from .ranks import GRACE_SECONDS, Job, Ranks, exit_status
from .rendezvous import expect
from .sealed import Sealed
from .stopping import Stop, until_told


class Options(NamedTuple):
    """Of the command line. `meeting`: None on one node."""

    command: list[str]
    nproc: int
    meeting: Meeting | None


async def first(*waits: Any) -> int:
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


async def _end_by(number: int, ranks: Ranks) -> int:
    """Passes a signal on and gives the ranks time to end by it; the exit status that follows."""
    ranks.send(number)
    await ranks.all_ended(GRACE_SECONDS)
    return exit_status(-number)


async def _start(ranks: Ranks) -> None:
    try:
        await ranks.start()
    except OSError as error:
        raise LaunchError(f"the program cannot be started: {error}") from error


async def _run_ranks(job: Job, stop: Stop, *ends: Any) -> int:
    """Runs this node's ranks until they have ended, a signal has come, or one of `ends` has."""
    ranks, patient = Ranks(job), True
    with stop.in_own_way():
        try:
            await _start(ranks)
            status = await first(asyncio.shield(stop.signal), *ends, ranks.wait())
            if status < 0:
                status = await _end_by(-status, ranks)
        except asyncio.CancelledError:
            # By a second signal: the ranks have had their time.
            patient = False
            raise
        finally:
            await ranks.end(patient)
        # One that has come since, while what the ranks had said was passed on, counts too.
        return status or (exit_status(stop.signal.result()) if stop.signal.done() else 0)


async def run(options: Options) -> int:
    """This node's part of a job, until its ranks have ended or a signal has come. Returns the exit
    status. Raises LaunchError."""
    on_nodes = _run_on_one_node if options.meeting is None else _run_on_nodes
    return await until_told(lambda stop: on_nodes(options, stop))


async def _run_on_one_node(options: Options, stop: Stop) -> int:
    with private_folder() as folder, shared_daemon() as client, held_port() as port:
        write_private(folder / "group", client.mint())
        return await _run_ranks(Job(
            options.command, options.nproc, 0, options.nproc, 0, client.socket, folder / "group",
            folder.name, ("127.0.0.1", port)), stop)


def words_of(command: list[str]) -> list[str]:
    """What is the same on all nodes: the interpreter may lie elsewhere on each."""
    return command[1:] if command[0] == sys.executable else command


async def _run_on_nodes(options: Options, stop: Stop) -> int:
    assert options.meeting is not None
    meeting = options.meeting._replace(job=identity("run", words_of(options.command)))
    return await attend(meeting,
                        lambda node, serves: _take_part(node, options, meeting, serves, stop))


async def _take_part(node: Sealed, options: Options, meeting: Meeting, serves: bool,
                     stop: Stop) -> int:
    place = await take_place(node, meeting, options.nproc, serves)
    with private_folder() as folder, job_daemon(
            folder, node.local_address, place["cluster_key"]) as client:
        group_id = await report_ready(node, meeting, client.mint() if place["node"] == 0 else "")
        write_private(folder / "group", group_id)
        end = asyncio.create_task(expect(node, "end"))
        status = await _run_ranks(
            Job(options.command, options.nproc, place["first_rank"], place["size"], place["node"],
                client.socket, folder / "group", place["run"],
                (meeting.host, place["master_port"])), stop, told(end))
        if end.done():
            return status
        await node.send({"kind": "ended", "status": status})
        # The daemon of another node may still need this one's.
        job_status = await told(end)
        return status or job_status
