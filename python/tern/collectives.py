"""The collectives as a table: whose elements go in, and whose come out.

A row and a function of libtern make a collective. The whole of an operation is the sum of the
ranks' counts; a share is one rank's count.
"""

from __future__ import annotations

from typing import NamedTuple

WHOLE, SHARE, NOTHING = "whole", "share", "nothing"


class Sides(NamedTuple):
    """What a rank has."""

    takes: str
    gives: str


class Collective(NamedTuple):
    """`sides`: of a rank that is not the root, and of the root; of an operation without a root all
    are the former."""

    name: str
    sides: tuple[Sides, Sides]
    # Without `out` the result takes the input's place.
    in_place: bool = False


def _rooted(name: str, others: Sides, root: Sides, in_place: bool = False) -> Collective:
    return Collective(name, (others, root), in_place)


def _rootless(name: str, all_ranks: Sides, in_place: bool = False) -> Collective:
    return Collective(name, (all_ranks, all_ranks), in_place)


ALL_REDUCE = _rootless("all_reduce", Sides(WHOLE, WHOLE), in_place=True)
BROADCAST = _rooted("broadcast", Sides(WHOLE, WHOLE), Sides(WHOLE, WHOLE), in_place=True)
REDUCE = _rooted("reduce", Sides(WHOLE, NOTHING), Sides(WHOLE, WHOLE), in_place=True)
REDUCE_SCATTER = _rootless("reduce_scatter", Sides(WHOLE, SHARE))
ALL_GATHER = _rootless("all_gather", Sides(SHARE, WHOLE))
GATHER = _rooted("gather", Sides(SHARE, NOTHING), Sides(SHARE, WHOLE))
SCATTER = _rooted("scatter", Sides(NOTHING, SHARE), Sides(WHOLE, SHARE))
ALL_TO_ALL = _rootless("all_to_all", Sides(WHOLE, WHOLE))
