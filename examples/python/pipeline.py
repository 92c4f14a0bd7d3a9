"""Overlaps computing with communication by asyncio: while one block is summed over the ranks, the
next is computed.

    tern run --nproc 2 pipeline.py
"""

import asyncio

import numpy as np

import tern

BLOCKS, COUNT, IN_FLIGHT = 16, 100_000, 4


def compute(rank: int, block: int, out: np.ndarray) -> None:
    """Stands for a program's own work."""
    out[:] = np.sin(np.arange(COUNT) + block) * (rank + 1)


async def finish(ticket: tern.Ticket, free: asyncio.Queue[np.ndarray]) -> float:
    """The sum of a block when it has arrived. Its array is then free for another."""
    array = await ticket
    total = float(array.sum())
    free.put_nowait(array)
    return total


async def main(group: tern.Group) -> None:
    # One array for each block that may be under way.
    free: asyncio.Queue[np.ndarray] = asyncio.Queue()
    for _ in range(IN_FLIGHT):
        free.put_nowait(group.client.empty(COUNT, "float32"))
    tasks = []
    # Every rank submits the blocks in the same order, for that is how anonymous ones match.
    for block in range(BLOCKS):
        array = await free.get()
        await asyncio.to_thread(compute, group.rank, block, array)
        ticket = group.all_reduce(array)
        tasks.append(asyncio.create_task(finish(ticket, free)))
    total = sum(await asyncio.gather(*tasks))
    print(f"rank {group.rank}: {BLOCKS} blocks, together {total:.3f}")


if __name__ == "__main__":
    with tern.init() as group:
        asyncio.run(main(group))
