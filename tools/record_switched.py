#!/usr/bin/python3
"""Runs sim_switched_schedule_test and writes its tables to docs/benchmarks.md.

    record_switched.py [PROGRAM]     default: that of the build `release`
"""

import pathlib
import re
import subprocess
import sys

from origin import commit_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/tests/sim/sim_switched_schedule_test"
TITLES = {
    "FillsThePortsAndLosesNothing": "One job, ports of 256 KiB",
    "DaemonsThatAreToldNothingLoseAndFinish":
        "The same where daemons have no `switch_port_bytes`",
    "SixtyFourNodesNeedMoreSlabs":
        "64 nodes, with `receive_slabs` and `send_slabs` of 128 and chunks of 64 KiB",
    "ALateNodeDelaysTheOthersByLittleMore": "One node submits 20 ms late, which the floor counts",
    "TwoJobsFillThePortsTogether": "Two jobs at once; the floor is that of both",
    "ANodeWithHalfTheRateIsTheOnlyOneThatIsWaitedFor":
        "One node has half the rate; the floor is that of its cable",
}


def section(said):
    """What the program has said, as titles and tables. A test without a title has no table."""
    parts = []
    for name, title in TITLES.items():
        found = re.search(rf"RUN +\] SwitchedSchedule\.{name}\n(.*?)\[ +(OK|FAILED) ", said, re.DOTALL)
        rows = [line for line in found[1].splitlines() if line.startswith("|")] if found else []
        if len(rows) < 3:
            raise ValueError(f"the program has no rows of {name}")
        parts += [f"**{title}.**", "", *rows, ""]
    return "\n".join(parts)


def main():
    program = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PROGRAM
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} has failed, so that its figures are not written:\n{done.stdout}")
    text = section(done.stdout) + (
        "\n"
        f"Virtual time, so that every machine has the same figures; seed 1, commit {commit_name()}, by "
        "`tools/record_switched.py`.")
    replace_section(ROOT / "docs/benchmarks.md", "switched", text)


if __name__ == "__main__":
    main()
