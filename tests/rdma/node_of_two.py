#!/usr/bin/python3
"""One node of two, in a guest of its own: trains with the other over the cable while packets are held up or lost.

    node_of_two.py NODE FOLDER PROGRAMS

NODE is 1 or 2, FOLDER is written by both guests, PROGRAMS has ternd, ternctl and train_mnist. Packets of two devices
on one machine never meet a queue of the kernel, since Soft-RoCE hands them over inside: loss needs two machines.
"""

import json
import pathlib
import re
import subprocess
import sys
import time

BEGIN = time.monotonic()
NODE, FOLDER, PROGRAMS = int(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
STEPS = 20
SECONDS = 150
# As in two_daemons.py; a queue pair that gets nothing through fails within a second.
SETTINGS = {"rdma_retry": "1s", "rdma_timeout_exponent": 12, "rdma_retry_count": 4, "resume_timeout": "20s",
            "peer_timeout": "20s"}
ROCE = ("u32", "match", "ip", "protocol", "17", "0xff", "match", "ip", "dport", "4791", "0xffff")


def call(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def wait_for(what, condition, about=lambda: ""):
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"node {NODE}: did not happen: {what}\n{about()}")
        time.sleep(0.05)


def filter_roce(*action):
    call("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "prio")
    call("tc", "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", *ROCE, "action", *action)


def shape_roce(*words):
    """Of RDMA alone: the fourth band has nothing else."""
    call("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "prio", "bands", "4")
    call("tc", "qdisc", "add", "dev", "eth0", "parent", "1:4", "handle", "40:", "netem", *words)
    call("tc", "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", *ROCE, "flowid", "1:4")


def dropped_by_netem():
    found = re.search(r"qdisc netem.*\n.*dropped (\d+)", call("tc", "-s", "qdisc", "show", "dev", "eth0"))
    return int(found[1]) if found else 0


def unshape():
    subprocess.run(["tc", "qdisc", "delete", "dev", "eth0", "root"], check=False, capture_output=True)


class Case:
    """A daemon and a rank of one training; `before` or `amid` disturbs the packets of this node."""

    def __init__(self, name, before=None, amid=None):
        self.name, self.before, self.amid = name, before, amid
        self.home = pathlib.Path("/tmp") / name
        self.shared = FOLDER / name

    def log(self):
        return (self.home / "log").read_text(encoding="utf-8")

    def lanes(self):
        rows = json.loads(call(PROGRAMS / "ternctl", "--socket", self.home / "control.sock", "--json", "peers"))
        return [row for row in rows if row["lane"] != "control"]

    def settled(self):
        """The rows of lanes, once they all are up and on something."""
        rows = self.lanes()
        return rows if rows and all(row["state"] == "up" and row["transport"] in ("tcp", "rdma") for row in rows) else []

    def uses_rdma(self):
        return any(row["transport"] == "rdma" and row["frames_sent"] > 50 for row in self.lanes())

    def run(self):
        self.home.mkdir()
        self.shared.mkdir(exist_ok=True)
        options = {"listen": f"10.9.0.{NODE}:7710", "transport": "auto", "peer_security": "plaintext",
                   "socket": self.home / "ternd.sock", "control_socket": self.home / "control.sock", **SETTINGS}
        words = [PROGRAMS / "ternd", *(f"--{key.replace('_', '-')}={value}" for key, value in options.items())]
        if self.before:
            self.before()
        with (self.home / "log").open("w", encoding="utf-8") as log:
            daemon = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        wait_for("the daemon starts", (self.home / "control.sock").exists, self.log)
        rank = subprocess.Popen(
            [str(word) for word in (PROGRAMS / "train_mnist", "--rank", NODE - 1, "--size", 2, "--steps", STEPS,
                                    "--socket", self.home / "ternd.sock", "--group-id-file", self.shared / "group",
                                    "--recipe", "3lc:s=1", "--result", self.home / "result.json")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if self.amid:
            # The other node may have been first, and RDMA be over.
            disturbed = self.shared / "disturbed"
            wait_for("frames travel over RDMA", lambda: self.uses_rdma() or disturbed.exists(), self.log)
            self.amid()
            disturbed.touch()
        rows = []
        wait_for("the links are settled", lambda: rows.extend(self.settled()) or rows or rank.poll() is not None, self.log)
        carriers = sorted({row["transport"] for row in rows})
        notes = [row["transport_note"] for row in rows]
        failovers = 0
        while rank.poll() is None:
            failovers = max([failovers, *(row["failovers"] for row in self.lanes())])
            time.sleep(0.2)
        if rank.returncode != 0:
            sys.exit(f"node {NODE}, {self.name}: {rank.stderr.read()}\n{self.log()}")
        dropped = dropped_by_netem()
        unshape()
        daemon.terminate()
        daemon.wait(SECONDS)
        result = json.loads((self.home / "result.json").read_text(encoding="utf-8"))
        return {"case": self.name, "node": NODE, "checksum": result["weights_checksum"], "carriers": carriers,
                "notes": notes, "failovers": failovers, "dropped": dropped, "seconds": round(time.monotonic() - BEGIN)}


def main():
    for case in (Case("undisturbed"),
                 Case("loss", before=lambda: shape_roce("delay", "2ms", "loss", "1%")),
                 # RoCE is blocked at both nodes when both have begun to send by it.
                 Case("blocked", amid=lambda: filter_roce("drop")),
                 Case("small_packets", before=lambda: filter_roce("police", "mtu", "700", "rate", "10gbit", "burst",
                                                                  "10mb", "conform-exceed", "drop"))):
        print("REPORT " + json.dumps(case.run()), flush=True)


if __name__ == "__main__":
    main()
