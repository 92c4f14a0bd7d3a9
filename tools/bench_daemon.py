"""What the daemon costs: at rest, and in system calls for each operation."""

import pathlib
import re
import shutil
import signal
import time

SETTLE_SECONDS = 1.0
CALL_CASES = {"4 KiB": (4096, 300), "1 MiB": (1 << 20, 60), "16 MiB": (16 << 20, 10)}
WARM_UP = 2


def processor_seconds(pid):
    """Time of all threads so far. The ticks of /proc/PID/stat are too coarse for an idle process."""
    total = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text(encoding="utf-8").split()[0])
    return total * 1e-9


def resident_mib(pid):
    """Without shared memory, which is the arenas and so the clients'."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    kib = {name: int(value) for name, value in re.findall(r"(Rss\w+|VmRSS):\s+(\d+) kB", text)}
    return (kib["VmRSS"] - kib["RssShmem"]) / 1024


def watch(daemons, seconds):
    """Of the busiest and of the largest daemon."""
    time.sleep(SETTLE_SECONDS)
    before = [processor_seconds(daemon.pid) for daemon in daemons]
    begin = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    used = [processor_seconds(daemon.pid) - start for daemon, start in zip(daemons, before)]
    return {"core_percent": 100 * max(used) / passed,
            "resident_mib": max(resident_mib(daemon.pid) for daemon in daemons)}


def measure_idle(nodes, run_ranks, seconds):
    daemons = nodes.start_daemons()
    idle = {"no client": watch(daemons, seconds)}

    def look():
        idle["joined group"] = watch(daemons, seconds)

    run_ranks(nodes, "idle", lambda _: ["--recipe", "raw", "--bytes", "4KiB", "--max-rounds", 1,
                                        "--min-rounds", 1, "--idle", seconds + 2 * SETTLE_SECONDS],
              look)
    run_ranks(nodes, "after", lambda _: ["--recipe", "raw", "3lc:s=1", "--bytes", "64MiB",
                                         "--min-rounds", 1, "--max-rounds", 3])
    idle["after 64 MiB"] = watch(daemons, seconds)
    nodes.stop(daemons)
    return idle


def parse_strace(text):
    """{name: calls} of the table of strace -c."""
    calls = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and re.fullmatch(r"[\d.]+", words[0]) and words[-1] != "total":
            calls[words[-1]] = int(words[3])
    return calls


def measure_system_calls(nodes, run_ranks):
    """{case: {system call: calls of one daemon for each raw operation}}; None without strace."""
    if not shutil.which("strace"):
        return None
    daemons = nodes.start_daemons()
    result = {}
    for case, (size, rounds) in CALL_CASES.items():
        name = f"calls-{size}"
        table = nodes.folder / f"{name}.txt"
        strace = []

        def attach(table=table, strace=strace):
            strace.append(nodes.start(0, "strace", ["strace", "-c", "-f", "-o", table,
                                                    "-p", daemons[0].pid]))

        run_ranks(nodes, name, lambda _, size=size, rounds=rounds: [
            "--recipe", "raw", "--bytes", size, "--idle", 1, "--min-rounds", rounds,
            "--max-rounds", rounds], attach)
        strace[0].send_signal(signal.SIGINT)
        strace[0].wait(10)
        nodes.stop(strace)
        calls = parse_strace(table.read_text(encoding="utf-8") if table.exists() else "")
        if calls:
            result[case] = {call: round(count / (rounds + WARM_UP), 2)
                            for call, count in sorted(calls.items(), key=lambda item: -item[1])
                            if count / (rounds + WARM_UP) >= 0.05}
    nodes.stop(daemons)
    return result or None
