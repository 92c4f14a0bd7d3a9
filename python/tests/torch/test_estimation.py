"""tern.torch.estimate(): which models it takes, and what it says of a step."""

import pytest
import torch.distributed as dist
from test_compression import WIDTH, model_of, train
from test_replicas import meshes
from test_replicas import models as sharded_models
from test_sharded import LOSSY, Block, backward, models
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tern.torch
from ranks import run_ranks
from tern.torch.estimation import Estimate, Row, _ShardedTrial, _share

KEPT = {"a.bias": "a bias", "b.bias": "a bias", "norm.weight": "of a normalization"}


def test_a_model_of_fully_shard(two_nodes):
    def work(rank):
        model, _ = models(2)
        found = tern.torch.estimate(model, ("raw", "int:bits=8"), rounds=2)
        assert set(found.exact) == {name for name, _ in model.named_parameters()} - LOSSY
        whole = sum(each.numel() * 4 for name, each in model.named_parameters() if name in LOSSY)
        assert found.lossy_bytes == whole
        assert found.exact_bytes == sum(each.numel() * 4 for each in model.parameters()) - whole
        assert all(row.seconds > 0 and row.step_seconds is None for row in found.rows)
        # It leaves nothing behind.
        tern.torch.compress(model, recipe="int:bits=8")
        backward(model, rank)
        return [row.bytes_sent for row in found.rows], whole, found.rows[0].seconds

    results = run_ranks(two_nodes, 2, work)
    assert results[0][2] == results[1][2]
    for (raw, quarter), whole, _ in results:
        # Each of two nodes sends the other's half of the contributions, and no results.
        assert raw == whole / 2
        assert whole / 8 <= quarter <= 1.2 * whole / 8


def test_the_weights_of_a_sharded_model_are_gathered_in_a_step(two_nodes, monkeypatch):
    """Module by module, and their time is a part of every row."""
    def work(rank):
        model, _ = models(2)
        submitted = []
        real_add, real_gather = tern.Batch.add, _ShardedTrial.gather

        def add(self, operation, x, **more):
            submitted.append((operation, len(x)))
            return real_add(self, operation, x, **more)

        monkeypatch.setattr(tern.Batch, "add", add)
        monkeypatch.setattr(_ShardedTrial, "gather", lambda trial: real_gather(trial) + 1e6)
        assert tern.torch.estimate(model, ("raw",), rounds=1).rows[0].seconds > 1e6
        share = sum(parameter.numel() for parameter in Block().parameters()) // 2
        return submitted.count(("all_gather", share))

    # In each of two rounds, of two blocks.
    assert run_ranks(two_nodes, 2, work) == [4, 4]


def test_uneven_shards_and_another_backend(two_nodes):
    """Shards are padded as FSDP2 pads them."""
    def work(rank):
        model, _ = models(3)
        for module in (model, *model[:2]):
            for each in module._get_fsdp_state()._fsdp_param_group.fsdp_params:
                assert _share(each.sharded_param) == each.padded_sharded_param_size.numel()
        found = tern.torch.estimate(model, ("bf16",), rounds=1)
        whole = tern.torch.estimate(model_of(), ("bf16",), rounds=1)
        return all(row.seconds > 0 and row.bytes_sent > 0 for row in (*found.rows, *whole.rows))

    assert all(run_ranks(two_nodes, 3, work, backend="gloo"))


def test_replicas_average_their_shards(two_nodes):
    """Each of four ranks has half of the model, and nothing is gathered between nodes."""
    def work(rank):
        mesh, replicas = meshes()
        model, _ = sharded_models(mesh)
        found = tern.torch.estimate(model, ("raw", "int:bits=8"), rounds=2, replicas=replicas)
        with pytest.raises(ValueError, match="only a model of fully_shard"):
            tern.torch.estimate(model_of(), replicas=replicas)
        return found

    found = run_ranks(two_nodes, 4, work)
    for raw, int8 in (each.rows for each in found):
        # A node sends half of a shard, and half of its result.
        assert raw.bytes_sent == pytest.approx(found[0].lossy_bytes / 2, rel=0.05)
        assert int8.bytes_sent < raw.bytes_sent / 3
        assert raw.seconds > 0


def test_a_step_is_the_slowest_computation_and_then_all_that_travels(two_nodes):
    def work(rank):
        found = tern.torch.estimate(model_of(), ("raw", "bf16"), rounds=1,
                                    compute_seconds=10.0 + rank)
        return found.rows, str(found)

    (rows, text), (others, _) = run_ranks(two_nodes, 2, work)
    assert [row.step_seconds for row in rows] == [11.0 + row.seconds for row in rows]
    assert [row.step_seconds for row in others] == [row.step_seconds for row in rows]
    assert "step, s" in text and f"{rows[0].step_seconds:.4f}" in text and "upper bound" in text


def test_what_is_printed():
    rows = (Row("raw", 0.25, 4_000_000), Row("bf16", 0.125, 2_000_000))
    assert str(Estimate(rows, 1_000_000, 4_000_000, KEPT)).splitlines() == [
        "4.0 MB of gradients may be compressed, 1.0 MB stay exact: 2 a bias, 1 of a normalization",
        "recipe         seconds   MB sent",
        "raw             0.2500      4.00",
        "bf16            0.1250      2.00"]
    told = str(Estimate((Row("raw", 0.25, 4_000_000, 1.5),), 0, 4_000_000, {})).splitlines()
    assert told[0].endswith("0.0 MB stay exact: none")
    assert told[2].split() == ["raw", "0.2500", "4.00", "1.5000"]


def test_what_is_refused(two_nodes):
    def work(rank):
        with pytest.raises(TypeError, match=r"fully_shard\(\), not a Linear: wrap the model first"):
            tern.torch.estimate(nn.Linear(2, 2))
        with pytest.raises(ValueError, match="at least one round"):
            tern.torch.estimate(model_of(), rounds=0)
        with pytest.raises(ValueError, match="time of 0 or more"):
            tern.torch.estimate(model_of(), compute_seconds=-1.0)
        both = nn.Linear(WIDTH, WIDTH)
        fully_shard(both, mesh=init_device_mesh("cpu", (1, 2), mesh_dim_names=("copies", "parts")))
        with pytest.raises(ValueError, match="one mesh of one dimension"):
            tern.torch.estimate(both)
        with pytest.raises(tern.BadRecipeError, match="nosuch"):
            tern.torch.estimate(model_of(), ("raw", "nosuch"), rounds=1)
        # A refusal leaves nothing behind either.
        model = model_of()
        tern.torch.estimate(model, ("raw",), rounds=1)
        train(model, rank, 1)
        dist.barrier()

    run_ranks(two_nodes, 2, work)
