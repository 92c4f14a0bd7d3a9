"""Workers that train apart and meet now and then, as in DiLoCo (Douillard and others,
arXiv:2311.08105): each takes many small steps of its own, and then all average by how much their
parameters have moved. What travels is one compressed difference for many steps.

    tern run --nproc 4 diloco.py

The model is a linear one on made-up data, of which each rank sees a part of its own.
"""

import numpy as np

import tern

FEATURES, SAMPLES = 4096, 512
ROUNDS, INNER_STEPS = 20, 10
INNER_RATE, OUTER_RATE, MOMENTUM = 0.05, 0.7, 0.6


def main(group: tern.Group) -> None:
    truth = np.random.default_rng(0).normal(size=FEATURES).astype(np.float32)
    draw = np.random.default_rng(1 + group.rank)
    data = draw.normal(size=(SAMPLES, FEATURES)).astype(np.float32) / np.sqrt(FEATURES)
    labels = data @ truth

    # The same on all ranks at all times: they add the same averages.
    parameters = np.zeros(FEATURES, np.float32)
    velocity = np.zeros(FEATURES, np.float32)
    moved = group.client.empty(FEATURES, "float32")
    # A delta may travel lossily; what one round loses is added to the next.
    tensor = group.declare("parameters", FEATURES, role="delta", recipe="int:bits=4+huffman")
    loss = np.zeros(1, np.float32)

    for number in range(ROUNDS):
        own = parameters.copy()
        for _ in range(INNER_STEPS):
            own -= INNER_RATE * data.T @ (data @ own - labels)
        moved[:] = own - parameters
        group.all_reduce(moved, reduction="average", tensor=tensor).wait()
        velocity = MOMENTUM * velocity + moved
        parameters += OUTER_RATE * velocity

        loss[:] = np.mean((data @ parameters - labels) ** 2)
        group.all_reduce(loss, reduction="average").wait()
        if group.rank == 0 and number % 5 == 4:
            print(f"round {number + 1}: loss {loss[0]:.4f}")
    if group.rank == 0:
        # 1 where all ranks are on one node, which nothing leaves.
        print(f"{tensor.stats().ratio:.1f} times less than raw")


if __name__ == "__main__":
    with tern.init() as group:
        main(group)
