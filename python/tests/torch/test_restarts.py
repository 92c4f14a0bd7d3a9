"""torchrun starts a job again in which a rank or a node has died, and the job goes on from its
checkpoint with what its recipes owe."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_examples import free_port

PROGRAM = pathlib.Path(__file__).with_name("restarted.py")


def launch(nodes, folder, *words):
    """What the launchers of two nodes have printed, and their exit status. Each may end and come
    again, alone too: --nnodes=1:4."""
    folder.mkdir()
    port = free_port()
    launchers = [subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc-per-node=1",
         "--max-restarts=3", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
         f"--rdzv-id={folder.name}",
         # How long a node that has come waits for more, and how soon one that has gone is
         # missed. The first keeps the store of all: it must not be the one that dies.
         f"--rdzv-conf=last_call_timeout=8,keep_alive_interval=1,is_host={number == 0}",
         str(PROGRAM), str(folder), *words],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "TERN_SOCKET": node.socket, "OMP_NUM_THREADS": "1"})
        for number, node in enumerate(nodes)]
    outputs = [launcher.communicate()[0] for launcher in launchers]
    return outputs, [launcher.returncode for launcher in launchers]


def digests(outputs):
    return re.findall(r"rank \d of 2 ends with (\w+)", "".join(outputs))


@pytest.fixture
def uninterrupted(two_nodes, tmp_path):
    outputs, statuses = launch(two_nodes, tmp_path / "uninterrupted")
    assert statuses == [0, 0], outputs
    first, second = digests(outputs)
    assert first == second
    return first


def test_a_rank_that_dies_in_backward_is_named_and_the_job_goes_on(two_nodes, tmp_path,
                                                                   uninterrupted):
    outputs, statuses = launch(two_nodes, tmp_path / "dies", "dies")
    text = "".join(outputs)
    assert statuses == [0, 0], text
    assert re.search(r"RankLostError.*rank 1", text)
    assert len(re.findall(r"rank \d of 2 goes on after step 3", text)) == 2
    assert digests(outputs) == [uninterrupted] * 2


def test_a_job_whose_node_dies_goes_on_without_it(two_nodes, tmp_path):
    outputs, statuses = launch(two_nodes, tmp_path / "node", "node")
    text = "".join(outputs)
    assert sorted(statuses) == [-9, 0], text
    assert re.search(r"RankLostError.*rank 1", text)
    assert "rank 0 of 1 goes on after step 3" in text
    assert "rank 0 of 1 ends with" in text
