"""tern.torch.compress() of models that DistributedDataParallel treats in ways of their own."""

import copy

import pytest
import torch
import torch.distributed as dist
from test_compression import WIDTH, Layers, model_of, same, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from ranks import run_ranks


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"static_graph": True},
                                     {"gradient_as_bucket_view": True}], ids=str)
def test_the_options_of_ddp(two_nodes, options):
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = Layers(2), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.used(x)

    def work(rank):
        torch.manual_seed(0)
        inner = Sometimes() if options.get("find_unused_parameters") else Layers()
        model = DistributedDataParallel(inner, **options)
        tern.torch.compress(model, recipe="3lc:s=1")
        for _ in range(3):
            model.zero_grad()
            model(torch.randn(4, WIDTH)).square().sum().backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    first, second = run_ranks(two_nodes, 2, work)
    assert len(first) >= 6
    for one, other in zip(first, second):
        assert torch.equal(one, other)


def test_complex_parameters_stay_exact(two_nodes):
    class Spectrum(nn.Module):
        def __init__(self):
            super().__init__()
            self.before = nn.Linear(WIDTH, WIDTH)
            self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.complex64))

        def forward(self, x):
            return (torch.fft.fft(self.before(x)) @ self.weight).abs()

    def work(rank):
        found = []
        for recipe in (None, "int:bits=8"):
            torch.manual_seed(0)
            model = DistributedDataParallel(Spectrum())
            if recipe:
                compressed = tern.torch.compress(model, recipe=recipe)
                assert set(compressed.stats()) == {"before.weight"}
            found.append(train(model, rank, 2))
        for exact, compressed in zip(*found):
            assert torch.equal(exact["weight"], compressed["weight"])
            assert not torch.equal(exact["before.weight"], compressed["before.weight"])

    run_ranks(two_nodes, 2, work)


def test_a_model_is_copied_averaged_and_saved(two_nodes, tmp_path):
    """The copies and what is loaded average exactly, as models that never were compressed."""
    def work(rank):
        wanted = train(model_of(), rank, 1)
        model = model_of()
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        averaged = torch.optim.swa_utils.AveragedModel(model)
        averaged.update_parameters(model)
        copied = copy.deepcopy(model)
        torch.save(model, tmp_path / f"{rank}.pt")
        loaded = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        for other in (averaged.module, copied, loaded):
            same(train(other, rank, 1), wanted)
        assert all(stats.ops == 0 for stats in compressed.stats().values())
        again = tern.torch.compress(loaded, recipe="3lc:s=1", name="loaded")
        train(model, rank, 1)
        train(loaded, rank, 1)
        dist.barrier()
        for each in (compressed, again):
            assert all(stats.ops == 1 for stats in each.stats().values())

    run_ranks(two_nodes, 2, work)


def test_a_compression_is_not_saved_in_place_of_its_state(two_nodes, tmp_path):
    def work(rank):
        compressed = tern.torch.compress(model_of(), recipe="3lc:s=1")
        for copied in (lambda: torch.save({"compression": compressed}, tmp_path / f"{rank}.pt"),
                       lambda: copy.copy(compressed), lambda: copy.deepcopy(compressed)):
            with pytest.raises(TypeError, match="save what its state_dict"):
                copied()

    run_ranks(two_nodes, 2, work)


def test_parameters_that_ddp_ignores_are_left_out(two_nodes):
    def work(rank):
        inner = Layers()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            inner, ["layers.1.weight", "norm.bias"])
        model = DistributedDataParallel(inner)
        left = {f"layers.{layer}.weight" for layer in (0, 2, 3)}
        found = tern.torch.estimate(model, ("raw",), rounds=1)
        assert found.lossy_bytes == 3 * 4 * WIDTH * WIDTH and "norm.bias" not in found.exact
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        assert set(compressed.stats()) == left
        assert "compress: 3 of 8 parameters" in compressed.describe()
        train(model, rank, 2)
        dist.barrier()
        assert all(stats.ops == 2 for stats in compressed.stats().values())

    run_ranks(two_nodes, 2, work)


class Tied(Layers):
    """Has a parameter of its own, and a weight of its layers by a second name."""

    def __init__(self):
        super().__init__(2)
        self.pos_embed = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.layers[0].weight

    def forward(self, x):
        return self.head(super().forward(x @ self.pos_embed))


@pytest.mark.parametrize("ignored, left", [
    (["pos_embed", "layers.0.weight"], {"pos_embed", "layers.0.weight", "layers.1.weight"}),
    ([".pos_embed", "layers.0.weight", "head.weight"], {"layers.1.weight"})], ids=str)
def test_what_ddp_averages_though_its_list_has_it(two_nodes, ignored, left):
    """A parameter of the outermost module, and one of which it has not all names."""
    def work(rank):
        torch.manual_seed(0)
        inner = Tied()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ignored)
        model = DistributedDataParallel(inner)
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        assert set(compressed.stats()) == left
        for found in train(model, rank, 2):
            alike = [torch.empty_like(found["pos_embed"]) for _ in range(2)]
            dist.all_gather(alike, found["pos_embed"])
            assert torch.equal(*alike) == ("pos_embed" in left)
        dist.barrier()
        assert all(stats.ops == 2 for stats in compressed.stats().values())

    run_ranks(two_nodes, 2, work)
