// Tensors with client_blocks: whoever has blocks and whoever has elements, all get the bits that a
// group with elements gets.

#include <gtest/gtest.h>

#include <limits>

#include "block_clients.h"

namespace tern::sim {
namespace client_blocks_test {

// Three nodes; those of ranks 0 and 3 have one rank.
const std::vector<std::uint32_t> kRanks = {1, 2, 1};

struct Form {
  const char* name;
  std::uint64_t count;
  std::uint64_t eager_bytes;
  std::uint32_t eager_form;
};
std::ostream& operator<<(std::ostream& out, const Form& form) { return out << form.name; }

DaemonShape shape_of(const Form& form) {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = 16 << 10;
  shape.eager_bytes = form.eager_bytes;
  shape.lossy_min_bytes = 1 << 10;
  shape.adjust = [form](daemon::ConductorSettings& settings) {
    settings.ops.eager_form = form.eager_form;
  };
  return shape;
}

TensorSpec spec_of(const std::string& recipe, DType dtype, std::uint64_t count) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = count;
  spec.dtype = dtype;
  spec.role = Role::gradient;
  spec.recipe = recipe;
  return spec;
}

class ClientBlocks : public testing::TestWithParam<std::tuple<std::string, Form>> {
 protected:
  const std::string recipe = std::get<0>(GetParam());
  const Form form = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(
    Recipes, ClientBlocks,
    testing::Combine(testing::Values("raw", "lossless", "bf16", "ef(bf16)", "3lc:s=1",
                                     "none(3lc:s=1)", "ef(int:bits=4)", "ef(lloyd:bits=3+huffman)",
                                     "ef(onebit)", "ef(topk:p=0.05+int:bits=8)",
                                     "none(qsgd:levels=4)", "none(randk:p=0.1)"),
                     testing::Values(Form{"legs", 30'000, 0, 3}, Form{"whole", 3'000, 64 << 10, 3},
                                     Form{"chunks", 7'000, 32 << 10, 3},
                                     Form{"declined", 3'000, 64 << 10, 1})));

TEST_P(ClientBlocks, GiveTheBitsOfElements) {
  for (const std::set<std::uint32_t>& with_blocks :
       {std::set<std::uint32_t>{0}, std::set<std::uint32_t>{3}, std::set<std::uint32_t>{0, 3}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max}) {
        const std::uint64_t count = form.count * (dtype == DType::f32 ? 1 : 2);
        Cluster cluster(kRanks, shape_of(form));
        cluster.view.eager_blocks = form.eager_form > 1;
        cluster.join();
        BlockClients clients(cluster, spec_of(recipe, dtype, count), with_blocks);
        for (std::uint64_t step = 0; step < 3; ++step) {
          OpRequest op = all_reduce(dtype, count, reduction);
          if (step == 2) op.state_scale = 0.5f;
          const auto inputs = inputs_of(dtype, count, cluster.size(), step + 1);
          const Bytes got = clients.reduce(op, inputs);
          const Bytes expected =
              cluster.reference->all_reduce(op, clients.tensors[0], step, inputs);
          EXPECT_EQ(got == expected, true)
              << dtype_name(dtype) << " " << reduction_name(reduction) << " step " << step
              << ", blocks on " << with_blocks.size() << " from " << *with_blocks.begin();
        }
      }
    }
  }
}

// With verify all nodes compare, by elements or by what blocks say. A result may come to a node with
// elements before it hears that another node has blocks.
TEST_P(ClientBlocks, AreVerified) {
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    Cluster cluster(kRanks, shape_of(form), seed);
    JoinOptions options;
    options.verify = true;
    cluster.join(options);
    BlockClients clients(
        cluster, spec_of(recipe, DType::f32, form.count),
        seed % 2 == 0 ? std::set<std::uint32_t>{0, 3} : std::set<std::uint32_t>{3});
    for (std::uint64_t step = 0; step < 3; ++step) {
      clients.reduce(all_reduce(DType::f32, form.count),
                     inputs_of(DType::f32, form.count, cluster.size(), step + 1));
    }
  }
}

TEST_P(ClientBlocks, GoRawWhereAValueIsNotFinite) {
  Cluster cluster(kRanks, shape_of(form));
  cluster.view.eager_blocks = form.eager_form > 1;
  cluster.join();
  BlockClients clients(cluster, spec_of(recipe, DType::f32, form.count), {0, 3});
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto inputs = inputs_of(DType::f32, form.count, cluster.size(), step + 1);
    if (step == 1) {
      for (const std::uint32_t rank : {0u, 3u}) {
        auto values = floats_of(DType::f32, inputs[rank]);
        values[form.count / 2 + rank] = std::numeric_limits<float>::infinity();
        inputs[rank] = bytes_of(DType::f32, values);
      }
    }
    const OpRequest op = all_reduce(DType::f32, form.count);
    const Bytes got = clients.reduce(op, inputs);
    EXPECT_EQ(got == cluster.reference->all_reduce(op, clients.tensors[0], step, inputs), true)
        << step;
  }
}

TEST(ClientBlocksOfANode, AreAloneInAGroupOfOneNode) {
  Cluster cluster({1}, shape_of({"", 7'000, 32 << 10, 3}));
  cluster.join();
  BlockClients clients(cluster, spec_of("3lc:s=1", DType::f32, 7'000), {0});
  const auto inputs = inputs_of(DType::f32, 7'000, 1);
  EXPECT_EQ(clients.reduce(all_reduce(DType::f32, 7'000), inputs) == inputs[0], true);
}

// The tensor's blocks are counted by the lanes that take them.
TEST(ClientBlocksOfANode, AreCounted) {
  Cluster cluster(kRanks, shape_of({"", 30'000, 0, 3}));
  cluster.join();
  BlockClients clients(cluster, spec_of("3lc:s=1", DType::f32, 30'000), {0});
  clients.reduce(all_reduce(DType::f32, 30'000), inputs_of(DType::f32, 30'000, cluster.size()));
  const blocks::Layout& layout = clients.blocks[0]->layout;
  std::uint64_t contributed = 0;
  for (std::uint64_t i = 0; i < layout.chunks(); ++i) {
    if (!layout.owns(layout.chunk(i))) ++contributed;
  }
  std::uint64_t counted = 0;
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    counted += cluster.world.daemon(0).lanes[lane]->counters().client_blocks.load();
  }
  EXPECT_GT(contributed, 1u);
  EXPECT_EQ(counted, contributed);
}

// ---- Declarations that cannot be ----------------------------------------------------------------

struct Refusal {
  const char* recipe;
  std::uint32_t rank;
  const char* word;
};
class RefusedBlocks : public testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(Declarations, RefusedBlocks,
                         testing::Values(Refusal{"3lc:s=1", 1, "one rank"},
                                         Refusal{"diana(qsgd:levels=4)", 0, "memory none or ef"},
                                         Refusal{"ef21(topk:p=0.1)", 0, "memory none or ef"},
                                         Refusal{"xordelta", 0, "memory none or ef"},
                                         Refusal{"3lc:s=1,scale=tensor", 0, "scale=4096"}));

TEST_P(RefusedBlocks, SayWhatToDo) {
  Cluster cluster(kRanks, shape_of({"", 30'000, 0, 3}));
  cluster.join();
  TensorSpec spec = spec_of(GetParam().recipe, DType::f32, 30'000);
  spec.client_blocks = true;
  Client& client = *cluster.ranks[GetParam().rank];
  const std::uint64_t request = client.declare(spec);
  ASSERT_TRUE(cluster.await(client, request));
  EXPECT_NE(client.status_of(request).status, Errc::ok);
  EXPECT_TRUE(contains(client.status_of(request).detail, GetParam().word))
      << client.status_of(request).detail;
}

TEST(RefusedBlocksOfATensor, AreOfOneWithElements) {
  Cluster cluster(kRanks, shape_of({"", 30'000, 0, 3}));
  cluster.join();
  const auto tensors = cluster.declare(spec_of("3lc:s=1", DType::f32, 30'000));
  const std::uint64_t request =
      cluster.ranks[0]->ask_of(shm::PacketKind::tensor_blocks, tensors[0]->id);
  ASSERT_TRUE(cluster.await(*cluster.ranks[0], request));
  EXPECT_EQ(cluster.ranks[0]->status_of(request).status, Errc::unknown_tensor);
}

}  // namespace client_blocks_test
}  // namespace tern::sim
