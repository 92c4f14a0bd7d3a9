"""Jobs of `tern run`, as a user types it, in a runtime folder of the test's."""

import os
import pathlib
import socket
import subprocess
import sys

import tern

PACKAGE = pathlib.Path(tern.__file__).parent.parent
SECRET = "a secret of the test's own"

_held = []

PROGRAM = """
import os, signal, sys, numpy, tern
assert "TERN_JOB_SECRET" not in os.environ
what = sys.argv[1] if len(sys.argv) > 1 else ""
with tern.init() as group:
    x = numpy.full(1000, group.rank + 1.0)
    group.all_reduce(x).wait()
    print(f"rank {group.rank} of {group.size} on node {group.info().node} has {x[0]:g}")
    try:
        group.barrier().wait()
    except tern.GroupLeftError:
        # Rank 1 has failed before this one heard that all have come.
        raise SystemExit(0)
    if what == "fails" and group.rank == 1:
        sys.stderr.write("it fails")
        sys.stderr.flush()
        os._exit(7)
    if what == "stubborn" and group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what in ("fails", "stubborn", "waits"):
        try:
            print("waits")
            if group.rank == 0:
                group.all_reduce(x).wait()
            signal.pause()
        except (KeyboardInterrupt, tern.GroupLeftError):
            # Rank 1 leaves when it is interrupted, which rank 0 may hear of first.
            print("interrupted")
            raise SystemExit(0)
"""


# As programs of PyTorch do: rank 0 listens, and the others come.
MEETS = """
import os, socket
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            server.accept()[0].close()
else:
    while True:
        try:
            socket.create_connection(place).close()
            break
        except ConnectionRefusedError:
            pass
print(*place)
"""


class Job:
    def __init__(self, folder):
        self.folder = folder

    def start(self, *words, secret=None, launcher=("-m", "tern"), programs=None, **more):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "TERN_IDLE_SECONDS": "0",
                       "PYTHONPATH": str(PACKAGE)}
        environment.pop("TERN_SOCKET", None)
        if secret:
            environment["TERN_JOB_SECRET"] = secret
        if programs:
            environment["TERN_PROGRAMS"] = programs
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, *launcher, "run", *words], text=True,
                                env=environment, cwd=self.folder, **{**streams, **more})

    def launcher(self, change):
        """One in which `change` is made before it runs."""
        (self.folder / "launcher.py").write_text(
            "import sys, tern._run.job as job, tern._run.ranks as ranks\n"
            f"from tern.__main__ import main\n{change}\nsys.exit(main())\n")
        return ["launcher.py"]

    def nodes(self, count, *words, secrets=None):
        rendezvous = f"127.0.0.1:{free_port()}"
        return [self.start("--nnodes", str(count), "--rdzv", rendezvous, *words,
                           secret=secrets[node] if secrets else SECRET) for node in range(count)]


def free_port():
    """One on which nobody else will listen while the tests run: it stays bound, in the way that
    lets a rendezvous listen on it too."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return holder.getsockname()[1]


def listens(port):
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()
    return any(f":{port:04X} 00000000:0000 0A" in line for line in lines)


def until(stream, text):
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"no line with {text}")
