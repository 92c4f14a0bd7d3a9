"""MNIST with a parameter server on the ranks: gradients are pushed to the owners of the model's
parts, whose optimizers step, and compressed differences of the model are pulled.

    torchrun --nproc-per-node 2 server.py
    torchrun --nproc-per-node 2 server.py --server 0    # one rank keeps all of the model

README.md beside this file has the lines for two daemons. Network and images are those of mnist.py.
"""

import argparse

import torch
import torch.distributed as dist
from mnist import BATCH, EPOCHS, TEST_IMAGES, digest, images, network
from torch import nn

import tern.torch


def train(server_rank: int | None) -> None:
    dist.init_process_group("tern")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network()
    server = tern.torch.ParameterServer(
        model, lambda parts: torch.optim.SGD(parts, lr=0.05, momentum=0.9), server=server_rank,
        push_recipe="3lc:s=1", pull_recipe="int:bits=8")
    pixels, labels = images()
    pixels, test_pixels = pixels[:-TEST_IMAGES], pixels[-TEST_IMAGES:]
    labels, test_labels = labels[:-TEST_IMAGES], labels[-TEST_IMAGES:]

    for epoch in range(EPOCHS):
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(epoch))
        model.train()
        for batch in order[rank::size][:len(order) // size].split(BATCH):
            server.zero_grad()
            nn.functional.cross_entropy(model(pixels[batch]), labels[batch]).backward()
            server.step()
        # What batch normalizations count is no parameter: each rank has counted its own images.
        for counted in model.buffers():
            if counted.is_floating_point():
                dist.all_reduce(counted, dist.ReduceOp.AVG)
        model.eval()
        with torch.no_grad():
            right = (model(test_pixels).argmax(1) == test_labels).sum()
        dist.all_reduce(right)
        if rank == 0:
            print(f"epoch {epoch + 1}: {100 * right.item() / size / TEST_IMAGES:.1f} % right")
    print(f"rank {rank}: parameters {digest(model)}, {server.ratio():.1f} times less than raw")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", type=int, default=None, metavar="RANK")
    train(parser.parse_args().server)
