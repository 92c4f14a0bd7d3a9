// Tensors with client_blocks: whoever has blocks and whoever has elements, all get the bits that a
// group with elements gets.

#include <gtest/gtest.h>

#include <limits>

#include "block_clients.h"
#include "tests/rounds.h"
#include "wire/frame.h"

namespace tern::sim {
namespace client_blocks_test {

// Three nodes; those of ranks 0 and 3 have one rank.
const std::vector<std::uint32_t> kRanks = {1, 2, 1};

// The ways of an all_reduce: chunk by chunk when the owner grants it, whole with its announcements,
// or to each owner its chunk with the announcement.
struct Form {
  const char* name;
  std::uint64_t count;
  std::uint64_t chunk_bytes;
  std::uint64_t eager_bytes;  // half of it between three nodes
  std::uint32_t eager_form;
  bool whole;
  bool grants;
};
const Form kLegs{"legs", 30'000, 16 << 10, 0, 3, false, true};
const Form kWhole{"whole", 3'000, 64 << 10, 64 << 10, 3, true, false};
const Form kChunks{"chunks", 7'000, 64 << 10, 32 << 10, 3, false, false};
std::ostream& operator<<(std::ostream& out, const Form& form) { return out << form.name; }

DaemonShape shape_of(const Form& form) {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = form.chunk_bytes;
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
                     testing::Values(kLegs, kWhole, kChunks)));

// Abridged, a third of the combinations, which have each of their values.
TEST_P(ClientBlocks, GiveTheBitsOfElements) {
  int combination = 0;
  for (const std::set<std::uint32_t>& with_blocks :
       {std::set<std::uint32_t>{0}, std::set<std::uint32_t>{3}, std::set<std::uint32_t>{0, 3}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      ++combination;
      for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max}) {
        if (combination++ % 3 != 0 && tests::abridged()) continue;
        const std::uint64_t count = form.count * sizeof(float) / dtype_bytes(dtype);
        Cluster cluster(kRanks, shape_of(form));
        cluster.join();
        BlockClients clients(cluster, spec_of(recipe, dtype, count), with_blocks);
        const auto& layout = clients.blocks[*with_blocks.begin()]->layout.said();
        EXPECT_EQ(layout.travels_whole != 0, form.whole);
        std::uint64_t grants = 0;
        cluster.world.tap = [&grants](const net::OutgoingFrame& frame) {
          const auto kind = wire::parse_frame_header(frame.head).header.kind;
          if (kind == static_cast<std::uint8_t>(wire::FrameKind::grant)) ++grants;
        };
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
        EXPECT_EQ(grants != 0, form.grants);
      }
    }
  }
}

// With verify all nodes compare, by elements or by what blocks say. A result may come to a node
// with elements before it hears that another node has blocks.
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

// Node 2 gets a result of node 0 before it hears that node 1 has blocks, and counts it all the
// same.
TEST(ClientBlocksOfANode, AreVerifiedWhereAResultComesBeforeTheLastAnnouncement) {
  Cluster cluster({1, 1, 1}, shape_of(kChunks));
  JoinOptions options;
  options.verify = true;
  cluster.join(options);
  BlockClients clients(cluster, spec_of("3lc:s=1", DType::f32, 7'000), {1});
  const auto inputs = inputs_of(DType::f32, 7'000, 3);
  clients.reduce(all_reduce(DType::f32, 7'000), inputs);
  cluster.world.set_partitioned(1, 2, true);
  const auto pending = clients.submit(all_reduce(DType::f32, 7'000), inputs);
  cluster.world.run_for(kSecond / 10);
  EXPECT_FALSE(cluster.ranks[2]->done(pending.tickets[2]));
  cluster.world.set_partitioned(1, 2, false);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::ok);
}

TEST(ClientBlocksOfANode, AreAloneInAGroupOfOneNode) {
  Cluster cluster({1}, shape_of(kChunks));
  cluster.join();
  BlockClients clients(cluster, spec_of("3lc:s=1", DType::f32, 7'000), {0});
  const auto inputs = inputs_of(DType::f32, 7'000, 1);
  EXPECT_EQ(clients.reduce(all_reduce(DType::f32, 7'000), inputs) == inputs[0], true);
}

// The tensor's blocks are counted by the lanes that take them.
TEST(ClientBlocksOfANode, AreCounted) {
  Cluster cluster(kRanks, shape_of(kLegs));
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
  Cluster cluster(kRanks, shape_of(kLegs));
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

// Elements of others would be added in one hop, and in another order.
TEST(RefusedBlocksOfATensor, AreOfASmallOneWhereBlocksDoNotTravelWhole) {
  Form form = kWhole;
  form.eager_form = 1;
  Cluster cluster(kRanks, shape_of(form));
  cluster.join();
  TensorSpec spec = spec_of("3lc:s=1", DType::f32, form.count);
  spec.client_blocks = true;
  Client& client = *cluster.ranks[0];
  const std::uint64_t request = client.declare(spec);
  ASSERT_TRUE(cluster.await(client, request));
  EXPECT_EQ(client.status_of(request).status, Errc::unsupported);
  EXPECT_TRUE(contains(client.status_of(request).detail, "eager_form"))
      << client.status_of(request).detail;
}

TEST(RefusedBlocksOfATensor, AreOfOneWithElements) {
  Cluster cluster(kRanks, shape_of(kLegs));
  cluster.join();
  const auto tensors = cluster.declare(spec_of("3lc:s=1", DType::f32, 30'000));
  const std::uint64_t request =
      cluster.ranks[0]->ask_of(shm::PacketKind::tensor_blocks, tensors[0]->id);
  ASSERT_TRUE(cluster.await(*cluster.ranks[0], request));
  EXPECT_EQ(cluster.ranks[0]->status_of(request).status, Errc::unknown_tensor);
}

}  // namespace client_blocks_test
}  // namespace tern::sim
