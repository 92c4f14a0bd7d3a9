#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "blocks/include/tern/blocks.hpp"
#include "tests/client_lib/fake_daemon.h"

namespace tern::testing {
namespace {

std::string refusal(Blocks& blocks, auto values) {
  try {
    blocks.all_reduce(values);
    return "it was taken";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), TERN_ERR_INVALID_ARGUMENT);
    const std::string general = std::string(tern_strerror(TERN_ERR_INVALID_ARGUMENT)) + ": ";
    return std::string(failure.what()).substr(general.size());
  }
}

class BlocksOfAThousand : public ::testing::Test {
 protected:
  BlocksOfAThousand() { daemon.set_ops(Ops::hold); }

  tern_connect_options connecting() {
    tern_connect_options connect = TERN_CONNECT_OPTIONS_INIT;
    connect.socket_path = daemon.path().c_str();
    connect.arena_bytes = 1 << 20;
    return connect;
  }
  Tensor declare() {
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = "gradient";
    options.count = 1000;
    options.role = TERN_GRADIENT;
    options.client_blocks = 1;
    return group.declare(options);
  }

  FakeDaemon daemon{{.blocks = true, .block_recipe = "raw"}};
  Client client{connecting()};
  Group group = client.join(client.mint(), 0, 1);
};

// As tern_all_reduce: a caller with another count has another buffer.
TEST_F(BlocksOfAThousand, TakeNoOtherCount) {
  const Tensor tensor = declare();
  tern_blocks* blocks = nullptr;
  ASSERT_EQ(tern_blocks_create(client.get(), group.get(), tensor.get(), &blocks), TERN_OK);
  std::vector<float> values(100);
  tern_op op = TERN_OP_INIT;
  op.input = op.output = values.data();
  op.count = values.size();
  EXPECT_EQ(tern_blocks_all_reduce(blocks, &op), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_STREQ(tern_blocks_error_detail(), "count is neither 0 nor the tensor's declared count");
  values.resize(1000);
  op.input = op.output = values.data();
  op.count = values.size();
  EXPECT_EQ(tern_blocks_all_reduce(blocks, &op), TERN_OK);
  tern_blocks_release(blocks);
}

// The library has no lengths: it would use the declared count of floats.
TEST_F(BlocksOfAThousand, NeedSpansOfTheDeclaredElements) {
  Blocks blocks(client, group, declare());
  std::vector<float> values(2000);
  const std::span<float> all(values);
  EXPECT_EQ(
      refusal(blocks, all.first(999)),
      "the span has 999 elements, and the tensor was declared with 1000: give a span of so many");
  std::vector<std::int32_t> numbers(1000);
  EXPECT_EQ(
      refusal(blocks, std::span(numbers)),
      "the spans have elements of i32, and f32 was declared: give spans of the declared type");
  EXPECT_EQ(refusal(blocks, all.first(1000)), "it was taken");
}

}  // namespace
}  // namespace tern::testing
