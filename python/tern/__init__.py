"""Tern for Python: collectives on NumPy arrays through the daemon of this node.

    import numpy as np
    import tern

    with tern.connect() as client:
        group = client.join(client.mint(), rank=0, size=1)
        x = np.ones(3, np.float32)
        group.all_reduce(x).wait()

Importing the package starts nothing and loads no library.
"""

from . import errors
from .client import Client
from .connecting import connect
from .errors import *
from .group import Group, GroupInfo
from .launched import init
from .push_pull import PushPull
from .tensor import Tensor, TensorStats
from .ticket import Ticket

__all__ = ["Client", "Group", "GroupInfo", "PushPull", "Tensor", "TensorStats", "Ticket",
           "connect", "init"]
__all__ += errors.__all__
