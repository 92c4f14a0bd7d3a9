#!/usr/bin/python3
"""Stops one thread of a process, as a hang would, until this program or that process ends.

    hold_thread.py PID NAME

A signal stops whole processes, so this attaches as a debugger does. Prints `held` when the thread stands.
"""

import ctypes
import os
import pathlib
import sys

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000  # __WALL: threads are children too


def thread_named(pid, name):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text(encoding="utf-8").strip() == name:
            return int(task.name)
    sys.exit(f"process {pid} has no thread {name}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    thread = thread_named(int(sys.argv[1]), sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, thread, None, None) != 0:
            sys.exit(f"thread {thread}: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, WALL)
    print("held", flush=True)
    # Whatever comes is its end: nothing is passed on to a thread that hangs.
    while True:
        _, status = os.waitpid(thread, WALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main()
