"""DiLoCo (Douillard and others, arXiv:2311.08105): workers train a language model of characters
apart, and once in a while all take an outer step along the average of how far they have come. What
travels is one compressed difference for many steps.

    torchrun --nproc-per-node 2 diloco.py

README.md beside this file has the lines for two daemons. The text is that of examples/data.
"""

import pathlib

import torch
import torch.distributed as dist
from torch import nn

import tern.torch  # noqa: F401  not needed from PyTorch 2.14 on, where Tern is installed

TEXT = pathlib.Path(__file__).parents[1] / "data/shakespeare.txt"
CONTEXT, BATCH = 32, 32
ROUNDS, INNER_STEPS = 10, 20
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
RECIPE = "int:bits=4+huffman"


class Characters(nn.Module):
    """Predicts each character from those before it."""

    def __init__(self, kinds: int):
        super().__init__()
        self.embed = nn.Embedding(kinds, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, kinds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(x))[0])


def loss_of(model: nn.Module, text: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    begins = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=draw)
    rows = torch.stack([text[begin:begin + CONTEXT + 1] for begin in begins])
    out = model(rows[:, :-1])
    return nn.functional.cross_entropy(out.flatten(0, 1), rows[:, 1:].flatten())


def main() -> None:
    dist.init_process_group("tern")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    characters = sorted(set(TEXT.read_text()))
    numbers = {character: number for number, character in enumerate(characters)}
    text = torch.tensor([numbers[character] for character in TEXT.read_text()])
    text, held = text[:-20_000], text[-20_000:]
    own = text[rank * len(text) // size:(rank + 1) * len(text) // size]

    model = Characters(len(characters))
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # The same on all ranks at all times: they take the same outer steps.
    outer = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    outer_step = torch.optim.SGD(outer, lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)
    moved = torch.zeros(sum(parameter.numel() for parameter in outer))
    group = dist.group.WORLD.tern_group
    # A delta may lose values; what one round owes is added to the next.
    tensor = group.declare("moved", moved.numel(), role="delta", recipe=RECIPE)

    draw = torch.Generator().manual_seed(1 + rank)
    for number in range(ROUNDS):
        for _ in range(INNER_STEPS):
            inner.zero_grad()
            loss_of(model, own, draw).backward()
            inner.step()
        with torch.no_grad():
            torch.cat([(before - now).flatten() for before, now in
                       zip(outer, model.parameters())], out=moved)
            group.all_reduce(moved.numpy(), reduction="average", tensor=tensor).wait()
            begin = 0
            for before in outer:
                before.grad = moved[begin:begin + before.numel()].view_as(before)
                begin += before.numel()
            outer_step.step()
            for before, now in zip(outer, model.parameters()):
                now.copy_(before)
            loss = loss_of(model, held, torch.Generator().manual_seed(0))
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        if rank == 0 and number % 2 == 1:
            print(f"round {number + 1}: loss {loss:.3f}", flush=True)
    if rank == 0:
        # 1 where all ranks are on one node, which nothing leaves.
        print(f"{tensor.stats().ratio:.1f} times less than raw", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
