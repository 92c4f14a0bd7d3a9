"""The command `tern`, which is `python -m tern` too."""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import signal
import sys

from ._library import program
from ._places import control_socket
from ._run.coordination import Meeting
from ._run.job import Options, run
from ._run.output import say
from ._run.sealed import MIN_SECRET_BYTES
from ._run.up import UpOptions, folder_of_socket, up, wait_until_up
from .errors import LaunchError, TernError

_SECRET = "TERN_JOB_SECRET"
_DEFAULT_TIMEOUT_S = 300.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tern", description="Tern for Python programs")
    commands = parser.add_subparsers(dest="verb", required=True)
    run = commands.add_parser(
        "run", help="start the ranks of a job",
        description="Starts N ranks of a program, on this node or on several. Each finds the "
                    "others by tern.init(). If a rank fails, the others are ended, and the exit "
                    "status is that of the rank.")
    run.add_argument("--nproc", type=int, default=1, metavar="N", help="ranks on this node (1)")
    _add_meeting(run)
    run.add_argument("program", help="a Python file (.py), or any program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    run.set_defaults(work=_run)
    up = commands.add_parser(
        "up", help="run a daemon for ranks that another launcher starts",
        description="Runs a daemon in the foreground until SIGTERM or SIGINT, for ranks of this "
                    "user that srun, mpirun or a shell starts. With --nnodes, one on each node, "
                    "linked by a key of their own; all end when one is told to. Prints a line for "
                    "a shell, export TERN_SOCKET=..., once ranks may start.")
    up.add_argument("--folder", type=pathlib.Path, metavar="FOLDER",
                    help="where its sockets are (that of $TERN_SOCKET, else where tern.connect() "
                         "looks)")
    up.add_argument("--idle", type=float, default=0.0, metavar="SECONDS",
                    help="end, too, when no program has been connected for so long (0: never)")
    up.add_argument("--wait", action="store_true",
                    help="start nothing; return when the daemon of another `tern up` serves")
    _add_meeting(up)
    up.set_defaults(work=_up)
    return parser


def _add_meeting(command: argparse.ArgumentParser) -> None:
    command.add_argument("--nnodes", type=int, default=1, metavar="N", help="nodes of the job (1)")
    command.add_argument("--rdzv", metavar="HOST:PORT",
                         help="where nodes meet: an address of one of them, the same on all")
    command.add_argument("--secret-file", type=pathlib.Path, metavar="FILE",
                         help="what the nodes prove to each other, at least "
                              f"{MIN_SECRET_BYTES} bytes; else ${_SECRET}")
    command.add_argument("--node-rank", type=int, default=-1, metavar="N",
                         help="place of this node after the one that serves (order of arrival)")
    command.add_argument("--timeout", type=float, default=_DEFAULT_TIMEOUT_S, metavar="SECONDS",
                         help="how long nodes wait for each other (300)")


def _secret(file: pathlib.Path | None) -> bytes:
    """The job's secret, which is taken out of the environment that ranks inherit."""
    text = os.environ.pop(_SECRET, "").encode()
    if file is not None:
        try:
            if file.stat().st_mode & 0o077:
                raise LaunchError(f"{file} can be read by other users; chmod 600 {file}")
            text = file.read_bytes()
        except OSError as error:
            raise LaunchError(f"the secret cannot be read: {error}") from error
    secret = text.strip()
    if len(secret) < MIN_SECRET_BYTES:
        what = f"a secret of {len(secret)} bytes is too short" if secret else "there is no secret"
        raise LaunchError(
            f"{what}, and without one anybody could join the job: write one by `ternctl pki "
            "new-key FILE`, bring it to all nodes by ssh or a shared folder, and pass "
            f"--secret-file FILE or set {_SECRET}")
    return secret


def _meeting(arguments: argparse.Namespace) -> Meeting | None:
    if arguments.nnodes < 1:
        raise LaunchError("--nnodes must be 1 or more")
    if arguments.nnodes == 1:
        return None
    host, _, number = (arguments.rdzv or "").rpartition(":")
    if not host or not number.isdigit() or not 0 < int(number) < 1 << 16:
        raise LaunchError("several nodes need --rdzv HOST:PORT, an address of one of them and "
                          "a port that is free there")
    return Meeting(arguments.nnodes, host.strip("[]"), int(number), _secret(arguments.secret_file),
                   arguments.node_rank, arguments.timeout)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.nproc < 1:
        raise LaunchError("--nproc must be 1 or more")
    python = [sys.executable] if arguments.program.endswith(".py") else []
    options = Options([*python, arguments.program, *arguments.arguments], arguments.nproc,
                      _meeting(arguments))
    return asyncio.run(run(options))


def _up(arguments: argparse.Namespace) -> int:
    folder = folder_of_socket(arguments.folder)
    if arguments.wait:
        wait_until_up(folder, arguments.timeout)
        return 0
    if arguments.idle < 0:
        raise LaunchError("--idle must be 0 or more")
    return asyncio.run(up(UpOptions(folder, arguments.idle, _meeting(arguments))))


def main() -> int:
    """The command line. Returns the exit status: of `tern run`, that of the first rank that failed,
    or 128 and the number of a signal; 1 if the job or the daemon could not be started."""
    arguments = _parser().parse_args()
    try:
        status: int = arguments.work(arguments)
        return status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except TernError as error:
        say(f"tern {arguments.verb}: {error}")
        return 1


def ternctl() -> None:
    """The command `ternctl` of the wheel: the program inside, about the daemon that connect()
    finds."""
    try:
        os.environ.setdefault("TERN_CONTROL_SOCKET", str(control_socket(None)))
        os.execv(program("ternctl"), ["ternctl", *sys.argv[1:]])
    except (TernError, OSError) as error:
        sys.exit(f"ternctl: {error}")


if __name__ == "__main__":
    sys.exit(main())
