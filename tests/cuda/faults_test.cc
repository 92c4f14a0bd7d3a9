// No stream waits for ever, whatever fails, and what fails takes nothing with it.

#include <atomic>
#include <cstring>
#include <optional>

#include "codec/coding.h"
#include "codec/device/chunk.h"
#include "tests/cuda/emulated_kernels.h"
#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace faults_test {

using testing::HasSubstr;

class CudaFaults : public testing::Test {
 protected:
  explicit CudaFaults(std::uint64_t count = kLarge) : count_(count) {
    Node::join({&node_, &other_});
    node_.declare("3lc", count, true);
    other_.declare("3lc", count, false);
    gpu_node_.emplace(gpu_, node_, count);
    // What was in the output before an operation that fails.
    output_ = std::vector<float>(count, 7.0f);
    gpu_node_->put_output(output_);
  }

  tern_cuda_op op() const { return gpu_node_->op(); }
  GpuNode& gpu_node() { return *gpu_node_; }
  std::vector<float> input(std::uint64_t seed = 1) const { return gaussian(count_, seed); }
  // The stream has gone on, and found what was there before.
  void expect_untouched() {
    EXPECT_TRUE(gpu_node_->stream_is_free());
    EXPECT_EQ(bits_of(gpu_node_->seen()), bits_of(output_));
  }
  // One that succeeds. All of them together have the bits of a job in which nothing has failed.
  void expect_good_step(std::uint64_t step) {
    if (expected_.empty()) expected_ = steps_of_elements();
    auto beside = input(step + 10);
    const auto theirs = other_.all_reduce(beside);
    tern_ticket ticket = 0;
    ASSERT_EQ(gpu_node_->all_reduce(input(step), ticket), TERN_OK) << tern_cuda_error_detail();
    ASSERT_EQ(gpu_node_->finish(ticket), TERN_OK) << tern_cuda_error_detail();
    other_.wait(theirs);
    EXPECT_TRUE(gpu_node_->stream_is_free());
    EXPECT_EQ(bits_of(gpu_node_->seen()), bits_of(expected_[step]));
    output_ = gpu_node_->seen();
  }

  std::uint64_t count_;
  FakeGpu gpu_;
  std::string job_ = new_job();
  Node node_{daemons()[0], job_};
  Node other_{daemons()[1], job_};
  std::optional<GpuNode> gpu_node_;
  std::vector<float> output_;

 private:
  std::vector<std::vector<float>> steps_of_elements() const {
    const std::string job = new_job();
    Node one(daemons()[0], job), two(daemons()[1], job);
    Node::join({&one, &two});
    one.declare("3lc", count_, false);
    two.declare("3lc", count_, false);
    std::vector<std::vector<float>> results;
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto values = input(step);
      auto with = input(step + 10);
      const auto first = one.all_reduce(values);
      const auto second = two.all_reduce(with);
      one.wait(first);
      two.wait(second);
      results.push_back(values);
    }
    return results;
  }

  std::vector<std::vector<float>> expected_;
};

TEST_F(CudaFaults, EachCallThatFailsLeavesTheStreamFree) {
  expect_good_step(0);
  for (const char* const function :
       {"cuCtxPushCurrent_v2", "cuEventRecord", "cuStreamWaitEvent", "cuStreamWaitValue64_v2",
        "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuLaunchKernelEx",
        "cuLaunchHostFunc"}) {
    SCOPED_TRACE(function);
    const bool is_ours = std::string(function) != "cuMemcpyHtoDAsync_v2";
    gpu_.fake().fail(function, 999, is_ours ? 0 : 1);  // the first one is the program's
    tern_ticket ticket = 0;
    EXPECT_EQ(gpu_node().all_reduce(input(), ticket), TERN_ERR_INTERNAL);
    EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("999"));
    expect_untouched();
    // The tensor is free as soon as all that was enqueued is done.
    std::vector<std::byte> part(1 << 20);
    std::uint64_t bytes = 0;
    EXPECT_TRUE(e2e::eventually([&] {
      gpu_.fake().run_all();
      return tern_cuda_tensor_export_state(gpu_node().tensor(), part.data(), part.size(), &bytes) ==
             TERN_OK;
    }));
  }
  expect_good_step(1);
  expect_good_step(2);
}

// The first launch is the encoder's.
TEST_F(CudaFaults, ALaunchThatFailsWhileResultsAreDecodedIsTold) {
  gpu_.fake().fail("cuLaunchKernelEx", 999, 1);
  auto beside = input(10);
  const auto theirs = other_.all_reduce(beside);
  tern_ticket ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
  EXPECT_EQ(gpu_node().finish(ticket), TERN_ERR_INTERNAL);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("cannot launch a kernel"));
  EXPECT_TRUE(gpu_node().stream_is_free());
  other_.wait(theirs);
  EXPECT_EQ(gpu_node().stats().failures, 1u);
}

// Nobody says any more when the kernels are done. The first call is behind the encoder.
TEST_F(CudaFaults, NothingIsWrittenBehindAnEndThatNoNoteTells) {
  gpu_.fake().fail("cuLaunchHostFunc", 999, 1);
  auto beside = input(10);
  const auto theirs = other_.all_reduce(beside);
  tern_ticket ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
  EXPECT_FALSE(gpu_node().stream_is_free());
  gpu_.fake().run_all();  // the encoder; nothing runs the rest but the library
  EXPECT_EQ(tern_cuda_wait(gpu_node().cuda(), ticket, 60000), TERN_ERR_INTERNAL);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("be called behind a kernel"));
  EXPECT_TRUE(gpu_node().stream_is_free());
  EXPECT_TRUE(gpu_.fake().run_all());
  std::vector<float> output(count_);
  std::memcpy(output.data(), gpu::as_pointer<float>(op().output), count_ * sizeof(float));
  EXPECT_EQ(bits_of(output), bits_of(gpu_node().seen()));
  other_.wait(theirs);
}

TEST_F(CudaFaults, APayloadThatMakesNoSenseIsTold) {
  const auto usual = emulated_kernels(gpu_.fake());
  gpu_.fake().set_runner([usual](const gpu::FakeCuda::KernelCall& call) -> std::function<void()> {
    auto work = usual(call);
    if (call.kernel != "tern_threelc_decode") return work;
    const auto* const chunks =
        *static_cast<const codec::device::DecodeChunk* const*>(call.parameters[1]);
    return [work, chunks] {
      work();
      *chunks[0].status = static_cast<std::uint32_t>(codec::DecodeStatus::bad_digit);
    };
  });
  tern_ticket ticket = 0;
  auto beside = input(10);
  const auto theirs = other_.all_reduce(beside);
  ASSERT_EQ(gpu_node().all_reduce(input(0), ticket), TERN_OK);
  EXPECT_EQ(gpu_node().finish(ticket), TERN_ERR_CORRUPT_DATA);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("cannot be decoded"));
  EXPECT_TRUE(gpu_node().stream_is_free());
  other_.wait(theirs);
  // The other node has got it, so that it counts as a step.
  gpu_.fake().set_runner(usual);
  expect_good_step(1);
}

TEST_F(CudaFaults, CallbacksThatComeLateAreWaitedFor) {
  gpu_.fake().hold_callbacks(true);
  auto beside = input(10);
  const auto theirs = other_.all_reduce(beside);
  tern_ticket ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
  for (int i = 0; i < 3; ++i) {
    gpu_.fake().run_all();
    EXPECT_EQ(tern_cuda_wait(gpu_node().cuda(), ticket, 60), TERN_ERR_TIMEOUT);
    EXPECT_FALSE(gpu_node().stream_is_free());
  }
  gpu_.fake().hold_callbacks(false);
  EXPECT_EQ(gpu_node().finish(ticket), TERN_OK);
  EXPECT_TRUE(gpu_node().stream_is_free());
  other_.wait(theirs);
}

TEST_F(CudaFaults, ATensorHasOneOperation) {
  tern_ticket first = 0, second = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), first), TERN_OK);
  tern_cuda_op again = op();
  EXPECT_EQ(tern_cuda_all_reduce(gpu_node().tensor(), &again, FakeGpu::stream(), &second),
            TERN_ERR_WOULD_BLOCK);
  EXPECT_EQ(tern_cuda_tensor_release(gpu_node().tensor()), TERN_ERR_WOULD_BLOCK);
  std::byte byte{};
  std::uint64_t bytes = 0;
  EXPECT_EQ(tern_cuda_tensor_export_state(gpu_node().tensor(), &byte, 1, &bytes),
            TERN_ERR_WOULD_BLOCK);
  auto beside = input(10);
  const auto theirs = other_.all_reduce(beside);
  EXPECT_EQ(gpu_node().finish(first), TERN_OK);
  EXPECT_EQ(tern_cuda_wait(gpu_node().cuda(), first, 0), TERN_ERR_UNKNOWN_TICKET);
  other_.wait(theirs);
}

// An operation that has ended keeps its place until it is reported.
TEST_F(CudaFaults, ThereAreAsManyOperationsAsTheOptionsSay) {
  tern_cuda_options options = gpu_.options();
  options.operations = 1;
  tern_cuda* cuda = nullptr;
  ASSERT_EQ(tern_cuda_open(node_.client(), &options, &cuda), TERN_OK);
  tern_cuda_tensor* bound[2] = {};
  for (int i = 0; i < 2; ++i) {
    const std::string name = "bias" + std::to_string(i);
    tern_tensor_options declared = TERN_TENSOR_OPTIONS_INIT;
    declared.name = name.c_str();
    declared.count = kWhole;
    declared.role = TERN_GRADIENT;
    declared.recipe = "3lc";
    declared.client_blocks = 1;
    tern_tensor* tensor = nullptr;
    ASSERT_EQ(tern_tensor_declare(node_.group(), &declared, &tensor), TERN_OK);
    ASSERT_EQ(tern_cuda_tensor_bind(cuda, node_.group(), tensor, &bound[i]), TERN_OK);
  }
  const tern_cuda_op work = op();
  tern_ticket first = 0;
  tern_ticket second = 0;
  ASSERT_EQ(tern_cuda_all_reduce(bound[0], &work, FakeGpu::stream(), &first), TERN_OK);
  EXPECT_EQ(tern_cuda_all_reduce(bound[1], &work, FakeGpu::stream(), &second),
            TERN_ERR_WOULD_BLOCK);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("as tern_cuda_options says"));
  ASSERT_EQ(tern_group_leave(other_.group()), TERN_OK);
  EXPECT_TRUE(e2e::eventually(
      [&] { return gpu_.fake().run_all() && tern_cuda_tensor_release(bound[0]) == TERN_OK; }));
  EXPECT_EQ(tern_cuda_all_reduce(bound[1], &work, FakeGpu::stream(), &second),
            TERN_ERR_WOULD_BLOCK);
  EXPECT_NE(tern_cuda_wait(cuda, first, 0), TERN_OK);
  EXPECT_EQ(tern_cuda_wait(cuda, first, 0), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_EQ(tern_cuda_tensor_release(bound[1]), TERN_OK);
  EXPECT_EQ(tern_cuda_close(cuda), TERN_OK);
}

// The device has encoded, libtern has reduced, and then the context is lost.
TEST_F(CudaFaults, AContextThatIsLostWhileResultsAreDecodedEndsTheOperation) {
  std::atomic<bool> decodes{false};
  const auto usual = emulated_kernels(gpu_.fake());
  gpu_.fake().set_runner([&, usual](const gpu::FakeCuda::KernelCall& call) {
    if (call.kernel == "tern_threelc_decode") {
      gpu_.fake().hold_callbacks(true);
      decodes.store(true);
    }
    return usual(call);
  });
  auto beside = input(10);
  const auto theirs = other_.all_reduce(beside);
  tern_ticket ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
  EXPECT_TRUE(e2e::eventually([&] {
    gpu_.fake().run_all();
    return decodes.load();
  }));
  gpu_.fake().lose_context(700);
  EXPECT_EQ(tern_cuda_wait(gpu_node().cuda(), ticket, 60000), TERN_ERR_INTERNAL);
  other_.wait(theirs);
  gpu_.fake().lose_context(gpu::kSuccess);
  gpu_.fake().hold_callbacks(false);
  EXPECT_TRUE(e2e::eventually([&] { return gpu_.fake().run_all(); }));
}

TEST_F(CudaFaults, AnOperationThatMakesNoSenseIsRefused) {
  tern_ticket ticket = 0;
  const auto refused = [&](const tern_cuda_op& bad) {
    return tern_cuda_all_reduce(gpu_node().tensor(), &bad, FakeGpu::stream(), &ticket) ==
           TERN_ERR_INVALID_ARGUMENT;
  };
  tern_cuda_op bad = op();
  bad.struct_size = 12;
  EXPECT_TRUE(refused(bad));
  bad = op();
  bad.input += 4;
  EXPECT_TRUE(refused(bad));
  bad = op();
  bad.output = 0;
  EXPECT_TRUE(refused(bad));
  bad = op();
  bad.output = bad.input + 64;
  EXPECT_TRUE(refused(bad));
  EXPECT_TRUE(gpu_node().stream_is_free());
}

TEST_F(CudaFaults, ACancelledOperationLetsTheStreamGoOn) {
  expect_good_step(0);
  tern_ticket ticket = 0;
  // One that the daemon has, and one that is not even encoded.
  for (const bool is_encoded : {true, false}) {
    gpu_.fake().hold_callbacks(!is_encoded);
    ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
    gpu_.fake().run_all();
    EXPECT_EQ(tern_cuda_cancel(gpu_node().cuda(), ticket), TERN_OK);
    gpu_.fake().hold_callbacks(false);
    EXPECT_EQ(gpu_node().finish(ticket), TERN_ERR_CANCELLED);
    EXPECT_EQ(tern_cuda_cancel(gpu_node().cuda(), ticket), TERN_ERR_UNKNOWN_TICKET);
    expect_untouched();
  }
}

// The group ends while a stream waits.
TEST_F(CudaFaults, AnOperationThatFailsLetsTheStreamGoOn) {
  tern_ticket ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
  gpu_.fake().run_all();
  ASSERT_EQ(tern_group_leave(other_.group()), TERN_OK);
  const tern_status status = gpu_node().finish(ticket);
  EXPECT_TRUE(status == TERN_ERR_GROUP_LEFT || status == TERN_ERR_EPOCH_ENDED) << status;
  EXPECT_STRNE(tern_cuda_error_detail(), "");
  expect_untouched();
}

// A reduction that the other rank does not say: the operation fails on both, and the group goes on.
TEST_F(CudaFaults, WhatFailsLeavesTheResidualAsItWas) {
  expect_good_step(0);
  auto beside = input(10);
  tern_op odd = TERN_OP_INIT;
  odd.tensor = other_.tensor();
  odd.input = odd.output = beside.data();
  odd.reduction = TERN_MIN;
  tern_ticket theirs = 0, ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(5), ticket), TERN_OK);
  gpu_.fake().run_all();
  ASSERT_EQ(tern_all_reduce(other_.group(), &odd, &theirs), TERN_OK);
  EXPECT_EQ(gpu_node().finish(ticket), TERN_ERR_MISMATCH);
  expect_untouched();
  EXPECT_EQ(tern_wait(other_.client(), theirs, 60000), TERN_ERR_MISMATCH);
  expect_good_step(1);
  expect_good_step(2);
}

TEST_F(CudaFaults, ALostContextEndsTheOperation) {
  tern_ticket ticket = 0;
  ASSERT_EQ(gpu_node().all_reduce(input(), ticket), TERN_OK);
  gpu_.fake().lose_context(700);
  EXPECT_EQ(tern_cuda_wait(gpu_node().cuda(), ticket, 60000), TERN_ERR_INTERNAL);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("the CUDA context is lost"));
  const tern_cuda_op again = op();
  EXPECT_EQ(tern_cuda_all_reduce(gpu_node().tensor(), &again, FakeGpu::stream(), &ticket),
            TERN_ERR_INTERNAL);
  // What the test itself made is to be given back, and what the fake still has to be done.
  gpu_.fake().lose_context(gpu::kSuccess);
  EXPECT_TRUE(e2e::eventually([&] { return gpu_.fake().run_all(); }));
}

}  // namespace faults_test
}  // namespace tern::cuda
