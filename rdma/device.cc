#include "rdma/device.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

namespace tern::rdma {
namespace {

struct DeviceListDeleter {
  void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};
using DeviceList = std::unique_ptr<ibv_device*, DeviceListDeleter>;

// `devices` of the settings names this port, or everything.
bool is_allowed(std::string_view devices, std::string_view device, std::uint8_t port) {
  if (devices.empty()) return true;
  while (!devices.empty()) {
    const std::size_t comma = devices.find(',');
    std::string_view entry = devices.substr(0, comma);
    devices.remove_prefix(comma == std::string_view::npos ? devices.size() : comma + 1);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    if (entry == device || entry == std::string(device) + ":" + std::to_string(port)) return true;
  }
  return false;
}

bool is_mapped_ipv4(const ibv_gid& gid) {
  constexpr std::array<std::uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix.data(), kPrefix.size()) == 0;
}

// Routable before local, RoCE v2 before v1.
int preference(const ibv_gid_entry& entry) {
  const bool link_local = entry.gid.raw[0] == 0xfe && entry.gid.raw[1] == 0x80;
  switch (entry.gid_type) {
    case IBV_GID_TYPE_ROCE_V2:
      return is_mapped_ipv4(entry.gid) ? 5 : link_local ? 3 : 4;
    case IBV_GID_TYPE_IB:
      return 2;
    case IBV_GID_TYPE_ROCE_V1:
      return 1;
  }
  return 0;
}

std::string memory_lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "; the memory-lock limit is " + std::to_string(limit.rlim_cur >> 10) +
         " KiB: raise it (LimitMEMLOCK=infinity in the service's unit, or ulimit -l unlimited)";
}

std::string node_of(const RdmaSettings& settings, const ibv_device& device) {
  return settings.node_directory + "/" + device.dev_name;
}

std::string remedy_of_open(int error) {
  switch (error) {
    case EPERM:  // by the cgroup's list of devices
      return "; install the drop-in share/tern/drop-ins/rdma.conf for its unit, "
             "docs/operations.md";
    case EACCES:
      return "; the daemon's user needs to read and write it";
    case ENOENT:
    case ENXIO:
      return "; load the module ib_uverbs";
    default:
      return "";
  }
}

// Empty, or why the device cannot be opened. libibverbs would wait 5 s for a node that it cannot
// open to change (open_cdev_robust()), in the lane that asks.
std::string node_problem(const RdmaSettings& settings, ibv_device& device) {
  const std::string node = node_of(settings, device);
  if (::access(node.c_str(), R_OK | W_OK) == 0) return "";
  const int error = errno;
  return std::string("; ") + ibv_get_device_name(&device) + ": " + node +
         " cannot be opened: " + std::strerror(error) + remedy_of_open(error);
}

}  // namespace

bool Device::exists() {
  int count = 0;
  const DeviceList list(ibv_get_device_list(&count));
  return list && count != 0;
}

Result<std::shared_ptr<Device>> Device::open(const RdmaSettings& settings) {
  int count = 0;
  const DeviceList list(ibv_get_device_list(&count));
  if (!list || count == 0) {
    return fail(
        Errc::unsupported,
        "there is no RDMA device: `rdma link show` lists them; the package rdma-core and the "
        "card's kernel module are needed");
  }
  std::vector<std::shared_ptr<Device>> usable;
  std::string reasons;
  bool is_down = false;  // one of them is, for now
  for (int i = 0; i < count; ++i) {
    ibv_device* handle = list.get()[i];
    if (const std::string problem = node_problem(settings, *handle); !problem.empty()) {
      reasons += problem;
      continue;
    }
    const DeviceHandle probe(ibv_open_device(handle));
    if (!probe) {
      reasons += std::string("; ") + ibv_get_device_name(handle) +
                 " cannot be opened: " + std::strerror(errno);
      continue;
    }
    ibv_device_attr attributes{};
    if (ibv_query_device(probe.get(), &attributes) != 0) attributes.phys_port_cnt = 1;
    for (std::uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
      if (!is_allowed(settings.devices, ibv_get_device_name(handle), port)) continue;
      std::shared_ptr<Device> device(new Device);
      const Status opened = device->open_port(settings, *handle, port);
      if (opened) {
        usable.push_back(std::move(device));
      } else {
        reasons += "; " + opened.error().text;
        is_down = is_down || opened.error().code == Errc::unreachable;
      }
    }
  }
  if (usable.empty()) {
    if (reasons.empty()) reasons = "; none is named " + settings.devices;
    return fail(is_down ? Errc::unreachable : Errc::unsupported,
                "no RDMA device is usable" + reasons);
  }
  return usable[settings.lane % usable.size()];
}

Status Device::open_port(const RdmaSettings& settings, ibv_device& device, std::uint8_t port) {
  name_ = std::string(ibv_get_device_name(&device)) + ":" + std::to_string(port);
  port_ = port;
  context_.reset(ibv_open_device(&device));
  if (!context_) return fail_errno(Errc::io_error, name_ + " cannot be opened", errno);
  node_ = node_of(settings, device);
  ibv_device_attr limits{};
  if (const int error = ibv_query_device(context_.get(), &limits); error != 0) {
    return fail_errno(Errc::io_error, name_ + " does not tell its limits", error);
  }
  max_queue_depth_ = static_cast<std::uint32_t>(std::min(limits.max_qp_wr, limits.max_cqe / 4));
  if (Status known = refresh(settings); !known) return known;
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (!domain_) return fail_errno(Errc::io_error, name_ + " gives no protection domain", errno);
  channel_.reset(ibv_create_comp_channel(context_.get()));
  if (!channel_) return fail_errno(Errc::io_error, name_ + " gives no completion channel", errno);
  for (const int fd : {channel_->fd, context_->async_fd}) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  return {};
}

Status Device::refresh(const RdmaSettings& settings) {
  ibv_port_attr attributes{};
  if (const int error = ibv_query_port(context_.get(), port_, &attributes); error != 0) {
    return fail_errno(Errc::io_error, name_ + " cannot be asked for its state", error);
  }
  if (attributes.state != IBV_PORT_ACTIVE) {
    return fail(Errc::unreachable,
                name_ + " is " + ibv_port_state_str(attributes.state) +
                    ": check the cable, the switch and `ip link` of its interface");
  }
  lid_ = attributes.lid;
  mtu_ = attributes.active_mtu;
  if (settings.mtu != 0) {
    while (mtu_ > IBV_MTU_256 && (128u << mtu_) > settings.mtu) {
      mtu_ = static_cast<ibv_mtu>(mtu_ - 1);
    }
  }
  return choose_gid(settings, attributes.link_layer == IBV_LINK_LAYER_ETHERNET);
}

Status Device::choose_gid(const RdmaSettings& settings, bool is_ethernet) {
  std::array<ibv_gid_entry, 256> table{};
  const ssize_t found = ibv_query_gid_table(context_.get(), table.data(), table.size(), 0);
  const ibv_gid_entry* best = nullptr;
  for (ssize_t i = 0; i < found; ++i) {
    const ibv_gid_entry& entry = table[static_cast<std::size_t>(i)];
    if (entry.port_num != port_) continue;
    if (settings.gid_index >= 0) {
      if (entry.gid_index == static_cast<std::uint32_t>(settings.gid_index)) best = &entry;
    } else if (best == nullptr || preference(entry) > preference(*best)) {
      best = &entry;
    }
  }
  if (best == nullptr) {
    const std::string which =
        settings.gid_index < 0 ? "no GID" : "no GID " + std::to_string(settings.gid_index);
    return fail(Errc::invalid_argument,
                name_ + " has " + which +
                    (is_ethernet ? ": give its interface an address; ibv_devinfo -v lists the GIDs"
                                 : ": is the subnet manager running?"));
  }
  gid_ = best->gid;
  gid_index_ = static_cast<std::uint8_t>(best->gid_index);
  gid_type_ = best->gid_type == IBV_GID_TYPE_ROCE_V2   ? wire::GidType::roce_v2
              : best->gid_type == IBV_GID_TYPE_ROCE_V1 ? wire::GidType::roce_v1
                                                       : wire::GidType::infiniband;
  return {};
}

Result<MemoryRegion> Device::register_memory(void* memory, std::size_t bytes, int access) {
  MemoryRegion region(ibv_reg_mr(domain_.get(), memory, bytes, static_cast<unsigned>(access)));
  if (!region) {
    const int error = errno;
    if (error == EFAULT) {
      return fail(Errc::invalid_argument, name_ + " cannot register pages that are absent");
    }
    const bool locked = error == ENOMEM || error == EPERM || error == EAGAIN;
    return fail(Errc::out_of_memory, name_ + " cannot register " + std::to_string(bytes >> 10) +
                                         " KiB: " + std::strerror(error) +
                                         (locked ? memory_lock_limit() : ""));
  }
  return region;
}

bool Device::has_failed(std::string& why, std::vector<Broken>& broken) {
  ibv_async_event event;
  while (failure_.empty() && ibv_get_async_event(context_.get(), &event) == 0) {
    switch (event.event_type) {
      case IBV_EVENT_DEVICE_FATAL:
        failure_ = "the device " + name_ + " was removed";
        break;
      case IBV_EVENT_PORT_ERR:
        if (event.element.port_num == port_) failure_ = "the port " + name_ + " went down";
        break;
      case IBV_EVENT_CQ_ERR:
        broken.push_back({event.element.cq, "its completion queue has overrun or broken"});
        break;
      case IBV_EVENT_QP_FATAL:
        broken.push_back({event.element.qp, "the device has given up a queue pair"});
        break;
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        broken.push_back({event.element.qp, "the peer has broken the rules of a queue pair"});
        break;
      default:
        break;
    }
    ibv_ack_async_event(&event);
  }
  if (failure_.empty() && ::access(node_.c_str(), F_OK) != 0) {
    failure_ = "the device " + name_ + " was removed";
  }
  why = failure_;
  return !failure_.empty();
}

}  // namespace tern::rdma
