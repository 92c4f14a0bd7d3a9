"""A small transformer whose parameters are sharded over the ranks by FSDP2.

    torchrun --nproc-per-node 2 fsdp.py              # exact
    torchrun --nproc-per-node 2 fsdp.py --compress   # large gradients and weights by recipes
    torchrun --nproc-per-node 2 fsdp.py --replicas   # sharded inside of nodes, compressed between

README.md beside this file has the lines for two daemons. The text is that of examples/data.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tern.torch

TEXT = pathlib.Path(__file__).parents[1] / "data/shakespeare.txt"
CONTEXT, BATCH, WIDTH, LAYERS, STEPS = 64, 16, 96, 2, 60


class Transformer(nn.Module):
    def __init__(self, kinds: int):
        super().__init__()
        self.characters = nn.Embedding(kinds, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True,
                                       norm_first=True) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, kinds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.characters(x) + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


def main(compress: bool, replicate: bool, backend: str = "tern") -> None:
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    characters = sorted(set(TEXT.read_text()))
    numbers = {character: number for number, character in enumerate(characters)}
    text = torch.tensor([numbers[character] for character in TEXT.read_text()])

    model = Transformer(len(characters))
    mesh = init_device_mesh("cpu", (size,))
    if replicate:
        # torchrun numbers a node's ranks in a row.
        each = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = init_device_mesh("cpu", (size // each, each),
                                 mesh_dim_names=("replicas", "shards"))
        mesh = nodes["shards"]
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    compression = None
    if replicate:
        compression = tern.torch.compress(model, recipe="int:bits=8",
                                          replicas=nodes["replicas"].get_group())
    elif compress:
        compression = tern.torch.compress(model, recipe="int:bits=8", gather_recipe="none(bf16)")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    draw = torch.Generator().manual_seed(1 + rank)
    for step in range(STEPS):
        begins = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=draw)
        rows = torch.stack([text[begin:begin + CONTEXT + 1] for begin in begins])
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1}: loss {mean / size:.3f}", flush=True)
    if rank == 0 and compression is not None:
        # 1 where all ranks are on one node, which nothing leaves.
        print(f"{compression.ratio():.1f} times less than raw", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--replicas", action="store_true")
    options = parser.parse_args()
    main(options.compress, options.replicas)
