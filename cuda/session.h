#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/completion_thread.h"
#include "cuda/include/tern/cuda.h"
#include "gpu/following_streams.h"

// What tern_cuda_open makes: driver, kernels and streams of one context, the operations in flight,
// and the thread that completes them.
namespace tern::cuda {

class Session {
 public:
  struct Options {
    std::string driver = "libcuda.so.1";
    const void* image = nullptr;
    std::uint32_t operations = 64;
  };
  static Result<std::unique_ptr<Session>> open(tern_client* client, const Options& options);
  // Requires: no tensor is bound.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Result<std::unique_ptr<BoundTensor>> bind(tern_group* group, tern_tensor* tensor);
  // The tensor is gone, unless an operation on it is in flight.
  Status release(std::unique_ptr<BoundTensor>& tensor);
  bool has_tensors() const { return tensors_.load() != 0; }

  struct Work {
    gpu::DeviceAddress input;
    gpu::DeviceAddress output;
    tern_reduction reduction;
    float state_scale;
    std::int32_t priority;
    bool stream_waits;
  };
  Result<tern_ticket> all_reduce(BoundTensor& tensor, const Work& work, gpu::Stream program);
  Error wait(tern_ticket ticket, std::int64_t timeout_ms) {
    return table_.wait(ticket, timeout_ms);
  }
  Status cancel(tern_ticket ticket);

  Result<StatePart> export_state(BoundTensor& tensor);
  struct Parts {
    const void* const* parts;
    const std::uint64_t* bytes;
    std::uint32_t count;
  };
  Status import_state(BoundTensor& tensor, const Parts& parts);

  tern_cuda_stats stats() const { return use_.stats(); }

 private:
  Session(tern_client* client, std::uint32_t operations) : client_(client), table_(operations) {}

  Status set_up(const Options& options);
  static Result<BoundTensor::NextUse> prepare(BoundTensor& tensor);
  Status enqueue(Operation& operation, const Work& work, gpu::Stream program);
  Status enqueue_encoding(Operation& operation, const EncodePass::Input& input);
  Status call_behind_encoding(const Operation& operation);
  void give_up(Operation& operation);

  tern_client* client_;
  std::unique_ptr<gpu::Driver> driver_;
  std::unique_ptr<gpu::Kernels> kernels_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<gpu::FollowingStreams> encode_streams_;
  std::unique_ptr<gpu::OwnStream> decode_stream_;
  std::unique_ptr<gpu::StreamOrder> order_;
  std::unique_ptr<gpu::StreamWords> words_;
  std::unique_ptr<Mailbox> mailbox_;
  OperationTable table_;
  DeviceUse use_;
  SteadyClock clock_;
  std::unique_ptr<DeviceReporter> reporter_;
  // One thread enqueues at a time, so that an event is recorded and waited for by the same. The
  // completion thread never takes it: a call of the driver under it may wait for that thread's work.
  std::mutex enqueue_mutex_;
  std::atomic<std::uint64_t> tensors_{0};
  std::unique_ptr<CompletionThread> thread_;
};

}  // namespace tern::cuda
