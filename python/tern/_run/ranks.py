"""The ranks of one node: child processes, their output, their end."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import sys
from collections.abc import Mapping
from typing import NamedTuple, TextIO

from .._keeper import end_with_parent
from .output import drop, say, write

# How long a rank may take to end after SIGTERM before it is killed.
GRACE_SECONDS = 10.0
_LINE_BYTES = 1 << 16


class Job(NamedTuple):
    """What this node's ranks need to know. `first_rank`: of this node."""

    command: list[str]
    local_size: int
    first_rank: int
    size: int
    node: int
    socket: str
    id_file: pathlib.Path
    run: str

    def environment(self, local_rank: int) -> Mapping[str, str]:
        """Tern's variables and those that programs for torchrun look for."""
        rank = str(self.first_rank + local_rank)
        own = {"TERN_RANK": rank, "TERN_SIZE": str(self.size), "TERN_RUN": self.run,
               "TERN_LOCAL_RANK": str(local_rank), "TERN_LOCAL_SIZE": str(self.local_size),
               "TERN_NODE": str(self.node), "TERN_SOCKET": self.socket,
               "TERN_GROUP_ID_FILE": str(self.id_file), "RANK": rank,
               "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(local_rank),
               "LOCAL_WORLD_SIZE": str(self.local_size), "GROUP_RANK": str(self.node)}
        # As torchrun has it: threads of each rank for all cores would be in each other's way.
        threads = {"OMP_NUM_THREADS": "1"} if self.local_size > 1 else {}
        return {**threads, **os.environ, "PYTHONUNBUFFERED": "1", **own}


def exit_status(returncode: int) -> int:
    """As a shell has it: 128 and the signal for a process that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


class Ranks:
    """Runs them all. The first that fails ends the others; wait() tells its exit status."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._processes: list[asyncio.subprocess.Process] = []
        self._output: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for local_rank in range(self._job.local_size):
            process = await asyncio.create_subprocess_exec(
                *self._job.command, env=self._job.environment(local_rank),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, limit=_LINE_BYTES, start_new_session=True,
                preexec_fn=end_with_parent)
            self._processes.append(process)
            prefix = f"[rank{self._job.first_rank + local_rank}]: ".encode()
            assert process.stdout is not None and process.stderr is not None
            for stream, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                self._output.append(asyncio.create_task(_copy(stream, prefix, to)))

    def send(self, number: int) -> None:
        """Sends a signal to every rank that has not ended, and to what the rank has started."""
        for process in self._processes:
            if process.returncode is None:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass

    async def wait(self) -> int:
        """Returns when all have ended well, or one has not: with its status, and a line that names
        it. end() then ends the others."""
        waits = {asyncio.create_task(process.wait()): rank
                 for rank, process in enumerate(self._processes, self._job.first_rank)}
        pending = set(waits)
        try:
            while pending:
                done, pending = await asyncio.wait(
                    pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.result() != 0:
                        say(f"tern run: rank {waits[task]} {_ending(task.result())}; the other "
                            "ranks are ended")
                        return exit_status(task.result())
            return 0
        finally:
            for task in pending:
                task.cancel()

    async def all_ended(self) -> None:
        await asyncio.gather(*(process.wait() for process in self._processes))

    async def end(self) -> None:
        """Ends what still runs, politely, then by force, and passes on what all have said. When it
        is cancelled, force comes at once."""
        self.send(signal.SIGTERM)
        ends = [asyncio.create_task(process.wait()) for process in self._processes]
        try:
            if ends:
                await asyncio.wait(ends, timeout=GRACE_SECONDS)
        finally:
            self.send(signal.SIGKILL)
            if ends:
                await asyncio.wait(ends)
            if self._output:
                # A grandchild may hold a pipe open for longer than the rank has lived.
                await asyncio.wait(self._output, timeout=1.0)


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with status {returncode}"


async def _copy(stream: asyncio.StreamReader, prefix: bytes, to: TextIO) -> None:
    """Passes lines on, each with its rank before it. A longer line than the limit is cut in two."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            line = await stream.read(_LINE_BYTES)
        except asyncio.IncompleteReadError as rest:
            line = rest.partial
        if not line:
            return
        try:
            write(to, prefix + line + (b"" if line.endswith(b"\n") else b"\n"))
        except OSError as error:
            _give_up(to, error)


def _give_up(to: TextIO, error: OSError) -> None:
    """Nobody reads what the ranks say any more, or a disk is full. The lines are read all the same,
    or the ranks would wait for that, and their ends would not be noticed."""
    drop(to)
    say(f"tern run: output of the ranks is lost from here on ({error}); the job goes on")
