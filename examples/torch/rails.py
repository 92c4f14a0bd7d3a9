"""MNIST on nodes of several GPUs: NCCL averages inside of a node, and Tern between nodes.

A rail is the group of those ranks that have the same number on their nodes: one rank of each node.
A node's ranks sum their gradients so that each has a shard of the sum. Each shard is averaged with
those of the other nodes on a rail of its own, compressed. Then the node's ranks gather the shards.
All of a node's ranks share its way to the other nodes, and nothing travels it twice.

    torchrun --nproc-per-node 2 rails.py

README.md beside this file has the lines for two daemons. Without GPUs, gloo takes NCCL's place.
With them libtern_cuda is needed, which Tern's wheel has.
Network and images are those of mnist.py.
"""

import os

import torch
import torch.distributed as dist
from mnist import BATCH, EPOCHS, TEST_IMAGES, digest, images, network
from torch import nn

import tern.cuda
import tern.torch  # not needed from PyTorch 2.14 on, where Tern is installed

RECIPE = "3lc:s=1"


class Rails:
    """Averages the gradients of a model over all ranks. Call it on all ranks, after backward()."""

    def __init__(self, model: nn.Module, inside: dist.ProcessGroup, rail: dist.ProcessGroup):
        self._parameters = list(model.parameters())
        self._inside, self._rail = inside, rail.tern_group
        self._ranks = inside.size() * rail.size()
        count = sum(parameter.numel() for parameter in self._parameters)
        size = -(-count // inside.size())
        device = self._parameters[0].device
        # What fills the last shard up stays zero.
        self._whole = torch.zeros(inside.size() * size, device=device)
        self._shard = torch.empty(size, device=device)
        # The shard that this rail sums, as each gradient, may lose values. On a GPU it is encoded
        # where it is; else the daemon reads and writes memory of the arena in place.
        self._on_gpu = device.type == "cuda"
        self._tensor = self._rail.declare("shard", size, role="gradient", recipe=RECIPE,
                                          client_blocks=self._on_gpu)
        if self._on_gpu:
            self._bound = tern.cuda.Device(self._rail.client).bind(self._tensor)
        else:
            self._host = torch.from_numpy(self._rail.client.empty(size, "float32"))

    def average(self) -> None:
        gradients = [parameter.grad for parameter in self._parameters]
        parts = self._whole.split([gradient.numel() for gradient in gradients]
                                  + [len(self._whole) - sum(map(torch.numel, gradients))])
        for part, gradient in zip(parts, gradients):
            part.copy_(gradient.flatten())
        dist.reduce_scatter_tensor(self._shard, self._whole, group=self._inside)
        self._sum_on_rail()
        dist.all_gather_into_tensor(self._whole, self._shard, group=self._inside)
        self._whole.div_(self._ranks)
        for part, gradient in zip(parts, gradients):
            gradient.copy_(part.view_as(gradient))

    def _sum_on_rail(self) -> None:
        if self._on_gpu:
            stream = torch.cuda.current_stream().cuda_stream
            self._bound.all_reduce(self._shard.data_ptr(), stream=stream).wait()
            return
        self._host.copy_(self._shard)
        self._rail.all_reduce(self._host.numpy(), tensor=self._tensor).wait()
        self._shard.copy_(self._host)

    def ratio(self) -> float:
        """How many times fewer bytes than raw have left this rank's node by its rail."""
        return self._tensor.stats().ratio


def groups() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """This rank's group inside of its node, and its rail. torchrun numbers a node's ranks in a
    row."""
    each = int(os.environ["LOCAL_WORLD_SIZE"])
    ranks = torch.arange(dist.get_world_size()).view(-1, each)
    inside, _ = dist.new_subgroups_by_enumeration(ranks.tolist())
    rail, _ = dist.new_subgroups_by_enumeration(ranks.T.tolist(), backend="tern")
    return inside, rail


def sum_over_all(values: torch.Tensor, inside: dist.ProcessGroup, rail: dist.ProcessGroup) -> None:
    """Exactly. NCCL is never asked to leave a node."""
    dist.all_reduce(values, group=inside)
    dist.all_reduce(values, group=rail)


def train() -> None:
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network().to(device)
    inside, rail = groups()
    rails = Rails(model, inside, rail)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    pixels, labels = (each.to(device) for each in images())
    pixels, test_pixels = pixels[:-TEST_IMAGES], pixels[-TEST_IMAGES:]
    labels, test_labels = labels[:-TEST_IMAGES], labels[-TEST_IMAGES:]

    for epoch in range(EPOCHS):
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(epoch))
        model.train()
        for batch in order[rank::size][:len(order) // size].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[batch]), labels[batch]).backward()
            rails.average()
            optimizer.step()
        # What batch normalizations count is no parameter: each rank has counted its own images.
        for counted in model.buffers():
            if counted.is_floating_point():
                sum_over_all(counted, inside, rail)
                counted.div_(size)
        model.eval()
        with torch.no_grad():
            right = (model(test_pixels).argmax(1) == test_labels).sum()
        sum_over_all(right, inside, rail)
        if rank == 0:
            print(f"epoch {epoch + 1}: {100 * right.item() / size / TEST_IMAGES:.1f} % right")
    print(f"rank {rank}: parameters {digest(model.cpu())}, {rails.ratio():.1f} times less than raw")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
