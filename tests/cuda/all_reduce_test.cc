// A node with its tensor on the device gets, and gives, the bits of a node with elements.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace all_reduce_test {

struct Case {
  const char* name;
  const char* recipe;
  std::uint64_t count;
  tern_reduction reduction = TERN_SUM;
};

constexpr Case kCases[] = {
    {"Threelc", "3lc", kLarge},
    {"ThreelcWithoutMemory", "none(3lc)", kLarge},
    {"ThreelcSmallScales", "ef(3lc:s=1.75,scale=320,zrun=off)", kLarge},
    {"ThreelcAnnounced", "3lc", kAnnounced},
    {"ThreelcWhole", "3lc", kWhole},
    {"Int8", "int:bits=8", kLarge},
    {"Int8WithoutMemory", "none(int:bits=8,block=64)", kLarge},
    {"Int8Whole", "int:bits=8", kWhole},
    {"Int4", "int:bits=4", kLarge},
    {"Int4Announced", "int:bits=4", kAnnounced},
    {"Fp8", "fp8", kLarge},
    {"Fp8E5M2", "none(fp8:format=e5m2,block=256)", kLarge},
    {"Bf16", "bf16", kLarge},
    {"Bf16WithMemory", "ef(bf16)", kAnnounced},
    {"Raw", "raw", kLarge},
    {"RawWhole", "raw", kWhole},
    {"Average", "int:bits=8", kLarge, TERN_AVERAGE},
    {"Largest", "3lc", kLarge, TERN_MAX},
    {"LargestWhole", "3lc", kWhole, TERN_MAX},
};

constexpr int kSteps = 4;
constexpr int kNanStep = 1;

// What is not finite is in chunks of both owners, if there are two.
std::vector<float> input_of(const Case& what, int node, int step) {
  auto values = gaussian(
      what.count, static_cast<std::uint64_t>(step) * 10 + static_cast<std::uint64_t>(node) + 1);
  if (node == 0 && step == kNanStep) {
    values[3] = std::numeric_limits<float>::quiet_NaN();
    values[what.count / 4 * 3] = std::numeric_limits<float>::infinity();
  }
  return values;
}

// One of the steps changes the scale of what is owed.
float state_scale_of(int step) { return step == kSteps - 1 ? 0.5f : 0.0f; }

class CudaAllReduce : public testing::TestWithParam<Case> {
 protected:
  // What both nodes get where both have elements.
  std::vector<std::vector<float>> expected() const {
    const std::string job = new_job();
    Node a(daemons()[0], job), b(daemons()[1], job);
    Node::join({&a, &b});
    std::vector<std::vector<float>> results;
    for (Node* const node : {&a, &b}) node->declare(GetParam().recipe, GetParam().count, false);
    for (int step = 0; step < kSteps; ++step) {
      auto one = values(0, step);
      auto other = values(1, step);
      const auto first = a.all_reduce(one, GetParam().reduction, state_scale_of(step));
      const auto second = b.all_reduce(other, GetParam().reduction, state_scale_of(step));
      a.wait(first);
      b.wait(second);
      EXPECT_EQ(bits_of(one), bits_of(other));
      results.push_back(one);
    }
    return results;
  }

  std::vector<float> values(int node, int step) const { return input_of(GetParam(), node, step); }
};

void PrintTo(const Case& what, std::ostream* out) { *out << what.recipe; }
std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, CudaAllReduce, testing::ValuesIn(kCases), name_of);

TEST_P(CudaAllReduce, HasTheBitsOfElements) {
  const auto expected = this->expected();
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node on_gpu(daemons()[0], job), plain(daemons()[1], job);
  Node::join({&on_gpu, &plain});
  on_gpu.declare(GetParam().recipe, GetParam().count, true);
  plain.declare(GetParam().recipe, GetParam().count, false);
  GpuNode node(*gpu, on_gpu, GetParam().count);
  node.reduction = GetParam().reduction;
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    node.state_scale = state_scale_of(step);
    auto other = values(1, step);
    const auto second = plain.all_reduce(other, GetParam().reduction, node.state_scale);
    tern_ticket first = 0;
    ASSERT_EQ(node.all_reduce(values(0, step), first), TERN_OK) << tern_cuda_error_detail();
    ASSERT_EQ(node.finish(first), TERN_OK) << tern_cuda_error_detail();
    EXPECT_TRUE(node.stream_is_free());
    plain.wait(second);
    EXPECT_EQ(bits_of(node.seen()), bits_of(expected[static_cast<std::size_t>(step)]));
    EXPECT_EQ(bits_of(other), bits_of(expected[static_cast<std::size_t>(step)]));
  }
  const tern_cuda_stats stats = node.stats();
  EXPECT_EQ(stats.operations, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(stats.failures, 0u);
  EXPECT_EQ(stats.processor_blocks, 0u);
  EXPECT_GT(stats.encode_ns, 0u);
  EXPECT_GT(stats.decode_ns, 0u);
  const bool encodes = std::string(GetParam().recipe) != "raw" && GetParam().reduction != TERN_MAX;
  EXPECT_EQ(stats.raw_fallbacks > 0, encodes);
}

// Results that no kernel reads, because another node leads with a recipe of its own for the
// operation.
TEST(CudaAllReduceOfAnotherRecipe, IsDecodedByTheProcessor) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node leader(daemons()[0], job), on_gpu(daemons()[1], job);
  Node::join({&leader, &on_gpu});
  leader.declare("3lc", kLarge, false);
  on_gpu.declare("3lc", kLarge, true);
  GpuNode node(*gpu, on_gpu, kLarge);
  for (const char* const recipe :
       {"int:bits=6", "topk:p=0.1", "int:bits=8+huffman", "int:bits=8"}) {
    SCOPED_TRACE(recipe);
    const std::uint64_t before = node.stats().processor_blocks;
    auto values = gaussian(kLarge, 1);
    const auto theirs = leader.all_reduce(values, TERN_SUM, 0.0f, recipe);
    tern_ticket ticket = 0;
    ASSERT_EQ(node.all_reduce(gaussian(kLarge, 2), ticket), TERN_OK);
    ASSERT_EQ(node.finish(ticket), TERN_OK) << tern_cuda_error_detail();
    leader.wait(theirs);
    EXPECT_TRUE(node.stream_is_free());
    EXPECT_EQ(bits_of(node.seen()), bits_of(values));
    EXPECT_EQ(node.stats().processor_blocks > before, std::string(recipe) != "int:bits=8");
  }
}

// A group of one node owns all: nothing is encoded.
TEST(CudaAllReduceOfOneNode, IsTheInput) {
  const auto gpu = make_gpu();
  Node on_gpu(daemons()[0], new_job());
  Node::join({&on_gpu});
  on_gpu.declare("3lc", kLarge, true);
  GpuNode node(*gpu, on_gpu, kLarge);
  const auto values = gaussian(kLarge, 1);
  tern_ticket ticket = 0;
  ASSERT_EQ(node.all_reduce(values, ticket), TERN_OK);
  ASSERT_EQ(node.finish(ticket), TERN_OK) << tern_cuda_error_detail();
  EXPECT_TRUE(node.stream_is_free());
  EXPECT_EQ(bits_of(node.seen()), bits_of(values));
}

// All ranks compare the results' checksums.
TEST(CudaAllReduceWithVerify, Agrees) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node on_gpu(daemons()[0], job), plain(daemons()[1], job);
  Node::join({&on_gpu, &plain}, true);
  on_gpu.declare("3lc", kLarge, true);
  plain.declare("3lc", kLarge, false);
  GpuNode node(*gpu, on_gpu, kLarge);
  for (std::uint64_t step = 0; step < 2; ++step) {
    auto values = gaussian(kLarge, step);
    const auto theirs = plain.all_reduce(values);
    tern_ticket ticket = 0;
    ASSERT_EQ(node.all_reduce(gaussian(kLarge, step + 2), ticket), TERN_OK);
    ASSERT_EQ(node.finish(ticket), TERN_OK) << tern_cuda_error_detail();
    plain.wait(theirs);
    EXPECT_TRUE(node.stream_is_free());
    EXPECT_EQ(bits_of(node.seen()), bits_of(values));
  }
}

// Both on devices, which share a driver here.
TEST(CudaAllReduceOfTwoDevices, HaveTheSameBits) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node a(daemons()[0], job), b(daemons()[1], job);
  Node::join({&a, &b});
  for (Node* const node : {&a, &b}) node->declare("3lc", kLarge, true);
  GpuNode one(*gpu, a, kLarge), other(*gpu, b, kLarge);
  for (std::uint64_t step = 0; step < 2; ++step) {
    tern_ticket first = 0, second = 0;
    ASSERT_EQ(one.all_reduce(gaussian(kLarge, step), first), TERN_OK);
    // On one stream: the second waits for the first one's word, which its kernels do not hold up.
    EXPECT_EQ(tern_cuda_wait(one.cuda(), first, 0), TERN_ERR_TIMEOUT);
    tern_cuda_op op = other.op();
    ASSERT_EQ(tern_cuda_all_reduce(other.tensor(), &op, gpu->program_stream(1), &second), TERN_OK);
    ASSERT_EQ(one.finish(first), TERN_OK) << tern_cuda_error_detail();
    ASSERT_EQ(other.finish(second), TERN_OK) << tern_cuda_error_detail();
    EXPECT_EQ(bits_of(one.seen()), bits_of(other.output()));
  }
}

// Two tensors on one stream of the program: the second one's kernels wait for the first result.
TEST(CudaAllReduceOfTwoTensors, OneBehindTheOtherOnAStream) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node on_gpu(daemons()[0], job), plain(daemons()[1], job);
  Node::join({&on_gpu, &plain});
  on_gpu.declare("3lc", kLarge, true);
  plain.declare("3lc", kLarge, false);
  GpuNode node(*gpu, on_gpu, kLarge);
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = "bias.grad";
  options.count = kLarge;
  options.role = TERN_GRADIENT;
  options.recipe = "int:bits=8";
  tern_tensor* plain_bias = nullptr;
  ASSERT_EQ(tern_tensor_declare(plain.group(), &options, &plain_bias), TERN_OK);
  options.client_blocks = 1;
  tern_tensor* bias = nullptr;
  ASSERT_EQ(tern_tensor_declare(on_gpu.group(), &options, &bias), TERN_OK);
  tern_cuda_tensor* bound = nullptr;
  ASSERT_EQ(tern_cuda_tensor_bind(node.cuda(), on_gpu.group(), bias, &bound), TERN_OK);

  tern_ticket first = 0, second = 0;
  ASSERT_EQ(node.all_reduce(gaussian(kLarge, 1), first), TERN_OK);
  tern_cuda_op op = node.op();
  op.input = op.output;  // what the first one makes
  ASSERT_EQ(tern_cuda_all_reduce(bound, &op, gpu->program_stream(), &second), TERN_OK);
  auto values = gaussian(kLarge, 2);
  const tern_ticket of_first = plain.all_reduce(values);
  ASSERT_EQ(node.finish(first), TERN_OK) << tern_cuda_error_detail();
  plain.wait(of_first);
  tern_op again = TERN_OP_INIT;
  again.tensor = plain_bias;
  again.input = again.output = values.data();
  tern_ticket last = 0;
  ASSERT_EQ(tern_all_reduce(plain.group(), &again, &last), TERN_OK);
  ASSERT_EQ(node.finish(second), TERN_OK) << tern_cuda_error_detail();
  plain.wait(last);
  EXPECT_EQ(bits_of(node.output()), bits_of(values));
  EXPECT_EQ(tern_cuda_tensor_release(bound), TERN_OK);
}

// Whatever the tuner chooses: when nothing may be lost any more, all that was owed has arrived.
TEST(CudaAllReduceByTheTuner, PaysBackAllThatItOwes) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node on_gpu(daemons()[0], job), plain(daemons()[1], job);
  Node::join({&on_gpu, &plain});
  on_gpu.declare("auto", kLarge, true);
  plain.declare("auto", kLarge, false);
  GpuNode node(*gpu, on_gpu, kLarge);
  const auto set_policy = [](const std::string& rules) {
    for (std::size_t i = 0; i < 2; ++i) daemons()[i].ternctl({"policy", rules});
  };
  constexpr int kAll = 40;
  std::vector<double> got(kLarge), given(kLarge);
  for (int step = 0; step < kAll; ++step) {
    if (step == kAll - 5) set_policy("weights.grad lossless");
    const auto own = gaussian(kLarge, static_cast<std::uint64_t>(step) + 1);
    auto other = gaussian(kLarge, static_cast<std::uint64_t>(step) + 1001);
    for (std::size_t i = 0; i < kLarge; ++i) given[i] += double{own[i]} + double{other[i]};
    const auto second = plain.all_reduce(other);
    tern_ticket first = 0;
    ASSERT_EQ(node.all_reduce(own, first), TERN_OK) << tern_cuda_error_detail();
    ASSERT_EQ(node.finish(first), TERN_OK) << tern_cuda_error_detail();
    EXPECT_TRUE(node.stream_is_free());
    plain.wait(second);
    EXPECT_EQ(bits_of(node.seen()), bits_of(other)) << step;
    for (std::size_t i = 0; i < kLarge; ++i) got[i] += double{other[i]};
  }
  set_policy("");
  double worst = 0.0;
  for (std::size_t i = 0; i < kLarge; ++i) worst = std::max(worst, std::abs(got[i] - given[i]));
  EXPECT_LT(worst, 1e-4 * kAll);
}

// What may lose nothing has no residual, and the tuner chooses for it all the same.
TEST(CudaAllReduceByTheTuner, TakesWhatMustBeExact) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node on_gpu(daemons()[0], job), plain(daemons()[1], job);
  Node::join({&on_gpu, &plain});
  on_gpu.declare_weights("auto", kLarge, true);
  plain.declare_weights("auto", kLarge, false);
  GpuNode node(*gpu, on_gpu, kLarge);
  for (std::uint64_t step = 0; step < 10; ++step) {
    const auto own = gaussian(kLarge, step + 1);
    auto other = gaussian(kLarge, step + 1001);
    std::vector<float> sum(kLarge);
    for (std::size_t i = 0; i < kLarge; ++i) sum[i] = own[i] + other[i];
    const auto second = plain.all_reduce(other);
    tern_ticket first = 0;
    ASSERT_EQ(node.all_reduce(own, first), TERN_OK) << tern_cuda_error_detail();
    ASSERT_EQ(node.finish(first), TERN_OK) << tern_cuda_error_detail();
    plain.wait(second);
    EXPECT_EQ(bits_of(other), bits_of(sum)) << step;
    EXPECT_TRUE(node.stream_is_free());
    EXPECT_EQ(bits_of(node.seen()), bits_of(sum)) << step;
  }
}

}  // namespace all_reduce_test
}  // namespace tern::cuda
