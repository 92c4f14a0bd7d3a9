"""tern.torch.compress(): what travels how, what is remembered, and for whom."""

import collections
import logging
import os
import signal
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern
import tern.torch
from cluster import daemons
from ranks import RankFailed, answer_of, run_ranks, start_ranks
from tern.torch import compression
from tern.torch.averages import Averages, Lossy

WIDTH = 64  # 64 x 64 floats are above what is small
STEPS = 5


class Layers(nn.Module):
    """Linear layers of which the gradient of each is what the test says."""

    def __init__(self, layers=4, width=WIDTH):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.norm(x)


def model_of(buckets_mb=25, **more):
    torch.manual_seed(0)
    return DistributedDataParallel(Layers(), bucket_cap_mb=buckets_mb, **more)


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.module.named_parameters()}


def train(model, rank, steps=STEPS, first=0):
    """Steps on data of this rank; the gradients of each."""
    found = []
    for step in range(first, first + steps):
        draw = torch.Generator().manual_seed(100 * step + rank)
        model.zero_grad()
        model(torch.randn(8, WIDTH, generator=draw)).square().sum().backward()
        found.append(gradients(model))
    return found


def same(found, wanted):
    assert [list(step) for step in found] == [list(step) for step in wanted]
    for step, (one, other) in enumerate(zip(found, wanted)):
        for name in one:
            assert torch.equal(one[name], other[name]), f"step {step}, {name}"


def test_large_weights_lose_and_all_else_is_exact(two_nodes):
    def work(rank):
        exact = train(model_of(), rank, 1)[0]
        model = model_of()
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        found = train(model, rank, 1)[0]
        differing = {name for name in exact if not torch.equal(exact[name], found[name])}
        assert differing == {f"layers.{i}.weight" for i in range(4)}
        assert compressed.ratio() > 4
        assert set(compressed.stats()) == differing

    run_ranks(two_nodes, 2, work)


def test_all_ranks_get_the_same_bits(two_nodes):
    def work(rank):
        model = model_of()
        tern.torch.compress(model, recipe="3lc:s=1")
        return train(model, rank)

    first, *others = run_ranks(two_nodes, 3, work)
    for other in others:
        same(first, other)


def _weights_in_buckets(model, found):
    """Notes which parameters come in one bucket."""
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}

    class Noting(compression.Compression):
        def average(self, bucket):
            found.append(tuple(names[id(each)] for each in bucket.parameters()))
            return super().average(bucket)

    return Noting


def _by_bucket(self, bucket):
    """What a hook does that declares a tensor for each bucket of an iteration."""
    buffer = bucket.buffer()
    key = f"{bucket.index()}/{buffer.numel()}"
    tensors = self._buckets.tensors
    if key not in tensors:
        tensors[key] = self._submissions.group.declare(
            f"bucket/{key}", buffer.numel(), role="gradient", recipe=self._recipe)
    averages = Averages(self._submissions, [Lossy(buffer, tensors[key], 1.0)], [])
    return self._submissions.start("bucket", averages.calls(), [buffer]).get_future().then(
        lambda done: done.wait()[0])


def owed(model, rank, steps):
    """How far what has been delivered is from the sum of the true averages: what the recipe owes,
    by parameter. The same input in each step."""
    exact = train(model_of(), rank, 1)[0]
    delivered = collections.Counter()
    for _ in range(steps):
        for name, gradient in train(model, rank, 1)[0].items():
            delivered[name] = delivered[name] + gradient
    return {name: (steps * exact[name] - delivered[name]).abs().max().item() for name in exact}


def test_a_rebuilt_bucket_keeps_what_it_owes(two_nodes):
    """DDP orders its buckets anew after the first step. The same model in other buckets, and in the
    same buckets in all steps, must give the same bits."""
    def in_buckets(options):
        def work(rank):
            model, buckets = model_of(**options), []
            noting = _weights_in_buckets(model, buckets)
            hook = noting(model, "3lc:s=1", "balanced", None, scaler=None, name="model")
            model.register_comm_hook(compression._HookState(hook), compression._hook)
            return train(model, rank), buckets

        return run_ranks(two_nodes, 2, work)[0]

    wanted, _ = in_buckets({"buckets_mb": 25})
    # A tenth of a MB holds some layers; a static graph orders its buckets at another time.
    for options in ({"buckets_mb": 0.02}, {"buckets_mb": 0.1},
                    {"buckets_mb": 0.02, "static_graph": True}):
        found, buckets = in_buckets(options)
        same(found, wanted)
        assert buckets[0] != buckets[-1], "DDP has not ordered its buckets anew: this shows nothing"


def test_a_hook_by_bucket_would_lose_it(two_nodes):
    """What the test before this one is for: by bucket, the residual of the first step is gone."""
    def work(rank):
        results = []
        for by_bucket in (False, True):
            model = model_of(0.02)
            hook = compression.Compression(model, "3lc:s=1", "balanced", None, scaler=None,
                                           name=f"model{by_bucket}")
            average = _by_bucket.__get__(hook) if by_bucket else hook.average
            hook.average = average
            model.register_comm_hook(compression._HookState(hook), compression._hook)
            results.append(owed(model, rank, 2)["layers.0.weight"])
        return results

    for by_name, by_bucket in run_ranks(two_nodes, 2, work):
        assert by_bucket > by_name


def test_a_checkpoint_continues_with_what_is_owed(two_nodes):
    def from_the_start(rank):
        model = model_of()
        through = tern.torch.compress(model, recipe="3lc:s=1")
        train(model, rank, 2)
        state = through.state_dict()
        assert state["nodes"] == 2 and state["node"] == rank
        torch.save(state, f"{folder}/{rank}.pt")
        return train(model, rank, 2, first=2)

    def resumed(rank):
        state = torch.load(f"{folder}/{rank}.pt")
        model = model_of()
        tern.torch.compress(model, recipe="3lc:s=1").load_state_dict(state)
        found = train(model, rank, 2, first=2)
        with pytest.raises(ValueError, match="other parameters"):
            tern.torch.compress(model_of(), recipe="3lc:s=1", name="other",
                                exempt=["layers.1.*"]).load_state_dict(state)
        return found

    def forgetful(rank):
        model = model_of()
        tern.torch.compress(model, recipe="3lc:s=1")
        return train(model, rank, 2, first=2)

    with tempfile.TemporaryDirectory() as folder:
        wanted = run_ranks(two_nodes, 2, from_the_start)[0]
        same(run_ranks(two_nodes, 2, resumed)[0], wanted)
    forgotten = run_ranks(two_nodes, 2, forgetful)[0]
    assert not torch.equal(forgotten[0]["layers.0.weight"], wanted[0]["layers.0.weight"])


def test_accumulated_gradients_travel_once(two_nodes):
    def work(rank):
        model = model_of()
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        with model.no_sync():
            model(torch.randn(4, WIDTH)).sum().backward()
            model(torch.randn(4, WIDTH)).sum().backward()
        assert all(stats.ops == 0 for stats in compressed.stats().values())
        model(torch.randn(4, WIDTH)).sum().backward()
        dist.barrier()
        assert all(stats.ops == 1 for stats in compressed.stats().values())

    run_ranks(two_nodes, 2, work)


def test_the_residual_follows_the_loss_scale(two_nodes):
    """Twice the loss scale is twice the gradient and twice what is owed: a power of two changes no
    bit else."""
    class Scaler:
        scale = 1.0

        def get_scale(self):
            return self.scale

    def scaled_by(factor):
        def work(rank):
            scaler, model = Scaler(), model_of()
            tern.torch.compress(model, recipe="3lc:s=1", scaler=scaler)
            for step in range(3):
                scaler.scale = 1.0 if step == 0 else factor
                draw = torch.Generator().manual_seed(100 * step + rank)
                model.zero_grad()
                loss = model(torch.randn(8, WIDTH, generator=draw)).square().sum()
                (loss * scaler.scale).backward()
            return gradients(model)

        return run_ranks(two_nodes, 2, work)[0]

    plain, scaled = scaled_by(1.0), scaled_by(4.0)
    for name in plain:
        assert torch.equal(4 * plain[name], scaled[name]), name


def test_types_and_exemptions(two_nodes):
    def work(rank):
        model = DistributedDataParallel(Layers().to(torch.bfloat16))
        by_pattern = tern.torch.compress(model, recipe="int:bits=8", exempt=["layers.0.*"])
        assert set(by_pattern.stats()) == {f"layers.{i}.weight" for i in (2, 3, 1)}
        model(torch.randn(4, WIDTH, dtype=torch.bfloat16)).sum().backward()
        model = model_of()
        by_rule = tern.torch.compress(model, recipe="bf16", name="rule",
                                      exempt=lambda name, parameter: "weight" not in name)
        assert "norm.weight" in by_rule.stats()
        double = DistributedDataParallel(nn.Linear(99, 99).double())
        assert tern.torch.compress(double, name="double").stats() == {}
        double(torch.ones(2, 99).double()).sum().backward()

    run_ranks(two_nodes, 2, work)


def test_what_compress_says_and_refuses(two_nodes, caplog):
    def work(rank):
        lines = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger("tern").addHandler(handler)
        logging.getLogger("tern").setLevel(logging.INFO)
        model = model_of()
        tern.torch.compress(model)
        with pytest.raises(tern.AlreadyExistsError):
            tern.torch.compress(model_of())
        with pytest.raises(tern.BadRecipeError, match="nosuch"):
            tern.torch.compress(model_of(), recipe="nosuch", name="bad")
        with pytest.raises(TypeError, match="wrap the model first"):
            tern.torch.compress(nn.Linear(2, 2))
        told = list(lines)
        for options in ({"recipe": "3lc:s=1"}, {"exempt": ["layers.*"]}):
            model = model_of(find_unused_parameters=True)
            tern.torch.compress(model, name="unused", **options)
            told.append([line for line in lines if "find_unused_parameters" in line])
            lines.clear()
        return told

    for *lines, warned, kept in run_ranks(two_nodes, 2, work):
        assert len(warned) == 1 and "no rank uses" in warned[0]
        assert kept == []
        assert lines == ["compress: 4 of 10 parameters with 0.1 of 0.1 MB travel by auto, level "
                         "balanced; exact: 4 a bias, 2 of a normalization; 2 nodes"]


def test_gradients_are_averaged_by_tern_under_another_backend(two_nodes):
    def work(rank):
        model = model_of()
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        found = train(model, rank, 2)
        assert compressed.ratio() > 4
        return found

    first, second = run_ranks(two_nodes, 2, work, backend="gloo")
    same(first, second)


def test_every_rank_hears_that_one_has_no_daemon(two_nodes):
    def work(rank):
        model = model_of()
        if rank == 1:
            os.environ["TERN_SOCKET"] = "/nowhere/ternd.sock"
        with pytest.raises(tern.TernError, match="/nowhere") as raised:
            tern.torch.compress(model)
        return str(raised.value).startswith("rank 1 has no group of Tern: ")

    assert run_ranks(two_nodes, 2, work, backend="gloo") == [True, False]


def test_a_bucket_is_one_batch_in_the_same_memory_in_every_step(two_nodes, monkeypatch):
    """However many gradients it has, and made anew when DDP has ordered its buckets anew."""
    def work(rank):
        made, submitted = [], []
        real_init, real_submit = Averages.__init__, tern.Batch.submit

        def init(self, *arguments):
            made.append(self)
            real_init(self, *arguments)

        def submit(self):
            submitted.append(len(self))
            return real_submit(self)

        monkeypatch.setattr(Averages, "__init__", init)
        monkeypatch.setattr(tern.Batch, "submit", submit)
        model = model_of()
        tern.torch.compress(model, recipe="3lc:s=1")
        train(model, rank, 6)
        # Four weights, and one operation for all that is exact.
        assert submitted == [5] * 6
        return len(made)

    assert max(run_ranks(two_nodes, 2, work)) <= 2


def test_an_estimate_says_what_travels(two_nodes):
    def work(rank):
        model = model_of()
        found = tern.torch.estimate(model, ("raw", "bf16", "int:bits=8", "3lc:s=1"), rounds=2)
        assert found.lossy_bytes == 4 * 4 * WIDTH * WIDTH
        assert found.exact["norm.weight"] == "of a normalization"
        assert all(row.seconds > 0 for row in found.rows)
        assert "3lc:s=1" in str(found)
        # It leaves nothing behind.
        tern.torch.compress(model, recipe="3lc:s=1")
        train(model, rank, 1)
        return [row.bytes_sent for row in found.rows], found.lossy_bytes, found.rows[0].seconds

    results = run_ranks(two_nodes, 2, work)
    assert results[0][2] == results[1][2]
    for (raw, half, quarter, trits), whole, _ in results:
        # Each of two nodes sends half of its contributions and half of the results.
        assert raw == whole
        assert whole / 2 <= half <= whole / 2 + 1000
        assert whole / 4 <= quarter <= 1.2 * whole / 4
        assert trits < whole / 15


def test_a_checkpoint_goes_on_with_more_nodes(two_nodes):
    """What the parts of two nodes owe is what three nodes owe then."""
    def before(rank):
        model = model_of()
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        train(model, rank, 2)
        return compressed.state_dict()

    parts = run_ranks(two_nodes, 2, before)

    def after(rank):
        model = model_of()
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        with pytest.raises(tern.InvalidArgumentError, match="of all 2 nodes are needed"):
            compressed.load_state_dict(parts[0])
        compressed.load_state_dict(*parts)
        return train(model, rank, 2)

    with daemons(3) as nodes:
        first, *others = run_ranks(nodes, 3, after)
    for other in others:
        same(first, other)


def test_a_checkpoint_goes_on_on_one_node_and_back(two_nodes):
    """Where nothing is compressed nothing can be owed."""
    def work(states=()):
        def on(rank):
            lines = []
            handler = logging.Handler()
            handler.emit = lambda record: lines.append(record.getMessage())
            logging.getLogger("tern").addHandler(handler)
            model = model_of()
            compressed = tern.torch.compress(model, recipe="3lc:s=1")
            if states:
                compressed.load_state_dict(*states)
            return train(model, rank, 2), compressed.state_dict(), lines
        return on

    first = run_ranks(two_nodes, 2, work())
    alone = run_ranks(two_nodes[:1], 2, work([state for _, state, _ in first]))
    assert all("begins with nothing owed" in lines[-1] for _, _, lines in alone)
    again = run_ranks(two_nodes, 2, work([alone[0][1]]))
    same(again[0][0], first[0][0])


def test_a_job_that_was_killed_ends_as_if_it_had_not_been(two_nodes, tmp_path):
    """Weights, momentum and what is owed come from the checkpoint after the second of four steps;
    a rank dies in the fourth."""
    def job(resumes, dies_at=None):
        def work(rank):
            model = model_of()
            compressed = tern.torch.compress(model, recipe="3lc:s=1")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            if resumes:
                saved = torch.load(tmp_path / f"{rank}.pt")
                model.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["optimizer"])
                compressed.load_state_dict(saved["owed"])
            for step in range(2 if resumes else 0, 4):
                if rank == 1 and step == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                train(model, rank, 1, first=step)
                optimizer.step()
                if step == 1:
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                "owed": compressed.state_dict()}, tmp_path / f"{rank}.pt")
            return {name: parameter.detach() for name, parameter in model.named_parameters()}

        return work

    wanted = run_ranks(two_nodes, 2, job(False))
    killed = start_ranks(two_nodes, 2, job(False, dies_at=3))
    with pytest.raises(EOFError):
        answer_of(*killed[1])
    with pytest.raises(RankFailed, match="RankLostError.*rank 1"):
        answer_of(*killed[0])
    same(run_ranks(two_nodes, 2, job(True)), wanted)
