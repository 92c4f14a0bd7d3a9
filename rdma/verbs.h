#pragma once

// The handles of libibverbs, each owned by one object. They are destroyed in the reverse order of
// their making, as the verbs require, when they are members in that order.

#include <infiniband/verbs.h>

#include <memory>

namespace tern::rdma {

template <auto Destroy>
struct VerbsDeleter {
  template <typename Handle>
  void operator()(Handle* handle) const noexcept {
    // Fails only for a device that is gone, whose kernel side is gone too.
    static_cast<void>(Destroy(handle));
  }
};

using DeviceHandle = std::unique_ptr<ibv_context, VerbsDeleter<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, VerbsDeleter<ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, VerbsDeleter<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, VerbsDeleter<ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, VerbsDeleter<ibv_destroy_qp>>;
using MemoryRegion = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>>;

}  // namespace tern::rdma
