// Several streams of the program, which nodes use in orders of their own.

#include <array>

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace streams_test {

constexpr std::uint64_t kCount = kLarge;

tern_tensor* declare(const Node& node, const char* name, bool client_blocks) {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = name;
  options.count = kCount;
  options.dtype = TERN_F32;
  options.role = TERN_GRADIENT;
  options.recipe = "3lc";
  options.client_blocks = client_blocks ? 1 : 0;
  tern_tensor* tensor = nullptr;
  EXPECT_EQ(tern_tensor_declare(node.group(), &options, &tensor), TERN_OK) << tern_error_detail();
  return tensor;
}

// A tensor on the device, whose operations are all on one stream of the program.
class OnStream {
 public:
  struct Use {
    const char* tensor;
    std::size_t stream;
  };
  OnStream(TestGpu& gpu, tern_cuda* cuda, const Node& owner, Use use)
      : stream_(gpu.program_stream(use.stream)) {
    EXPECT_EQ(tern_cuda_tensor_bind(cuda, owner.group(), declare(owner, use.tensor, true), &bound_),
              TERN_OK)
        << tern_cuda_error_detail();
    auto made = gpu::DeviceArray::allocate(gpu.driver(), kCount * sizeof(float), stream_);
    EXPECT_TRUE(made.has_value());
    values_ = std::move(*made);
    EXPECT_TRUE(gpu.run(stream_));
  }
  ~OnStream() { EXPECT_EQ(tern_cuda_tensor_release(bound_), TERN_OK) << tern_cuda_error_detail(); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

  tern_ticket all_reduce() {
    tern_cuda_op op = TERN_CUDA_OP_INIT;
    op.input = values_->address();
    op.output = values_->address();
    tern_ticket ticket = 0;
    EXPECT_EQ(tern_cuda_all_reduce(bound_, &op, stream_, &ticket), TERN_OK)
        << tern_cuda_error_detail();
    return ticket;
  }

 private:
  gpu::Stream stream_;
  tern_cuda_tensor* bound_ = nullptr;
  std::unique_ptr<gpu::DeviceArray> values_;
};

// The second operation of the first stream waits for the first one's result, which needs the other
// node. The other node begins with that of the second stream.
TEST(CudaStreams, OneThatWaitsHoldsUpNoOther) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), other(daemons()[1], job);
  Node::join({&node, &other});
  GpuNode on_gpu(*gpu, node, kCount, false);
  OnStream first(*gpu, on_gpu.cuda(), node, {"first", 1});
  OnStream behind(*gpu, on_gpu.cuda(), node, {"behind", 1});
  OnStream apart(*gpu, on_gpu.cuda(), node, {"apart", 2});
  const tern_ticket one = first.all_reduce();
  const tern_ticket two = behind.all_reduce();
  const tern_ticket three = apart.all_reduce();
  std::array<std::vector<float>, 3> values;
  const auto from_other = [&](const char* name, std::vector<float>& with) {
    with = gaussian(kCount, 1);
    tern_op op = TERN_OP_INIT;
    op.tensor = declare(other, name, false);
    op.input = with.data();
    op.output = with.data();
    tern_ticket ticket = 0;
    EXPECT_EQ(tern_all_reduce(other.group(), &op, &ticket), TERN_OK) << tern_error_detail();
    return ticket;
  };
  const tern_ticket theirs = from_other("apart", values[0]);
  ASSERT_EQ(on_gpu.finish(three), TERN_OK) << tern_cuda_error_detail();
  other.wait(theirs);
  const tern_ticket next = from_other("first", values[1]);
  const tern_ticket last = from_other("behind", values[2]);
  EXPECT_EQ(on_gpu.finish(one), TERN_OK) << tern_cuda_error_detail();
  EXPECT_EQ(on_gpu.finish(two), TERN_OK) << tern_cuda_error_detail();
  other.wait(next);
  other.wait(last);
}

// The stream of gradients goes on with the next ones.
TEST(CudaStreams, OneThatIsToldNotToWaitGoesOn) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), other(daemons()[1], job);
  Node::join({&node, &other});
  node.declare("3lc", kCount, true);
  other.declare("3lc", kCount, false);
  GpuNode on_gpu(*gpu, node, kCount);
  const std::vector<float> before(kCount, 7.0f);
  on_gpu.put_output(before);
  tern_cuda_op op = on_gpu.op();
  op.no_wait = 1;
  tern_ticket ticket = 0;
  ASSERT_EQ(on_gpu.all_reduce(gaussian(kCount, 1), ticket, &op), TERN_OK);
  EXPECT_TRUE(on_gpu.stream_is_free());  // though the other node has not come
  EXPECT_EQ(bits_of(on_gpu.seen()), bits_of(before));
  auto theirs = gaussian(kCount, 2);
  const tern_ticket their_ticket = other.all_reduce(theirs);
  ASSERT_EQ(on_gpu.finish(ticket), TERN_OK) << tern_cuda_error_detail();
  other.wait(their_ticket);
  EXPECT_EQ(bits_of(on_gpu.output()), bits_of(theirs));
  op.no_wait = 2;
  EXPECT_EQ(on_gpu.all_reduce(before, ticket, &op), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(on_gpu.stream_is_free());
}

TEST(CudaThreads, NeedNotHaveTheContextCurrent) {
  FakeGpu gpu;
  const std::string job = new_job();
  Node node(daemons()[0], job), other(daemons()[1], job);
  Node::join({&node, &other});
  GpuNode on_gpu(gpu, node, kCount, false);
  auto values = std::move(
      *gpu::DeviceArray::allocate(gpu.driver(), kCount * sizeof(float), FakeGpu::stream()));
  node.declare("3lc", kCount, true);
  other.declare("3lc", kCount, false);
  gpu.fake().set_context(false);
  ASSERT_EQ(on_gpu.bind(), TERN_OK) << tern_cuda_error_detail();
  tern_cuda_op op = TERN_CUDA_OP_INIT;
  op.input = values->address();
  op.output = values->address();
  tern_ticket ticket = 0;
  auto beside = gaussian(kCount, 1);
  const tern_ticket theirs = other.all_reduce(beside);
  ASSERT_EQ(tern_cuda_all_reduce(on_gpu.tensor(), &op, FakeGpu::stream(), &ticket), TERN_OK)
      << tern_cuda_error_detail();
  EXPECT_EQ(on_gpu.finish(ticket), TERN_OK) << tern_cuda_error_detail();
  other.wait(theirs);
  std::uint64_t bytes = 0;
  ASSERT_EQ(tern_tensor_state_bytes(node.tensor(), &bytes), TERN_OK);
  std::vector<std::byte> part(bytes);
  EXPECT_EQ(tern_cuda_tensor_export_state(on_gpu.tensor(), part.data(), bytes, &bytes), TERN_OK)
      << tern_cuda_error_detail();
  gpu.fake().set_context(true);  // for the memory that the test itself has
}

}  // namespace streams_test
}  // namespace tern::cuda
