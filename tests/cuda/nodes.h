#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client_lib/include/tern/tern.h"
#include "cuda/include/tern/cuda.h"
#include "gpu/memory.h"
#include "tests/cuda/test_gpu.h"
#include "tests/e2e/cluster.h"

// Two real daemons with a client in this process each, of which one may have its tensor on a GPU.
namespace tern::cuda {

// So that small tensors have chunks: of up to 1500 elements they travel whole, of up to 4096 with
// announcements, and else by themselves.
inline constexpr std::uint64_t kWhole = 1501;
inline constexpr std::uint64_t kAnnounced = 3001;
inline constexpr std::uint64_t kLarge = 20003;
std::vector<std::string> daemon_options();

std::vector<float> gaussian(std::uint64_t count, std::uint64_t seed);

// The daemons that the tests share. A job of its own keeps a test's state apart.
e2e::Cluster& daemons();
std::string new_job();

// A client with one group and one tensor of it.
class Node {
 public:
  Node(const e2e::DaemonProcess& daemon, const std::string& job);
  ~Node() { tern_disconnect(client_); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  tern_client* client() const { return client_; }
  tern_group* group() const { return group_; }
  tern_tensor* tensor() const { return tensor_; }

  // All at once, because each waits for the others.
  static void join(const std::vector<Node*>& nodes, bool verify = false);
  void declare(const char* recipe, std::uint64_t count, bool client_blocks,
               tern_dtype dtype = TERN_F32);
  // What must arrive exactly.
  void declare_weights(const char* recipe, std::uint64_t count, bool client_blocks);
  // All elements are in memory of the test.
  tern_ticket all_reduce(std::vector<float>& values, tern_reduction reduction = TERN_SUM,
                         float state_scale = 0.0f, const char* recipe = nullptr);
  void wait(tern_ticket ticket);

 private:
  void declare(const tern_tensor_options& options);

  tern_client* client_ = nullptr;
  tern_group* group_ = nullptr;
  tern_tensor* tensor_ = nullptr;
};

// A node whose tensor is on the device.
class GpuNode {
 public:
  // `bound`: false leaves the tensor to the test.
  GpuNode(TestGpu& gpu, Node& node, std::uint64_t count, bool bound = true);
  ~GpuNode();
  GpuNode(const GpuNode&) = delete;
  GpuNode& operator=(const GpuNode&) = delete;

  tern_cuda* cuda() const { return cuda_; }
  tern_cuda_tensor* tensor() const { return tensor_; }
  tern_status bind();
  tern_cuda_op op() const;
  tern_cuda_stats stats() const;

  // As a program does it: the input comes by the stream, and the output leaves by it.
  tern_status all_reduce(const std::vector<float>& input, tern_ticket& ticket,
                         const tern_cuda_op* op = nullptr);
  // Runs streams until the operation has ended.
  tern_status finish(tern_ticket ticket);
  // Of the stream, when it has gone on.
  std::vector<float> seen() const;
  // Whether the program's stream has nothing left to do.
  bool stream_is_free() { return gpu_.run(gpu_.program_stream()); }
  // What is in the output now, and before an operation.
  std::vector<float> output();
  void put_output(const std::vector<float>& values);

  tern_reduction reduction = TERN_SUM;
  float state_scale = 0.0f;
  // How the release at the end goes.
  tern_status release_status = TERN_OK;

 private:
  TestGpu& gpu_;
  Node& node_;
  tern_cuda* cuda_ = nullptr;
  tern_cuda_tensor* tensor_ = nullptr;
  std::uint64_t count_;
  std::unique_ptr<gpu::DeviceArray> input_, output_;
  // Pinned, so that copies wait for the stream and not the test.
  std::unique_ptr<gpu::PinnedPages> given_, seen_;
};

// By their bits, so that a NaN is itself.
std::vector<std::uint32_t> bits_of(const std::vector<float>& values);

}  // namespace tern::cuda
