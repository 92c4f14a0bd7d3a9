"""Child processes of the launcher, whose ends the loop is told by the kernel.

Not asyncio's own: up to Python 3.12 the end of one of those is only told once its output has been
read, and its threads wait for children while more are forked.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import IO

# Where the system tells of no process's end: a kernel before 5.3, a sandbox, an interpreter that
# was built on an older system.
_POLL_SECONDS = 0.05


async def end_of(process: subprocess.Popen[bytes]) -> int:
    """Returns its status, as `Popen.returncode` has it, when it has ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        number = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while (status := process.poll()) is None:
            await asyncio.sleep(_POLL_SECONDS)
        return status
    try:
        loop.add_reader(number, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(number)
        os.close(number)
    return process.wait()


async def reader_of(pipe: IO[bytes] | None, limit: int) -> asyncio.StreamReader:
    """Reads a pipe of the process. `limit`: bytes of a line."""
    reader = asyncio.StreamReader(limit)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
