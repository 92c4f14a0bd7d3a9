"""tern.init(): the group of a job, as whatever started its ranks tells of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

from . import _structs as structs
from ._durations import milliseconds
from ._places import runtime_folder
from .client import Client
from .connecting import connect
from .errors import (
    LaunchError,
    RankLostError,
    RankTakenError,
    UnknownGroupError,
    UnreachableError,
    WaitTimeoutError,
    WrongSizeError,
)
from .group import Group

ID_FILE = "TERN_GROUP_ID_FILE"
_FILE_ADVICE = "name a new file, in a folder that all ranks see and rank 0 can write to"
_POLL_SECONDS = 0.01
# How long a rank that has an id from a file waits before it reads the file again; twice as long
# each time, as long as the file has the same id. So it goes over to another soon, and joins anew
# only a few times: a daemon counts a rank's waiting from its last join, and logs each that ends.
_FIRST_JOIN_SECONDS = 1.0
# Between joins to a group that has lost a rank while it began.
_LOST_PAUSE_SECONDS = 0.5
_DEFAULT_TIMEOUT_S = 60.0


class Place(NamedTuple):
    """Where a process stands in its job. `run`: names the job on this node, "" if nothing does.
    `one_node`: all ranks are known to be on this node."""

    launcher: str
    rank: int
    size: int
    run: str
    one_node: bool


class _Launcher(NamedTuple):
    """The variables of a launcher, by what they say. Of `run` the first that is set counts."""

    name: str
    rank: str
    size: str
    local_size: str
    run: tuple[str, ...]


# mpirun inside a Slurm allocation inherits the batch script's SLURM_PROCID, so Slurm is asked last.
_LAUNCHERS = (
    _Launcher("tern run", "TERN_RANK", "TERN_SIZE", "TERN_LOCAL_SIZE", ("TERN_RUN",)),
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
              ("TORCHELASTIC_RUN_ID", "MASTER_PORT")),
    _Launcher("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    _Launcher("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_JOBID", "PMI_ID_STRING")),
    _Launcher("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE",
              ("SLURM_JOB_ID",)),
)


def place(environment: Mapping[str, str]) -> Place:
    """What the environment says of this process; alone, if no launcher has set anything. Raises
    LaunchError for numbers that make no sense."""
    for launcher in _LAUNCHERS:
        if launcher.rank not in environment or launcher.size not in environment:
            continue
        try:
            rank, size = int(environment[launcher.rank]), int(environment[launcher.size])
        except ValueError:
            rank, size = -1, 0
        if not 0 <= rank < size:
            raise LaunchError(f"{launcher.rank}={environment[launcher.rank]} is no rank of "
                              f"{launcher.size}={environment[launcher.size]}; start the program "
                              f"by {launcher.name}, or pass rank= and size=")
        run = next((environment[name] for name in launcher.run if environment.get(name)), "")
        # What tells one start of the same job from another.
        run += "".join("-" + environment[name] for name in
                       ("TORCHELASTIC_RESTART_COUNT", "MASTER_PORT", "SLURM_STEP_ID")
                       if environment.get(name))
        one_node = size == 1 or environment.get(launcher.local_size) == str(size)
        return Place(launcher.name, rank, size, run, one_node)
    return Place("", 0, 1, "", True)


def init(*, rank: int | None = None, size: int | None = None,
         id_file: str | os.PathLike[str] | None = None, client: Client | None = None,
         timeout: float | None = None, op_timeout: float | None = None, verify: bool = False,
         seed: int = 0) -> Group:
    """Joins the job's group: `with tern.init() as group:`.

    Rank and size come from `rank` and `size`, else from the variables of `tern run`, torchrun, Open
    MPI, PMI or Slurm, in this order; without any it is a group of one. Rank 0 mints the group's id
    and hands it over in a file that only this user can read: `id_file`, else
    $TERN_GROUP_ID_FILE, else one in the runtime folder where all ranks are on one node. For ranks
    on several nodes name a file that all of them see, a new one for each start. Rank 0 removes the
    file when all have joined or it gives up. Where a start that was killed has left its id there,
    ranks that have read it look for the new one at growing intervals, from a second on until a
    third to two thirds of `timeout` have passed. All ranks of the start before must have ended: one
    that lives may take a place in the new group.

    Without `client` the group has a client of its own by connect(), which ends with the group.
    `timeout`: seconds for all ranks to come; None: 60. `op_timeout`, `verify`, `seed`, and errors:
    as those of Client.join(), but RankTakenError and WrongSizeError may come only when the time has
    passed, for another id may come. LaunchError if the environment makes no sense or no file is
    known.
    """
    found = place(os.environ)
    if (rank is None) != (size is None):
        raise LaunchError("pass both rank= and size=, or none of them")
    if rank is not None and size is not None:
        found = Place("the program", rank, size, "", size == 1)
    own = connect() if client is None else client
    options = structs.sized(structs.JoinOptions)
    options.rank, options.size, options.verify, options.seed = (
        found.rank, found.size, verify, seed)
    options.op_timeout_ms = milliseconds(op_timeout)
    try:
        return _meet(own, found, id_file or os.environ.get(ID_FILE), options,
                     _DEFAULT_TIMEOUT_S if timeout is None else timeout, client is None)
    except BaseException:
        if client is None:
            own.disconnect()
        raise


def _meet(client: Client, found: Place, id_file: str | os.PathLike[str] | None,
          options: structs.JoinOptions, timeout: float, owns_client: bool) -> Group:
    deadline = time.monotonic() + timeout
    options.timeout_ms = milliseconds(timeout)
    if found.size == 1 and not id_file:
        return Group(client, client.mint(), options, owns_client)
    path = _id_file(found) if id_file is None else pathlib.Path(id_file)
    if found.launcher == "tern run" and os.fspath(path) == os.environ.get(ID_FILE):
        # It has minted the id and will remove the file.
        group_id = read_private(path, "", deadline)
        options.timeout_ms = milliseconds(max(0.0, deadline - time.monotonic()))
        return Group(client, group_id, options, owns_client)
    if found.rank != 0:
        return _join_by(path, client, options, deadline, owns_client)
    group_id = client.mint()
    try:
        write_private(path, group_id)
    except OSError as error:
        raise LaunchError(f"the group's id cannot be written to {path}: {error}; {_FILE_ADVICE}"
                          ) from error
    try:
        return _join_as_first(client, group_id, options, deadline, owns_client)
    finally:
        # Unless rank 0 of another start has put its own there meanwhile. If it does so between the
        # two calls its id is lost: two starts at a time need files of their own.
        with contextlib.suppress(OSError):
            if path.read_bytes() == group_id.encode():
                path.unlink()


def _join_as_first(client: Client, group_id: str, options: structs.JoinOptions, deadline: float,
                   owns_client: bool) -> Group:
    """The join of rank 0. Where a group begins with a join that another rank has just given up, to
    read the file again, all ranks' joins fail by RankLostError: all of them join once more."""
    while True:
        try:
            return Group(client, group_id, options, owns_client)
        except RankLostError:
            if time.monotonic() + _LOST_PAUSE_SECONDS >= deadline:
                raise
        time.sleep(_LOST_PAUSE_SECONDS)
        options.timeout_ms = milliseconds(max(0.0, deadline - time.monotonic()))


def _join_by(path: pathlib.Path, client: Client, options: structs.JoinOptions, deadline: float,
             owns_client: bool) -> Group:
    """Joins under the id in the file, or under the one that rank 0 puts in its place. An id of a
    start before this one is not known as such: its daemon may still wait for that start's ranks, or
    say that they have the places or are another number. So the file is read again between joins
    that each take a part of the time."""
    first = group_id = read_private(path, "", deadline)
    seconds = _FIRST_JOIN_SECONDS
    while True:
        now = time.monotonic()
        # A short last join could end before the coordinator has said who is missing.
        end = now + seconds if deadline - now >= 2 * seconds else deadline
        options.timeout_ms = milliseconds(max(0.0, end - now))
        try:
            return Group(client, group_id, options, owns_client)
        except (UnknownGroupError, UnreachableError, WaitTimeoutError, RankLostError,
                RankTakenError, WrongSizeError) as failure:
            if isinstance(failure, (RankTakenError, WrongSizeError)) and group_id != first:
                raise
            if isinstance(failure, RankLostError):
                # As rank 0 does, which waits for this one again.
                end = min(end, time.monotonic() + _LOST_PAUSE_SECONDS)
            try:
                group_id, seconds = read_private(path, group_id, end), _FIRST_JOIN_SECONDS
            except WaitTimeoutError:
                if time.monotonic() >= deadline:
                    raise failure from None
                seconds *= 2


def _id_file(found: Place) -> pathlib.Path:
    if not found.one_node or not found.run:
        raise LaunchError(
            f"{found.launcher} does not say where the ranks can meet: pass id_file=, or set "
            f"{ID_FILE}, a file that the nodes of all {found.size} ranks see and that is new for "
            "each start")
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in found.run)
    return runtime_folder() / f"group-{found.launcher.replace(' ', '-')}-{name}"


def write_private(path: pathlib.Path, text: str) -> None:
    """Puts the text into a file of mode 0600, which appears as a whole."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(fd, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        pathlib.Path(name).unlink(missing_ok=True)
        raise


def read_private(path: pathlib.Path, stale: str, deadline: float) -> str:
    """The text of the file as soon as it is there and not `stale`. Raises WaitTimeoutError, and
    LaunchError if it cannot be read or others than this user could have written it."""
    while True:
        try:
            with path.open(encoding="ascii") as file:
                owner = os.fstat(file.fileno()).st_uid
                text = file.read()
            if owner not in (os.getuid(), 0):
                raise LaunchError(f"{path} belongs to another user; name a file of your own")
            if text and text != stale:
                return text
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise LaunchError(f"the group's id cannot be read from {path}: {error}; {_FILE_ADVICE}"
                              ) from error
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(f"rank 0 has not written the group's id to {path}")
        time.sleep(_POLL_SECONDS)
