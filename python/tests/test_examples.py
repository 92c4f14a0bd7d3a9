"""The examples, as their texts say they are started."""

import pathlib
import re

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize("name, ranks, line", [
    ("all_reduce.py", 2, r"rank 1 of 2 on node 0 of 1: 3"),
    ("diloco.py", 4, r"round 20: loss 0\.\d+"),
    ("pipeline.py", 2, r"rank 0: 16 blocks, together -?\d+\.\d+"),
])
def test_an_example_runs(job, name, ranks, line):
    run = job.start("--nproc", str(ranks), str(EXAMPLES / name))
    out, error = run.communicate()
    assert (run.returncode, error) == (0, "")
    assert re.search(line, out), out


def test_the_first_example_runs_on_two_nodes(job):
    for run in job.nodes(2, str(EXAMPLES / "all_reduce.py")):
        out, error = run.communicate()
        assert (run.returncode, error) == (0, "")
        assert "on node" in out and "of 2: 3" in out
