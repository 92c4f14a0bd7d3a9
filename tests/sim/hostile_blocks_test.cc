// Clients whose blocks lie, overlap or change: their op fails with a sentence, and nothing else.

#include <gtest/gtest.h>

#include <functional>

#include "block_clients.h"

namespace tern::sim {
namespace hostile_blocks_test {

constexpr std::uint64_t kCount = 30'000;

DaemonShape shape_of() {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = 16 << 10;
  shape.lossy_min_bytes = 1 << 10;
  return shape;
}

TensorSpec spec_of(const std::string& name, const std::string& recipe) {
  TensorSpec spec;
  spec.name = name;
  spec.count = kCount;
  spec.role = Role::gradient;
  spec.recipe = recipe;
  return spec;
}

// Three nodes of one rank, all with blocks of one tensor; another one has elements.
struct HostileNodes {
  HostileNodes() : cluster({1, 1, 1}, shape_of()) {
    cluster.join();
    clients.emplace(cluster, spec_of("t", "3lc:s=1"), std::set<std::uint32_t>{0, 1, 2});
    others = cluster.declare(spec_of("other", "3lc:s=1"));
  }

  // The first chunk that node 0 contributes.
  blocks::Chunk contributed() const {
    const blocks::Layout& layout = clients->blocks[0]->layout;
    const blocks::Chunk first = layout.chunk(0);
    return layout.owns(first) ? layout.chunk(1) : first;
  }
  std::span<std::byte> slot(const Cluster::Pending& pending) const {
    const BlockTensor& own = *clients->blocks[0];
    return own.slots(pending.outputs[0])
        .subspan(own.layout.slot_offset(contributed()), own.layout.said().slot_bytes);
  }
  // One op, of which `spoil` changes the block before lanes have run.
  Cluster::Pending step(const std::function<void(std::span<std::byte>)>& spoil,
                        Reduction reduction = Reduction::sum) {
    const auto inputs = inputs_of(DType::f32, kCount, cluster.size());
    Cluster::Pending pending = clients->submit(all_reduce(DType::f32, kCount, reduction), inputs);
    spoil(slot(pending));
    cluster.finish(pending);
    return pending;
  }
  // Links, and other ops, go on.
  void expect_no_harm() {
    for (BlockTensor* const own :
         {clients->blocks[0].get(), clients->blocks[1].get(), clients->blocks[2].get()}) {
      own->contributions.take_back();
    }
    cluster.forget_arenas();
    const auto inputs = inputs_of(DType::f32, kCount, cluster.size(), 5);
    clients->reduce(all_reduce(DType::f32, kCount), inputs);
    cluster.reduce(all_reduce(DType::f32, kCount), inputs, others);
  }

  Cluster cluster;
  std::optional<BlockClients> clients;
  std::vector<Tensor*> others;
};

wire::BlockHeader header_of(std::span<const std::byte> slot) {
  wire::BlockHeader header;
  std::memcpy(&header, slot.data(), sizeof(header));
  return header;
}

struct Lie {
  const char* name;
  std::function<void(wire::BlockHeader&)> tell;
  const char* word;
};
std::ostream& operator<<(std::ostream& out, const Lie& lie) { return out << lie.name; }

class LyingHeaders : public testing::TestWithParam<Lie> {};
INSTANTIATE_TEST_SUITE_P(
    Blocks, LyingHeaders,
    testing::Values(Lie{"codec", [](wire::BlockHeader& header) { header.codec = 99; }, "codec"},
                    Lie{"version", [](wire::BlockHeader& header) { header.version = 9; },
                        "version"},
                    Lie{"elements",
                        [](wire::BlockHeader& header) {
                          const std::uint32_t elements = header.elements - 1;
                          header = wire::BlockHeader{};
                          header.elements = elements;
                          header.dtype = static_cast<std::uint8_t>(DType::f32);
                          header.payload_bytes = 4 * elements;
                        },
                        "sizes"},
                    Lie{"no elements", [](wire::BlockHeader& header) { header.elements = 0; }, ""},
                    Lie{"longer than its slot",
                        [](wire::BlockHeader& header) {
                          header = wire::BlockHeader{};
                          header.elements = 4096;
                          header.dtype = static_cast<std::uint8_t>(DType::f64);
                          header.payload_bytes = 8 * 4096;
                        },
                        "sizes"},
                    Lie{"another dtype",
                        [](wire::BlockHeader& header) {
                          const std::uint32_t elements = header.elements;
                          header = wire::BlockHeader{};
                          header.elements = elements;
                          header.dtype = static_cast<std::uint8_t>(DType::bf16);
                          header.payload_bytes = 2 * elements;
                        },
                        "dtype"},
                    Lie{"a difference",
                        [](wire::BlockHeader& header) {
                          const std::uint32_t elements = header.elements;
                          header = wire::BlockHeader{};
                          header.codec = static_cast<std::uint8_t>(wire::CodecId::xordelta);
                          header.elements = elements;
                          header.payload_bytes = 4 * elements - 1;
                        },
                        "nobody keeps"}));

TEST_P(LyingHeaders, FailTheirOpAndNothingElse) {
  HostileNodes nodes;
  const auto pending = nodes.step([](std::span<std::byte> slot) {
    wire::BlockHeader header = header_of(slot);
    GetParam().tell(header);
    std::memcpy(slot.data(), &header, sizeof(header));
  });
  nodes.cluster.expect_all(pending, Errc::invalid_argument, "rank 0's block of chunk");
  nodes.cluster.expect_all(pending, Errc::invalid_argument, GetParam().word);
  nodes.expect_no_harm();
}

// What only the payload can prove wrong, the reader finds.
TEST(LyingPayloads, FailTheirOpAndNothingElse) {
  HostileNodes nodes;
  const auto pending = nodes.step([](std::span<std::byte> slot) {
    const std::size_t bytes = header_of(slot).payload_bytes;
    std::memset(slot.data() + wire::kBlockHeaderBytes, 0xff, bytes);
  });
  nodes.cluster.expect_all(pending, Errc::corrupt_data, "contribution of node 0");
  nodes.expect_no_harm();
}

// ---- Room that the other side does not have -----------------------------------------------------

// A header of the tensor's own kind, whose payload fills what a slot has room for.
void fill_slot(std::span<std::byte> slot, std::uint32_t elements, std::size_t bytes) {
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::staged);
  header.dtype = static_cast<std::uint8_t>(DType::f32);
  header.elements = elements;
  header.payload_bytes = static_cast<std::uint32_t>(bytes - wire::kBlockHeaderBytes);
  header.stages.quantizer = static_cast<std::uint8_t>(wire::QuantizerId::integer);
  header.stages.entropy = static_cast<std::uint8_t>(wire::EntropyId::huffman);
  header.stages.bits = 8;
  header.stages.levels = 256;
  std::memcpy(slot.data(), &header, sizeof(header));
}

struct Room {
  const char* name;
  std::size_t nodes;
  std::uint64_t count;
  std::uint64_t eager_bytes;
};
std::ostream& operator<<(std::ostream& out, const Room& room) { return out << room.name; }

// Four nodes announce a third of 64 KiB each, which is no multiple of a slab's alignment.
class LongBlocks : public testing::TestWithParam<Room> {};
INSTANTIATE_TEST_SUITE_P(Rooms, LongBlocks,
                         testing::Values(Room{"whole", 4, 5'461, 64 << 10},
                                         Room{"legs", 3, 98'304, 0}));

// Each peer would take a longer frame for a broken protocol, and its link would end.
TEST_P(LongBlocks, FailTheirOpAndNoLink) {
  const Room room = GetParam();
  DaemonShape shape = shape_of();
  shape.chunk_bytes = 64 << 10;
  shape.eager_bytes = room.eager_bytes;
  Cluster cluster(std::vector<std::uint32_t>(room.nodes, 1), shape);
  cluster.join();
  TensorSpec spec = spec_of("t", "3lc:s=1");
  spec.count = room.count;
  BlockClients clients(cluster, spec, {0});
  const BlockTensor& own = *clients.blocks[0];
  const auto inputs = inputs_of(DType::f32, room.count, static_cast<std::uint32_t>(room.nodes));
  for (const std::size_t less : {std::size_t{0}, std::size_t{8}, std::size_t{40}}) {
    const auto pending = clients.submit(all_reduce(DType::f32, room.count), inputs);
    for (std::uint64_t number = 0; number < own.layout.chunks(); ++number) {
      const blocks::Chunk chunk = own.layout.chunk(number);
      if (own.layout.owns(chunk)) continue;
      fill_slot(own.slots(pending.outputs[0]).subspan(own.layout.slot_offset(chunk)),
                chunk.elements, own.layout.said().slot_bytes - less);
    }
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::invalid_argument, "most_block_bytes");
    clients.blocks[0]->contributions.take_back();
    cluster.forget_arenas();
  }
  EXPECT_EQ(cluster.world.links_lost(), 0u);
  clients.reduce(all_reduce(DType::f32, room.count), inputs);
}

// A maximum loses nothing: a block that would is refused where it comes from.
TEST(LyingBlocks, MayNotLoseWhatMustBeExact) {
  HostileNodes nodes;
  BlockTensor& own = *nodes.clients->blocks[0];
  codec::Workspace workspace;
  const auto inputs = inputs_of(DType::f32, kCount, 3);
  Bytes lossy(own.layout.bytes());
  own.contributions.encode(inputs[0], {Reduction::sum, 1.0f, 1.0f, 0}, lossy, workspace);
  const auto pending = nodes.step(
      [&](std::span<std::byte> slot) {
        std::memcpy(slot.data(), lossy.data() + own.layout.slot_offset(nodes.contributed()),
                    slot.size());
      },
      Reduction::max);
  nodes.cluster.expect_all(pending, Errc::invalid_argument, "must be exact");
}

// Another recipe than the tensor's is taken: a block describes itself.
TEST(LyingBlocks, MayBeOfAnotherRecipe) {
  HostileNodes nodes;
  BlockTensor& own = *nodes.clients->blocks[0];
  blocks::Contributions other(own.layout, codec::parse_recipe("ef(int:bits=8)").value());
  codec::Workspace workspace;
  const auto inputs = inputs_of(DType::f32, kCount, 3);
  Bytes lossy(own.layout.bytes());
  other.encode(inputs[0], {Reduction::sum, 1.0f, 1.0f, 0}, lossy, workspace);
  const auto pending = nodes.step([&](std::span<std::byte> slot) {
    std::memcpy(slot.data(), lossy.data() + own.layout.slot_offset(nodes.contributed()),
                slot.size());
  });
  nodes.cluster.expect_all(pending, Errc::ok);
  for (std::uint32_t rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(nodes.clients->output(pending, rank) == nodes.clients->output(pending, 0), true);
  }
}

// The lane sends what it has checked, whatever the client writes then, in every turn of the world.
TEST(ChangingBlocks, AreSentAsTheyWereCheckedOrFail) {
  HostileNodes nodes;
  std::uint64_t turns = 0;
  for (std::uint64_t step = 0; step < 6; ++step) {
    const auto inputs = inputs_of(DType::f32, kCount, 3, step + 1);
    const auto pending = nodes.clients->submit(all_reduce(DType::f32, kCount), inputs);
    const std::span<std::byte> slot = nodes.slot(pending);
    Random random(step + 1);
    const auto is_done = [&] {
      ++turns;
      for (int i = 0; i < 8; ++i)
        slot[random.below(64)] = static_cast<std::byte>(random.below(256));
      return nodes.cluster.ranks[0]->done(pending.tickets[0]) &&
             nodes.cluster.ranks[1]->done(pending.tickets[1]) &&
             nodes.cluster.ranks[2]->done(pending.tickets[2]);
    };
    ASSERT_TRUE(nodes.cluster.world.run_until(is_done));
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      const Errc status = nodes.cluster.result(pending, rank).status;
      EXPECT_TRUE(status == Errc::ok || status == Errc::invalid_argument ||
                  status == Errc::corrupt_data)
          << nodes.cluster.result(pending, rank).detail;
    }
    nodes.expect_no_harm();
  }
  EXPECT_GT(turns, 6u);
}

// ---- Entries ------------------------------------------------------------------------------------

struct Mistake {
  const char* name;
  std::function<void(OpRequest&, HostileNodes&)> make;
  const char* word;
  bool other_tensor = false;
};
std::ostream& operator<<(std::ostream& out, const Mistake& one) { return out << one.name; }

class MistakenEntries : public testing::TestWithParam<Mistake> {};
INSTANTIATE_TEST_SUITE_P(
    Blocks, MistakenEntries,
    testing::Values(Mistake{"elements", [](OpRequest& op, HostileNodes&) { op.has_blocks = false; },
                            "takes blocks"},
                    Mistake{"a tensor with elements", [](OpRequest&, HostileNodes&) {},
                            "not declared with", true},
                    Mistake{"a recipe", [](OpRequest& op, HostileNodes&) { op.recipe = "raw"; },
                            "none of its own"},
                    Mistake{"a prescale", [](OpRequest& op, HostileNodes&) { op.prescale = 2.0f; },
                            "prescale"},
                    Mistake{"not on a cache line",
                            [](OpRequest& op, HostileNodes&) { op.output += 4; }, "cache line"},
                    Mistake{"beyond the arena",
                            [](OpRequest& op, HostileNodes&) { op.output = (8u << 20) - 4096; },
                            "not inside the client's arena"},
                    Mistake{"another operation",
                            [](OpRequest& op, HostileNodes&) { op.kind = shm::OpKind::broadcast; },
                            "takes no client_blocks"}));

TEST_P(MistakenEntries, AreRefusedWithASentence) {
  HostileNodes nodes;
  Client& client = *nodes.cluster.ranks[0];
  BlockTensor& own = *nodes.clients->blocks[0];
  OpRequest op = all_reduce(DType::f32, kCount);
  op.has_blocks = true;
  op.input = op.output = client.allocate(own.layout.bytes() + 64);
  GetParam().make(op, nodes);
  Tensor& tensor = GetParam().other_tensor ? *nodes.others[0] : own.tensor;
  const std::uint64_t ticket = client.submit(op, &tensor);
  ASSERT_TRUE(nodes.cluster.world.run_until([&] { return client.done(ticket); }));
  EXPECT_EQ(client.result(ticket).status, Errc::invalid_argument);
  EXPECT_TRUE(contains(client.result(ticket).detail, GetParam().word))
      << client.result(ticket).detail;
}

}  // namespace hostile_blocks_test
}  // namespace tern::sim
