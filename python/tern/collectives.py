"""The collectives as a table: whose elements go in, and whose come out.

A row and a function of libtern make a collective. The whole of an operation is the sum of the
ranks' counts; a share is one rank's count.
"""

from __future__ import annotations

from typing import NamedTuple

WHOLE, SHARE, NOTHING = "whole", "share", "nothing"


class Collective(NamedTuple):
    """`root_input` and `root_output` are what the root has, `input` and `output` the others; of an
    operation without a root all are the others."""

    name: str
    input: str
    output: str
    root_input: str
    root_output: str
    reduces: bool = False
    # Without `out` the result takes the input's place.
    in_place: bool = False

    def input_of(self, at_root: bool) -> str:
        return self.root_input if at_root else self.input

    def output_of(self, at_root: bool) -> str:
        return self.root_output if at_root else self.output


ALL_REDUCE = Collective("all_reduce", WHOLE, WHOLE, WHOLE, WHOLE, reduces=True, in_place=True)
BROADCAST = Collective("broadcast", WHOLE, WHOLE, WHOLE, WHOLE, in_place=True)
REDUCE = Collective("reduce", WHOLE, NOTHING, WHOLE, WHOLE, reduces=True, in_place=True)
REDUCE_SCATTER = Collective("reduce_scatter", WHOLE, SHARE, WHOLE, SHARE, reduces=True)
ALL_GATHER = Collective("all_gather", SHARE, WHOLE, SHARE, WHOLE)
GATHER = Collective("gather", SHARE, NOTHING, SHARE, WHOLE)
SCATTER = Collective("scatter", NOTHING, SHARE, WHOLE, SHARE)
ALL_TO_ALL = Collective("all_to_all", WHOLE, WHOLE, WHOLE, WHOLE)
