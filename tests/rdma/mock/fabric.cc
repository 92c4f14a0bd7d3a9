#include "tests/rdma/mock/fabric.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/rdma/mock/parts.h"

namespace tern::rdma::mock {
namespace {

Fabric* the_fabric = nullptr;
thread_local int depth = 0;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "mock verbs: %s\n", what);
  std::abort();
}

}  // namespace

Inside::Inside() noexcept { ++depth; }
Inside::~Inside() { --depth; }
bool is_inside() noexcept { return depth > 0; }

ibv_gid gid_of(const Port& port) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  require(::inet_pton(AF_INET, port.address.c_str(), &gid.raw[12]) == 1, "an address is none");
  return gid;
}

void Fabric::Parts::require_all_acked() const {
  require(events_not_acked == 0, "an event was not acknowledged");
}

Fabric::Parts& current() {
  require(the_fabric != nullptr, "there is no fabric");
  return the_fabric->parts();
}

Fabric::Fabric(std::vector<DeviceShape> devices) : parts_(std::make_unique<Parts>()) {
  require(the_fabric == nullptr, "there is a fabric already");
  the_fabric = this;
  parts_->fabric = this;
  std::string folder = (std::filesystem::temp_directory_path() / "tern-verbs-XXXXXX").string();
  require(::mkdtemp(folder.data()) != nullptr, "no folder for the nodes");
  nodes_ = folder;
  for (DeviceShape& shape : devices) {
    MockDevice& device = parts_->devices.emplace_back();
    const std::string node = "uverbs" + std::to_string(parts_->devices.size() - 1);
    std::snprintf(device.device.name, sizeof device.device.name, "%s", shape.name.c_str());
    std::snprintf(device.device.dev_name, sizeof device.device.dev_name, "%s", node.c_str());
    device.shape = std::move(shape);
    std::ofstream(nodes_ / node) << "";
  }
}

Fabric::~Fabric() {
  const bool left = !parts_->contexts.empty() || !parts_->channels.empty() ||
                    !parts_->queues.empty() || !parts_->regions.empty() || !parts_->pairs.empty();
  require(!left, "a handle has not been destroyed");
  require(registered_bytes == 0, "memory is still registered");
  std::error_code ignored;
  std::filesystem::remove_all(nodes_, ignored);
  the_fabric = nullptr;
}

std::size_t Fabric::open_contexts() const noexcept { return parts_->contexts.size(); }

namespace {
MockDevice& device_at(Fabric::Parts& parts, std::size_t index) {
  return *std::next(parts.devices.begin(), static_cast<std::ptrdiff_t>(index));
}
}  // namespace

void Fabric::set_port(std::size_t device, std::uint8_t port, ibv_port_state state) {
  MockDevice& changed = device_at(*parts_, device);
  changed.shape.ports[port - 1u].state = state;
  for (Context& context : parts_->contexts) {
    if (context.device != &changed) continue;
    ibv_async_event event{};
    event.event_type = state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
    event.element.port_num = port;
    parts_->raise(context, event);
  }
}

void Fabric::change_gid(std::size_t device, std::uint8_t port, std::string address) {
  MockDevice& changed = device_at(*parts_, device);
  changed.shape.ports[port - 1u].address = std::move(address);
  for (Context& context : parts_->contexts) {
    if (context.device != &changed) continue;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_GID_CHANGE;
    event.element.port_num = port;
    parts_->raise(context, event);
  }
}

void Fabric::remove(std::size_t device) {
  MockDevice& removed = device_at(*parts_, device);
  removed.removed = true;
  remove_node(device);
  raise(device, IBV_EVENT_DEVICE_FATAL);
}

void Fabric::remove_node(std::size_t device) {
  std::filesystem::remove(nodes_ / device_at(*parts_, device).device.dev_name);
}

void Fabric::add(std::size_t device) {
  MockDevice& added = device_at(*parts_, device);
  added.removed = false;
  std::ofstream(nodes_ / added.device.dev_name) << "";
}

void Fabric::raise(std::size_t device, ibv_event_type type) {
  for (Context& context : parts_->contexts) {
    if (context.device != &device_at(*parts_, device)) continue;
    ibv_async_event event{};
    event.event_type = type;
    for (auto& [number, pair] : parts_->pairs) {
      if (pair.pair.context != &context.context) continue;
      if (type == IBV_EVENT_CQ_ERR) {
        event.element.cq = pair.pair.recv_cq;
      } else if (type == IBV_EVENT_QP_FATAL) {
        event.element.qp = &pair.pair;
      }
    }
    parts_->raise(context, event);
  }
}

}  // namespace tern::rdma::mock
