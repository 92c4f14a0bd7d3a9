#!/usr/bin/python3
"""Two guests on one cable: two kernels, two devices, and packets between them that can be lost.

    two_guests.py PROGRAMS

PROGRAMS is the folder of ternd, ternctl and train_mnist. node_of_two.py is what runs in each.
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
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


def guest(number, cable, folder):
    rig = [sys.executable, ROOT / "tests/vm/run_in_guest.py", "--timeout", "900", "--cpus", "1", "--memory", "1G",
           "--cable", cable, "--number", str(number), "--writable", folder,
           "--", ROOT / "tests/vm/with_rxe.sh", "--on", "eth0", "--address", f"10.9.0.{number}/24", "--mtu", "1500",
           "/usr/bin/python3", ROOT / "tests/rdma/node_of_two.py", number, folder, sys.argv[1]]
    return subprocess.Popen([str(word) for word in rig], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def reports_of(out):
    """By case, of one guest."""
    lines = [json.loads(line.removeprefix("REPORT ")) for line in out.split("\n") if line.startswith("REPORT ")]
    return {line["case"]: line for line in lines}


def check(first, second):
    expected = first["undisturbed"]["checksum"]
    for case, report in first.items():
        both = (report, second[case])
        print(f"{case}: {', '.join(report['carriers'])}; failovers {[one['failovers'] for one in both]}, packets "
              f"dropped {[one['dropped'] for one in both]}, until {report['seconds']} s; {(report['notes'] or ['-'])[0]}")
        for one in both:
            assert one["checksum"] == expected, f"{case}: other bits: {one}"
    assert first["undisturbed"]["carriers"] == ["rdma"], first["undisturbed"]
    assert sum(one["loss"]["dropped"] for one in (first, second)) > 0, "no packet of RDMA was lost"
    assert sum(one["blocked"]["failovers"] for one in (first, second)) > 0, "no failover was counted"
    assert first["small_packets"]["carriers"] == ["tcp"], first["small_packets"]
    assert any("bytes (RoCE v2" in note for one in (first, second) for note in one["small_packets"]["notes"])


def main():
    with tempfile.TemporaryDirectory(prefix="tern-guests-") as folder:
        port = free_port()
        listening = guest(1, f"listen=127.0.0.1:{port}", folder)
        await_listener(listening, port)
        connecting = guest(2, f"connect=127.0.0.1:{port}", folder)
        try:
            heard, _ = listening.communicate()
            out, _ = connecting.communicate()
        finally:
            for process in (listening, connecting):
                process.kill()
    if SKIPPED in (listening.returncode, connecting.returncode):
        print(heard)
        return SKIPPED
    if listening.returncode != 0 or connecting.returncode != 0:
        sys.exit(f"status {listening.returncode} and {connecting.returncode}:\n{heard}\n{out}")
    check(reports_of(heard), reports_of(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
