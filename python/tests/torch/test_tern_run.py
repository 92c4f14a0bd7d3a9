"""Programs of torch.distributed as ranks of `tern run`: they meet by its variables."""

import pytest

PROGRAM = """
import sys, torch, torch.distributed as dist
import tern.torch
dist.init_process_group(sys.argv[1])
x = torch.full((3,), dist.get_rank() + 1.0)
dist.all_reduce(x)
print(x.tolist())
dist.destroy_process_group()
"""


def run(runs):
    lines = []
    for each in runs:
        out, error = each.communicate()
        assert each.returncode == 0, error
        lines += out.splitlines()
    return sorted(lines)


@pytest.mark.parametrize("backend", ["gloo", "tern"])
def test_ranks_of_one_node_and_of_two_meet(job, backend):
    (job.folder / "sum.py").write_text(PROGRAM)
    wanted = ["[rank0]: [3.0, 3.0, 3.0]", "[rank1]: [3.0, 3.0, 3.0]"]
    assert run([job.start("--nproc", "2", "sum.py", backend)]) == wanted
    assert run(job.nodes(2, "sum.py", backend)) == wanted
