"""The ranks of one node: child processes, their output, their end."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from .._keeper import end_with_parent
from .output import Output, outputs
from .processes import end_of, reader_of

# How long a rank may take to end after SIGTERM before it is killed.
GRACE_SECONDS = 10.0
# How long a pipe may stay open, by a grandchild, after its rank has ended.
PIPE_SECONDS = 1.0
_LINE_BYTES = 1 << 16


class Job(NamedTuple):
    """What this node's ranks need to know. `first_rank`: of this node. `master`: host and port
    where PyTorch's ranks meet."""

    command: list[str]
    local_size: int
    first_rank: int
    size: int
    node: int
    socket: str
    id_file: pathlib.Path
    run: str
    master: tuple[str, int]

    def environment(self, local_rank: int) -> Mapping[str, str]:
        """Tern's variables and those that programs for torchrun look for."""
        rank = str(self.first_rank + local_rank)
        own = {"TERN_RANK": rank, "TERN_SIZE": str(self.size), "TERN_RUN": self.run,
               "TERN_LOCAL_RANK": str(local_rank), "TERN_LOCAL_SIZE": str(self.local_size),
               "TERN_NODE": str(self.node), "TERN_SOCKET": self.socket,
               "TERN_GROUP_ID_FILE": str(self.id_file), "RANK": rank,
               "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(local_rank),
               "LOCAL_WORLD_SIZE": str(self.local_size), "GROUP_RANK": str(self.node)}
        host, port = self.master
        unless_set = {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
        if self.local_size > 1:
            # As torchrun has it: threads of each rank for all cores would be in each other's way.
            unless_set["OMP_NUM_THREADS"] = "1"
        return {**unless_set, **os.environ, "PYTHONUNBUFFERED": "1", **own}


def exit_status(returncode: int) -> int:
    """As a shell has it: 128 and the signal for a process that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


class Ranks:
    """Runs them all. The first that fails ends the others; wait() tells its exit status."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ends: list[asyncio.Task[int]] = []
        self._copies: list[asyncio.Task[None]] = []  # of what they say, and of what is said of them

    async def start(self) -> None:
        for local_rank in range(self._job.local_size):
            process = subprocess.Popen(
                self._job.command, env=self._job.environment(local_rank),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, preexec_fn=end_with_parent)
            self._processes.append(process)
            self._ends.append(asyncio.create_task(end_of(process)))
            prefix = f"[rank{self._job.first_rank + local_rank}]: ".encode()
            for pipe, to in zip((process.stdout, process.stderr), outputs()):
                lines = await reader_of(pipe, _LINE_BYTES)
                self._copies.append(asyncio.create_task(_copy(lines, prefix, to)))

    def send(self, number: int) -> None:
        """Sends a signal to every rank that has not ended, and to what the rank has started."""
        for process in self._processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass

    async def wait(self) -> int:
        """Returns when all have ended well, or one has not: with its status, and a line that names
        it. end() then ends the others."""
        pending = set(self._ends)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                if end.result() != 0:
                    rank = self._job.first_rank + self._ends.index(end)
                    # The others do not wait for who reads this.
                    self._copies.append(asyncio.create_task(outputs().err.say(
                        f"tern run: rank {rank} {_ending(end.result())}; the other ranks are "
                        "ended")))
                    return exit_status(end.result())
        return 0

    async def all_ended(self, timeout: float | None) -> None:
        """Returns when they have, or after the timeout, in seconds."""
        if self._ends:
            await asyncio.wait(self._ends, timeout=timeout)

    async def end(self, patient: bool) -> None:
        """Ends what still runs, politely, then by force, and passes on what all have said, as fast
        as somebody reads it. Not `patient`, or cancelled: by force at once, and what nobody reads
        is lost."""
        try:
            if patient:
                self.send(signal.SIGTERM)
                await self.all_ended(GRACE_SECONDS)
        except asyncio.CancelledError:
            patient = False
            raise
        finally:
            self.send(signal.SIGKILL)
            await self.all_ended(None)
            await self._all_copied(patient)

    async def _all_copied(self, patient: bool) -> None:
        pending = set(self._copies)
        while pending:
            done, pending = await asyncio.wait(pending, timeout=PIPE_SECONDS,
                                               return_when=asyncio.FIRST_COMPLETED)
            if not done and not (patient and any(to.writes() for to in outputs())):
                return


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:  # most real-time signals have no name
        return f"was ended by signal {-returncode}"


async def _copy(lines: asyncio.StreamReader, prefix: bytes, to: Output) -> None:
    """Passes lines on, each with its rank before it. A longer line than the limit is cut in two."""
    while True:
        try:
            line = await lines.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            line = await lines.read(_LINE_BYTES)
        except asyncio.IncompleteReadError as rest:
            line = rest.partial
        if not line:
            return
        await to.write(prefix + line + (b"" if line.endswith(b"\n") else b"\n"))
