#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/client_lib/fake_daemon.h"

namespace tern::testing {
namespace {

tern_connect_options options_for(const FakeDaemon& daemon) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = daemon.path().c_str();
  options.arena_bytes = 1 << 20;
  return options;
}

TEST(Wrapper, ReducesAndBroadcasts) {
  FakeDaemon daemon;
  tern::Client client(options_for(daemon));
  tern::Group group = client.join(client.mint(), 0, 1);
  EXPECT_EQ(group.info().size, 1);
  const std::span<float> values = client.allocate<float>(100);
  std::fill(values.begin(), values.end(), 2.5f);
  tern::Tensor tensor = group.declare<float>("weights", values.size(), TERN_GRADIENT);
  group.all_reduce(tensor, values, TERN_AVERAGE).wait();
  EXPECT_EQ(values[99], 2.5f);
  std::vector<std::int64_t> numbers{1, 2, 3};
  group.broadcast(std::span(numbers), 0).wait();
  EXPECT_EQ(numbers[2], 3);
  group.barrier().wait();
  EXPECT_EQ(tensor.stats().ops, 3u);
  client.deallocate(values);
}

TEST(Wrapper, FailuresCarryCodeAndText) {
  try {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    options.socket_path = "/nonexistent/ternd.sock";
    tern::Client client(options);
    FAIL();
  } catch (const tern::Failure& failure) {
    EXPECT_EQ(failure.status(), TERN_ERR_DAEMON_ABSENT);
    EXPECT_NE(std::string(failure.what()).find("/nonexistent/ternd.sock"), std::string::npos);
  }
}

TEST(Wrapper, AnAbandonedTicketIsCancelled) {
  FakeDaemon daemon;
  daemon.set_ops(Ops::hold);
  tern::Client client(options_for(daemon));
  tern::Group group = client.join(client.mint(), 0, 1);
  float value = 1;
  {
    tern::Ticket ticket = group.all_reduce(std::span(&value, 1));
    EXPECT_FALSE(ticket.wait_for(0));
    daemon.await_entries(1);
  }
  EXPECT_EQ(daemon.seen().size(), 2u);
}

TEST(Wrapper, HandlesMayEndInAnyOrder) {
  FakeDaemon daemon;
  std::optional<tern::Client> client(std::in_place, options_for(daemon));
  std::optional<tern::Group> group(client->join(client->mint(), 0, 1));
  std::optional<tern::Tensor> tensor(group->declare<double>("t", 5));
  client.reset();
  group.reset();
  EXPECT_EQ(daemon.request_count(shm::PacketKind::group_leave), 0u);
  tensor.reset();
  daemon.await_requests(shm::PacketKind::goodbye, 1);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::group_leave), 1u);
}

// Rank 1 of three. Spans are cut from a larger piece of the arena, so that what lies behind them is
// the test's own. The fake daemon holds the ops.
class WrapperOfThree : public ::testing::Test {
 protected:
  explicit WrapperOfThree(FakeOptions options = {})
      : daemon(std::move(options)), client(options_for(daemon)) {
    daemon.set_ops(Ops::hold);
  }

  // The text of the failure.
  static std::string refusal(const std::function<Ticket()>& submit) {
    try {
      (void)submit();
      return "it was taken";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), TERN_ERR_INVALID_ARGUMENT);
      const std::string general = std::string(tern_strerror(TERN_ERR_INVALID_ARGUMENT)) + ": ";
      return std::string(failure.what()).substr(general.size());
    }
  }
  // Its destructor ends the ticket.
  static void expect_taken(Ticket ticket) { EXPECT_NE(ticket.get(), 0u); }

  static std::string too_short(const std::string& what, int has, int used) {
    return "the span of the " + what + " has " + std::to_string(has) +
           " elements, and the operation uses " + std::to_string(used) + ": give a longer one";
  }
  static std::string of_another_count(int has) {
    return "the span has " + std::to_string(has) +
           " elements, and the tensor was declared with 8: give a span of so many";
  }
  static constexpr const char* kOfAnotherType =
      "the spans have elements of f32, and f64 was declared: give spans of the declared type";
  static tern_push_pull_options model() {
    tern_push_pull_options options = TERN_PUSH_PULL_OPTIONS_INIT;
    options.name = "model";
    options.count = 11;
    return options;
  }

  using Counts = std::vector<std::uint64_t>;
  using In = std::span<const float>;

  FakeDaemon daemon;
  Client client;
  Group group = client.join(client.mint(), 1, 3);
  std::span<float> memory = client.allocate<float>(64);
  std::span<float> more = client.allocate<float>(64);
};

TEST_F(WrapperOfThree, PushAndPullNeedTheWholeModelAndTheOwnShard) {
  PushPull server = group.declare(model());
  ASSERT_EQ(server.shard(1).count, 4u);
  const auto push = [&](std::size_t gradient, std::size_t shard) {
    return [=, this, &server] {
      return server.push<float>(memory.first(gradient), more.first(shard));
    };
  };
  const auto pull = [&](std::size_t difference, std::size_t all) {
    return [=, this, &server] {
      return server.pull<float>(memory.first(difference), more.first(all));
    };
  };
  EXPECT_EQ(refusal(push(10, 4)), too_short("gradient", 10, 11));
  EXPECT_EQ(refusal(push(11, 3)), too_short("shard", 3, 4));
  EXPECT_EQ(refusal(pull(3, 11)), too_short("difference", 3, 4));
  EXPECT_EQ(refusal(pull(4, 5)), too_short("differences of all shards", 5, 11));
  EXPECT_EQ(refusal([&] { return server.push<float>(memory.first(11), {}); }),
            too_short("shard", 0, 4));
  expect_taken(push(11, 4)());
  expect_taken(pull(4, 11)());
  expect_taken(server.push<float>(memory.first(11), memory.subspan(4, 4)));
  expect_taken(server.pull<float>(memory.subspan(4, 4), memory.first(11)));
}

TEST_F(WrapperOfThree, PushAndPullNeedTheDeclaredType) {
  tern_push_pull_options options = model();
  options.dtype = TERN_F64;
  PushPull server = group.declare(options);
  EXPECT_EQ(refusal([&] { return server.push<float>(memory.first(11), more.first(4)); }),
            kOfAnotherType);
  EXPECT_EQ(refusal([&] { return server.pull<float>(memory.first(4), more.first(11)); }),
            kOfAnotherType);
}

// C++20 has no floats of 16 bits.
TEST_F(WrapperOfThree, PushAndPullTakeTheBitsOfNarrowFloats) {
  tern_push_pull_options options = model();
  options.dtype = TERN_BF16;
  PushPull server = group.declare(options);
  const std::span<std::uint16_t> bits = client.allocate<std::uint16_t>(64);
  expect_taken(server.push<std::uint16_t>(bits.first(11), bits.subspan(16, 4)));
  expect_taken(server.pull<std::uint16_t>(bits.subspan(16, 4), bits.first(11)));
  EXPECT_NE(refusal([&] { return server.push<float>(memory.first(11), more.first(4)); }), "");
}

// Who owns nothing gives no shard.
TEST_F(WrapperOfThree, ARankThatOwnsNothingGivesAnEmptyShard) {
  tern_push_pull_options options = model();
  options.server = 2;
  PushPull server = group.declare(options);
  expect_taken(server.push<float>(memory.first(11), {}));
  expect_taken(server.pull<float>({}, memory.first(11)));
}

TEST_F(WrapperOfThree, AnAllReduceOnATensorNeedsTheDeclaredElements) {
  Tensor doubles = group.declare<double>("doubles", 8);
  Tensor floats = group.declare<float>("floats", 8);
  Batch batch;
  struct Case {
    const Tensor& tensor;
    std::size_t count;
    std::string text;
  };
  for (const Case& one :
       {Case{doubles, 8, kOfAnotherType},
        // The library would take it for the declared count.
        Case{floats, 0, of_another_count(0)}, Case{floats, 7, of_another_count(7)}}) {
    EXPECT_EQ(refusal([&] { return group.all_reduce(one.tensor, memory.first(one.count)); }),
              one.text);
    EXPECT_EQ(refusal([&] {
                batch.add_all_reduce(one.tensor, memory.first(one.count));
                return group.submit(batch);
              }),
              one.text);
    EXPECT_EQ(batch.size(), 0u);
  }
  expect_taken(group.all_reduce(floats, memory.first(8)));
}

// As every handle does.
TEST_F(WrapperOfThree, ABatchKeepsItsTensor) {
  Batch batch;
  batch.add_all_reduce(group.declare<float>("floats", 8), memory.first(8));
  expect_taken(group.submit(batch));
}

TEST_F(WrapperOfThree, SharesNeedACountForEachRank) {
  const In input = memory;
  for (const Counts& counts : {Counts{2}, Counts{2, 3}, Counts{2, 3, 4, 0}}) {
    const std::string text = "counts has " + std::to_string(counts.size()) +
                             " elements, and the group 3 ranks: give one for each rank";
    EXPECT_EQ(refusal([&] { return group.reduce_scatter<float>(input, more, counts); }), text);
    EXPECT_EQ(refusal([&] { return group.all_gather<float>(input, more, counts); }), text);
    EXPECT_EQ(refusal([&] { return group.gather<float>(input, more, 0, counts); }), text);
    EXPECT_EQ(refusal([&] { return group.scatter<float>(input, more, 0, counts); }), text);
    EXPECT_EQ(refusal([&] {
                return group.all_to_all<float>(input, more, counts, Counts{2, 3, 4});
              }),
              text);
    EXPECT_EQ(refusal([&] {
                return group.all_to_all<float>(input, more, Counts{2, 3, 4}, counts);
              }),
              "receive_" + text);
  }
  const Counts counts = {2, 3, 4};
  expect_taken(group.reduce_scatter<float>(input.first(9), more.first(3), counts));
  expect_taken(group.all_gather<float>(input.first(3), more.first(9), counts));
  expect_taken(group.gather<float>(input.first(3), {}, 0, counts));
  expect_taken(group.scatter<float>({}, more.first(3), 0, counts));
  expect_taken(group.all_to_all<float>(input.first(9), more.first(9), counts, counts));
}

// The library would take 0 elements in all for as many as the counts say.
TEST_F(WrapperOfThree, WithCountsTheSpansNeedWhatTheyAddUpTo) {
  const Counts counts = {2, 3, 4};
  EXPECT_EQ(refusal([&] { return group.reduce_scatter<float>({}, more, counts); }),
            too_short("input", 0, 9));
  EXPECT_EQ(refusal([&] { return group.all_gather<float>(memory, {}, counts); }),
            too_short("output", 0, 9));
  EXPECT_EQ(refusal([&] { return group.gather<float>(memory.first(3), more.first(8), 1, counts); }),
            too_short("output", 8, 9));
  EXPECT_EQ(
      refusal([&] { return group.scatter<float>(memory.first(8), more.first(3), 1, counts); }),
      too_short("input", 8, 9));
  EXPECT_EQ(refusal([&] { return group.all_to_all<float>(memory.first(8), more, counts, counts); }),
            too_short("input", 8, 9));
}

class WrapperOfBlocks : public WrapperOfThree {
 protected:
  WrapperOfBlocks() : WrapperOfThree({.blocks = true}) {}
};

// Its memory is slots, of other lengths than the elements have.
TEST_F(WrapperOfBlocks, ATensorWithBlocksTakesNoElements) {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = "gradient";
  options.count = 8;
  options.role = TERN_GRADIENT;
  options.client_blocks = 1;
  const Tensor tensor = group.declare(options);
  EXPECT_EQ(refusal([&] { return group.all_reduce(tensor, memory.first(8)); }),
            "the tensor has client_blocks: use tern::Blocks, or a tern_op on its slots");
  Batch batch;
  EXPECT_THROW(batch.add_all_reduce(tensor, memory.first(8)), Failure);
}

}  // namespace
}  // namespace tern::testing
