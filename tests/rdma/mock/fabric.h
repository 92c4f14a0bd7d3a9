#pragma once

// A device without hardware: what libibverbs promises of reliable-connected queue pairs, within one
// process and one thread. A program that links it takes these verbs in place of the library's, so
// that Tern's code runs on any machine, under sanitizers, and meets failures no driver can be asked
// for. It is strict where drivers are lenient: a key, a range, a state or a depth that the verbs
// forbid is an error here. Real verbs are in the guest (tests/vm).

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tern::rdma::mock {

struct Port {
  ibv_port_state state = IBV_PORT_ACTIVE;
  ibv_mtu mtu = IBV_MTU_4096;
  std::string address = "10.0.0.1";
  // Its GIDs are this address, once of each kind.
  std::vector<ibv_gid_type> gid_types = {IBV_GID_TYPE_ROCE_V2};
};

struct DeviceShape {
  std::string name = "mock0";
  std::vector<Port> ports = {Port{}};
  int max_queue_depth = 16384;
  std::uint32_t max_inline = 512;
};

// How often Tern has called; all devices together.
struct Calls {
  std::uint64_t post_send = 0, post_receive = 0, poll = 0, notify = 0;
  std::uint64_t sends = 0;      // work requests
  std::uint64_t signalled = 0;  // of them
  std::uint64_t inlined = 0;
  std::uint64_t queue_pairs = 0;  // that were made
};

// The network and its devices. A test makes one, and destroys it after all handles.
class Fabric {
 public:
  explicit Fabric(std::vector<DeviceShape> devices = {DeviceShape{}});
  // REQUIRES: no handle is left.
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // For RdmaSettings::node_directory.
  const std::filesystem::path& nodes() const noexcept { return nodes_; }

  // ---- How the network is
  // Messages are moved when somebody polls, not when they are posted, so that memory that is given
  // back too early is seen.
  bool defers = false;
  // The peer's acknowledgement is seen later than its next message.
  bool completes_late = false;
  // Packets of more payload vanish.
  std::uint32_t carries_bytes = 4096;
  // All packets vanish.
  bool loses_all = false;
  // A message whose packets vanish is sent again whenever messages are moved; then its queue pair
  // has failed. So long a killed peer is not noticed by the device.
  std::uint32_t tries = 2000;

  // ---- What happens to devices
  void set_port(std::size_t device, std::uint8_t port, ibv_port_state state);
  void change_gid(std::size_t device, std::uint8_t port, std::string address);
  void remove(std::size_t device);  // with its node
  void remove_node(std::size_t device);
  void add(std::size_t device);  // one that was removed, with its node
  // An event without further effects, of the newest queue pair if it is of one.
  void raise(std::size_t device, ibv_event_type type);

  // ---- What devices have been asked for
  std::uint64_t max_registered_bytes = ~std::uint64_t{0};
  std::uint64_t registered_bytes = 0;
  std::uint64_t registrations = 0;  // ever
  std::uint64_t attempts = 0;       // to register
  Calls calls;
  // Of the last queue pair that was made ready, as modify_qp was told.
  ibv_qp_attr last_path{};
  ibv_qp_attr last_send_settings{};
  std::size_t open_contexts() const noexcept;

  // For the verbs.
  struct Parts;
  Parts& parts() noexcept { return *parts_; }

 private:
  std::filesystem::path nodes_;
  std::unique_ptr<Parts> parts_;
};

// Whether the program is in the mock now: what it allocates is not Tern's.
bool is_inside() noexcept;

}  // namespace tern::rdma::mock
