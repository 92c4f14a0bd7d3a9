#!/usr/bin/python3
"""Two daemons and the training example over Soft-RoCE; run by with_rxe.sh in a guest.

    two_daemons.py PROGRAMS

PROGRAMS is the folder of ternd, ternctl and train_mnist. Every case trains with a fixed recipe, and the
weights must have the bits that they have over TCP, whatever happens to the device meanwhile.
"""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BEGIN = time.monotonic()

PROGRAMS = pathlib.Path(sys.argv[1])
STEPS = 20
SECONDS = 120
RECIPE = "3lc:s=1"
SETTINGS = {"rdma_retry": "1s", "rdma_timeout_exponent": 10, "rdma_retry_count": 3}


def call(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True, text=True).stdout


def say(text):
    print(f"{time.monotonic() - BEGIN:5.0f} s  {text}", flush=True)


def wait_for(what, condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"did not happen: {what}\n{Pair.last.log(0)}\n{Pair.last.log(1)}\n{Pair.last.lanes()}")
        time.sleep(0.05)


class Pair:
    """Two daemons on this machine, told apart by port."""

    def __init__(self, transport, limits=(), addresses=("127.0.0.1", "127.0.0.1"), **more):
        Pair.last = self
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tern-rdma-"))
        self.daemons = []
        for node in range(2):
            home = self.folder / str(node)
            home.mkdir()
            options = {"listen": f"{addresses[node]}:{7710 + node}", "transport": transport,
                       "peer-security": "plaintext",
                       "socket": home / "ternd.sock", "control-socket": home / "control.sock",
                       **{key.replace("_", "-"): value for key, value in (SETTINGS | more).items()}}
            words = [PROGRAMS / "ternd", *(f"--{key}={value}" for key, value in options.items())]
            log = (home / "log").open("w", encoding="utf-8")
            self.daemons.append(subprocess.Popen([*limits, *map(str, words)], stdout=log, stderr=log))
        wait_for("the daemons start", lambda: all((self.home(node) / "control.sock").exists() for node in range(2))
                 or any(daemon.poll() is not None for daemon in self.daemons))

    def home(self, node):
        return self.folder / str(node)

    def log(self, node):
        return (self.home(node) / "log").read_text(encoding="utf-8")

    def report(self, node, verb):
        if self.daemons[node].poll() is not None:
            sys.exit(f"a daemon has ended, status {self.daemons[node].returncode}:\n{self.log(node)}")
        return json.loads(call(PROGRAMS / "ternctl", "--socket", self.home(node) / "control.sock", "--json", verb))

    def lanes(self, node=0):
        return [row for row in self.report(node, "peers") if row["lane"] != "control"]

    def begin_training(self, steps=STEPS):
        (self.folder / "group").unlink(missing_ok=True)
        return [subprocess.Popen(
            [str(word) for word in (PROGRAMS / "train_mnist", "--rank", rank, "--size", 2, "--steps", steps,
                                    "--socket", self.home(rank) / "ternd.sock", "--group-id-file", self.folder / "group",
                                    "--recipe", RECIPE, "--result", self.folder / f"rank{rank}.json")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for rank in range(2)]

    def end_training(self, ranks):
        for rank, process in enumerate(ranks):
            _, errors = process.communicate(timeout=SECONDS)
            if process.returncode != 0:
                sys.exit(f"rank {rank}: {errors}\n{self.log(0)}\n{self.log(1)}")
        reports = [json.loads((self.folder / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
        checksums = {report["weights_checksum"] for report in reports}
        assert len(checksums) == 1, checksums
        return checksums.pop()

    def train(self):
        return self.end_training(self.begin_training())

    def close(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(SECONDS)
        shutil.rmtree(self.folder)


def restore_device():
    call("ip", "link", "set", "d0", "up")
    if "rxe0" not in call("rdma", "link", "show"):
        call("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "d0")


def over(transport, **more):
    """Trains undisturbed; the checksum of the weights and the rows of the links while it ran."""
    pair = Pair(transport, **more)
    ranks = pair.begin_training()
    rows = []
    wait_for("the link is up", lambda: rows.extend(
        row for row in pair.lanes() if row["state"] == "up" and row["transport"] != "settling") or rows)
    checksum = pair.end_training(ranks)
    if rows[0]["transport_note"]:
        said = f"reaches it over {rows[0]['transport']}: {rows[0]['transport_note']}"
        assert said[:120] in pair.log(0), f"the log does not say: {said}"
    pair.close()
    return checksum, rows[0]


def disturbed(expected, what, disturb, restore=restore_device):
    """Trains while `disturb` happens. The bits are those of TCP, and the failure is counted."""
    pair = Pair("auto", resume_timeout="20s", peer_timeout="20s")
    ranks = pair.begin_training(STEPS)
    wait_for("frames travel over RDMA", lambda: any(
        row["transport"] == "rdma" and row["frames_sent"] > 200 for row in pair.lanes()))
    disturb()
    checksum = pair.end_training(ranks)
    failovers = sum(row["failovers"] for node in range(2) for row in pair.lanes(node))
    restore()
    pair.close()
    assert checksum == expected, f"{what}: other bits"
    say(f"{what}: the same bits, {failovers} failovers")
    return failovers


def on_carrier(pair, carrier):
    rows = [row for node in range(2) for row in pair.lanes(node)]
    return bool(rows) and all(row["state"] == "up" and row["transport"] == carrier for row in rows)


def ends_on_rdma(pair, ranks):
    """From TCP, without a usable device, to RDMA with it. The checksum and the failovers until then."""
    # So that the training is not over before RDMA is there.
    for rank in ranks:
        rank.send_signal(signal.SIGSTOP)
    wait_for("the links are on TCP", lambda: on_carrier(pair, "tcp"))
    failovers = [row["failovers"] for node in range(2) for row in pair.lanes(node)]
    restore_device()
    wait_for("the links are on RDMA", lambda: on_carrier(pair, "rdma"))
    before = {row["lane"]: row["frames_sent"] for row in pair.lanes()}
    for rank in ranks:
        rank.send_signal(signal.SIGCONT)
    wait_for("these frames travel over RDMA", lambda: any(
        row["transport"] == "rdma" and row["frames_sent"] > before.get(row["lane"], 0) for row in pair.lanes()))
    checksum = pair.end_training(ranks)
    for carrier in ("tcp", "rdma"):
        assert f"reaches it over {carrier}: " in pair.log(0), pair.log(0)
    pair.close()
    return checksum, max(failovers)


def comes_back(expected, what, disturb):
    """RDMA fails in mid-training, TCP takes over, and after rdma_retry frames are on RDMA again."""
    pair = Pair("auto", resume_timeout="20s", peer_timeout="20s")
    ranks = pair.begin_training()
    wait_for("frames travel over RDMA", lambda: any(
        row["transport"] == "rdma" and row["frames_sent"] > 200 for row in pair.lanes()))
    disturb()
    checksum, failovers = ends_on_rdma(pair, ranks)
    assert checksum == expected, f"{what}, and back: other bits"
    assert failovers > 0, f"{what}: no failover was counted"
    say(f"{what}, TCP, and back on RDMA after rdma_retry: the same bits")


def comes_late(expected):
    """A device whose port is down when the daemons start is used once it is up."""
    call("ip", "link", "set", "d0", "down")
    pair = Pair("auto", resume_timeout="20s", peer_timeout="20s")
    ranks = pair.begin_training()
    wait_for("there are links", pair.lanes)
    checksum, _ = ends_on_rdma(pair, ranks)
    assert checksum == expected, "link down at first: other bits"
    say("link down at first, TCP, and RDMA after rdma_retry: the same bits")


def devices_of_lanes(pair):
    return [{row["lane"]: row["transport_note"] for row in pair.lanes(node) if row["transport"] == "rdma"}
            for node in range(2)]


def striped(expected):
    """Two devices: each lane has one, and when one goes its lane moves to the other."""
    call("ip", "link", "add", "d1", "type", "dummy")
    call("ip", "address", "add", "10.9.1.1/24", "dev", "d1")
    call("ip", "link", "set", "d1", "up", "mtu", "9000")
    call("rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "d1")
    pair = Pair("auto", lanes=2, resume_timeout="20s", peer_timeout="20s")
    ranks = pair.begin_training()
    wait_for("two lanes on two devices", lambda: all(
        sorted(note.split(":")[0] for note in notes.values()) == ["rxe0", "rxe1"] for notes in devices_of_lanes(pair)))
    say(f"two devices: {devices_of_lanes(pair)[0]}")
    wait_for("both carry frames", lambda: all(row["frames_sent"] > 100 for row in pair.lanes()))
    call("rdma", "link", "delete", "rxe1")
    for rank in ranks:
        rank.send_signal(signal.SIGSTOP)
    wait_for("both lanes are on the device that is left", lambda: all(
        [note.split(":")[0] for note in notes.values()] == ["rxe0", "rxe0"] for notes in devices_of_lanes(pair)))
    for rank in ranks:
        rank.send_signal(signal.SIGCONT)
    checksum = pair.end_training(ranks)
    pair.close()
    call("ip", "link", "delete", "d1")
    assert checksum == expected, "two devices: other bits"
    say("two devices, one of them deleted, its lane moves to the other: the same bits")


def main():
    expected, row = over("tcp")
    assert row["transport"] == "tcp", row
    checksum, row = over("auto")
    assert row["transport"] == "rdma" and "rxe0" in row["transport_note"], row
    assert checksum == expected, "RDMA gives other bits than TCP"
    say(f"over RDMA ({row['transport_note']}): the same bits as over TCP")
    checksum, row = over("auto", rdma_payload_crc="false", lanes=2, spin="1ms")
    assert checksum == expected and row["transport"] == "rdma", row
    say("two lanes, no payload CRC: the same bits")

    checksum, row = over("auto", peer_transports="127.0.0.1=tcp")
    assert checksum == expected and row["transport"] == "tcp", row

    # With a cluster key tensors stay inside TLS unless the settings say that RDMA may carry them.
    key = pathlib.Path(tempfile.mkdtemp(prefix="tern-key-")) / "cluster.key"
    call(PROGRAMS / "ternctl", "pki", "new-key", key)
    secure = {"peer_security": "key", "cluster_key_file": key}
    checksum, row = over("auto", **secure)
    assert checksum == expected and row["transport"] == "tls", row
    checksum, row = over("rdma", rdma_unencrypted="true", **secure)
    assert checksum == expected and row["transport"] == "rdma", row
    say("a cluster key: TLS, and RDMA where it is allowed, with the same bits")
    shutil.rmtree(key.parent)

    assert disturbed(expected, "link down", lambda: call("ip", "link", "set", "d0", "down")) > 0
    assert disturbed(expected, "device deleted", lambda: call("rdma", "link", "delete", "rxe0")) > 0
    comes_back(expected, "link down", lambda: call("ip", "link", "set", "d0", "down"))
    comes_back(expected, "device deleted", lambda: call("rdma", "link", "delete", "rxe0"))
    comes_late(expected)
    striped(expected)
    # Packets of one device stay inside it: this is of the connection below. two_guests.py loses those of RDMA.
    shaping = ("tc", "qdisc", "replace", "dev", "lo", "root", "netem")
    disturbed(expected, "the control connection has 2 ms and 1 % loss", lambda: call(*shaping, "delay", "2ms", "loss", "1%"),
              lambda: call("tc", "qdisc", "delete", "dev", "lo", "root"))

    # Without the right to lock memory, TCP carries on and says why.
    pair = Pair("auto", limits=("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock",
                                "prlimit", "--memlock=65536"))
    ranks = pair.begin_training()
    notes = []
    wait_for("a link says why", lambda: notes.extend(
        row["transport_note"] for row in pair.lanes() if row["transport"] == "tcp" and row["transport_note"]) or notes)
    assert pair.end_training(ranks) == expected
    assert any("memory-lock limit is 64 KiB" in note for note in notes), notes
    say(f"memory-lock limit: {notes[0]}")
    pair.close()

    # A daemon that is killed: the group ends with an error, in bounded time.
    pair = Pair("rdma", peer_timeout="2s", resume_timeout="1s")
    ranks = pair.begin_training(100000)
    wait_for("frames travel over RDMA", lambda: any(
        row["transport"] == "rdma" and row["frames_sent"] > 100 for row in pair.lanes()))
    pair.daemons[1].kill()
    _, errors = ranks[0].communicate(timeout=SECONDS)
    assert ranks[0].returncode != 0 and ("lost" in errors or "peer" in errors), errors
    ranks[1].communicate(timeout=SECONDS)
    say("peer killed: " + errors.strip().split("\n")[-1])
    pair.close()

    # Without a device: auto uses TCP, rdma refuses to start.
    call("rdma", "link", "delete", "rxe0")
    checksum, row = over("auto")
    assert checksum == expected and row["transport"] == "tcp" and "RDMA" in row["transport_note"], row
    pair = Pair("rdma")
    for daemon in pair.daemons:
        assert daemon.wait(SECONDS) != 0
    assert "no RDMA device" in pair.log(0), pair.log(0)
    say("no device: " + pair.log(0).strip().split("\n")[-1])


if __name__ == "__main__":
    main()
