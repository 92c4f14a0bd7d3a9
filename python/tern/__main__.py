"""The command `tern`, which is `python -m tern` too."""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import sys

from ._run.job import Options, run_on_nodes, run_on_one_node
from ._run.sealed import MIN_SECRET_BYTES
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
    run.add_argument("--nnodes", type=int, default=1, metavar="N", help="nodes of the job (1)")
    run.add_argument("--rdzv", metavar="HOST:PORT",
                     help="where nodes meet: an address of one of them, the same on all")
    run.add_argument("--secret-file", type=pathlib.Path, metavar="FILE",
                     help=f"what the nodes prove to each other, at least {MIN_SECRET_BYTES} bytes; "
                          f"else ${_SECRET}")
    run.add_argument("--node-rank", type=int, default=-1, metavar="N",
                     help="place of this node after the one that serves (order of arrival)")
    run.add_argument("--timeout", type=float, default=_DEFAULT_TIMEOUT_S, metavar="SECONDS",
                     help="how long nodes wait for each other (300)")
    run.add_argument("program", help="a Python file (.py), or any program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    return parser


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


def _options(arguments: argparse.Namespace) -> Options:
    if arguments.nproc < 1 or arguments.nnodes < 1:
        raise LaunchError("--nproc and --nnodes must be 1 or more")
    host, port, secret = "", 0, b""
    if arguments.nnodes > 1:
        host, _, number = (arguments.rdzv or "").rpartition(":")
        if not host or not number.isdigit() or not 0 < int(number) < 1 << 16:
            raise LaunchError("several nodes need --rdzv HOST:PORT, an address of one of them and "
                              "a port that is free there")
        host, port, secret = host.strip("[]"), int(number), _secret(arguments.secret_file)
    python = [sys.executable] if arguments.program.endswith(".py") else []
    return Options([*python, arguments.program, *arguments.arguments], arguments.nproc,
                   arguments.nnodes, host, port, secret, arguments.node_rank, arguments.timeout)


def main() -> int:
    """The command line. Returns the exit status: of the first rank that failed, 128 and the number
    of a signal, or 1 if the job could not be started."""
    try:
        options = _options(_parser().parse_args())
        run = run_on_nodes if options.nnodes > 1 else run_on_one_node
        return asyncio.run(run(options))
    except TernError as error:
        print(f"tern run: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
