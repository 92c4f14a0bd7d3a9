"""A training that test_restarts.py has torchrun start again: restarted.py FOLDER [WHEN]

It goes on from the last checkpoint in FOLDER. WHEN says what happens in the fourth step of the
first start: rank 1 "dies" in backward, or its "node" does.
"""

import hashlib
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern.torch

STEPS, WIDTH, FATAL_STEP = 6, 64, 3


class Fatal(torch.autograd.Function):
    """Ends the process in backward, or the launcher too, which is the parent."""

    @staticmethod
    def forward(context, x, what):
        context.what = what
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if context.what == "node":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def last_checkpoint(folder):
    """The newest of which all ranks have written their file: (its step, the files)."""
    for step in range(STEPS, 0, -1):
        files = sorted(folder.glob(f"{step}-*-of-*.pt"))
        if files and len(files) == int(files[0].stem.rpartition("-")[2]):
            return step, [torch.load(file) for file in files]
    return 0, []


def save(folder, step, state):
    """A file is there as a whole or not at all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    part = folder / f"part-{rank}"
    torch.save(state, part)
    part.rename(folder / f"{step}-{rank}-of-{size}.pt")


def main(folder, when=""):
    torch.set_num_threads(1)
    dist.init_process_group("tern")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)))
    compression = tern.torch.compress(model, recipe="3lc:s=1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin, states = last_checkpoint(folder)
    if states:
        own = states[min(rank, len(states) - 1)]
        model.load_state_dict(own["model"])
        optimizer.load_state_dict(own["optimizer"])
        owed = {state["owed"]["node"]: state["owed"] for state in states}
        nodes = dist.group.WORLD.tern_group.info()
        if len(owed) == nodes.node_count:
            compression.load_state_dict(owed[nodes.node])
        else:
            compression.load_state_dict(*owed.values())
        print(f"rank {rank} of {dist.get_world_size()} goes on after step {begin}", flush=True)
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    for step in range(begin, STEPS):
        draw = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        out = model(torch.randn(8, WIDTH, generator=draw))
        if step == FATAL_STEP and first and rank == 1 and when:
            out = Fatal.apply(out, when)
        out.square().sum().backward()
        optimizer.step()
        dist.barrier()
        save(folder, step + 1, {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                "owed": compression.state_dict()})
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(f"rank {rank} of {dist.get_world_size()} ends with {digest.hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
