"""Tern for Python: collectives on NumPy arrays through the daemon of this node.

    import numpy as np
    import tern

    with tern.connect() as client:
        group = client.join(client.mint(), rank=0, size=1)
        x = np.ones(3, np.float32)
        group.all_reduce(x).wait()

`connect` gives a `Client`, a client joins a `Group`, and every collective of a group returns a
`Ticket` at once. `init` does all of it for a program that `tern run`, torchrun, Slurm or mpirun has
started. A `Tensor` declares what may be compressed; `stats`, `progress` and `tern.tensorboard` show
what came of it. Every failure is a `TernError`.

Importing the package starts nothing and loads no library.
"""

from . import errors
from ._passing import Received
from .batch import Batch
from .client import Client
from .connecting import connect
from .errors import *
from .group import Group, GroupInfo
from .launched import init
from .progress_line import Progress, progress
from .push_pull import PushPull
from .statistics import GroupStats, NodeStats, StepSplit, TensorStats, Totals, stats
from .tensor import Tensor
from .ticket import Ticket

__all__ = ["Batch", "Client", "Group", "GroupInfo", "GroupStats", "NodeStats", "Progress",
           "PushPull", "Received", "StepSplit", "Tensor", "TensorStats", "Ticket", "Totals",
           "connect", "init", "progress", "stats"]
__all__ += errors.__all__
