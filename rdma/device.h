#pragma once

// One port of one RDMA device, opened for one lane.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "rdma/rdma_settings.h"
#include "rdma/verbs.h"
#include "wire/rdma.h"

namespace tern::rdma {

class Device {
 public:
  // The `lane`-th usable port of those that the settings allow. The error's text says for each why
  // it is not usable and what to do about it. Errc::unreachable: a port is down, and may come up.
  static Result<std::shared_ptr<Device>> open(const RdmaSettings& settings);
  // Whether the machine has any, usable or not.
  static bool exists();

  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* domain() const noexcept { return domain_.get(); }
  ibv_comp_channel* channel() const noexcept { return channel_.get(); }
  std::uint8_t port() const noexcept { return port_; }
  std::uint8_t gid_index() const noexcept { return gid_index_; }
  wire::GidType gid_type() const noexcept { return gid_type_; }
  const ibv_gid& gid() const noexcept { return gid_; }
  std::uint16_t lid() const noexcept { return lid_; }
  ibv_mtu mtu() const noexcept { return mtu_; }
  std::uint32_t max_queue_depth() const noexcept { return max_queue_depth_; }
  const std::string& name() const noexcept { return name_; }  // `mlx5_0:1`

  // The bytes are only read by the device; nothing of this process is ever opened to a peer.
  // invalid_argument: some of their pages are absent (shm/absent_pages.h). Else out_of_memory.
  Result<MemoryRegion> register_memory(void* memory, std::size_t bytes, int access);

  // Asks for the port's state and addresses anew: an interface gets another address, a subnet
  // manager gives another number. Errc::unreachable: the port is down.
  Status refresh(const RdmaSettings& settings);

  // Reads the events of the device and looks for its node. True: it, or its port, is gone, and
  // `why` says so. A driver that cannot take itself from its users tells no event, and waits until
  // they have closed the device. What events say of single queue pairs is added to `broken`.
  struct Broken {
    const void* handle = nullptr;  // an ibv_qp or an ibv_cq, perhaps destroyed since
    const char* why = nullptr;
  };
  bool has_failed(std::string& why, std::vector<Broken>& broken);

 private:
  Device() = default;
  Status open_port(const RdmaSettings& settings, ibv_device& device, std::uint8_t port);
  Status choose_gid(const RdmaSettings& settings, bool is_ethernet);

  std::string name_;
  std::uint8_t port_ = 0;
  std::uint8_t gid_index_ = 0;
  wire::GidType gid_type_{};
  ibv_gid gid_{};
  std::uint16_t lid_ = 0;
  ibv_mtu mtu_{};
  std::uint32_t max_queue_depth_ = 0;
  std::string node_;     // /dev/infiniband/uverbs0
  std::string failure_;  // set once

  DeviceHandle context_;
  ProtectionDomain domain_;
  CompletionChannel channel_;
};

}  // namespace tern::rdma
