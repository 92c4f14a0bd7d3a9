#!/usr/bin/python3
"""A link over RDMA between two guests on one cable: two kernels, two devices, packets between them.

    two_guests.py PROGRAMS

PROGRAMS is the folder of tern-bench.
"""

import json
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listener(process, port):
    """An emulator that finds nobody at the other end of its cable gives up at once."""
    listening = f"0100007F:{port:04X} 00000000:0000 0A"
    while listening not in pathlib.Path("/proc/net/tcp").read_text(encoding="utf-8"):
        if process.poll() is not None:
            break  # skipped, or why not
        time.sleep(0.05)


def guest(number, cable, *command):
    rig = [sys.executable, ROOT / "tests/vm/run_in_guest.py", "--timeout", "300", "--cpus", "1", "--memory", "1G",
           "--cable", cable, "--number", str(number), "--", ROOT / "tests/vm/with_rxe.sh", "--on", "eth0",
           "--address", f"10.9.0.{number}/24", "--mtu", "1500"]
    return subprocess.Popen([*map(str, rig), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    bench = f"{sys.argv[1]}/tern-bench"
    port = free_port()
    listening = guest(1, f"listen=127.0.0.1:{port}", bench, "link", "--transport", "rdma", "--listen", "10.9.0.1:7790")
    await_listener(listening, port)
    # The other guest may be up first: it tries until the listening one is.
    connecting = guest(2, f"connect=127.0.0.1:{port}", "bash", "-c",
                       f"for i in $(seq 20); do {bench} link --transport rdma --connect 10.9.0.1:7790 --frames 50 "
                       "--small-frames 50 2>&1 && exit 0; done; exit 1")
    try:
        out, _ = connecting.communicate()
        if connecting.returncode == SKIPPED:
            print(out)
            return SKIPPED
        if connecting.returncode != 0:
            listening.kill()
            sys.exit(f"status {connecting.returncode}:\n{out}\n{listening.communicate()[0]}")
        heard, _ = listening.communicate()
    finally:
        for process in (listening, connecting):
            process.kill()
    report = json.loads(next(line for line in out.split("\n") if line.startswith("{")))
    assert report["transport"] == "rdma" and report["frames"] == 50, report
    assert '"received_frames": 100' in heard, heard
    print(f"two guests, {report['note']}: {report['frames']} frames of {report['frame_bytes']} bytes arrived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
