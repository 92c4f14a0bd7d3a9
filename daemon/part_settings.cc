#include "daemon/part_settings.h"

#include <algorithm>

#include "daemon/lane/lane_links.h"
#include "daemon/lane/lane_resources.h"
#include "daemon/lane/mapping.h"
#include "daemon/service/mapping_limit.h"
#include "daemon/service/memory_limit.h"

namespace tern::daemon {
namespace {

net::LinkSettings link_settings(const Config& config) {
  net::LinkSettings settings;
  settings.heartbeat_ns = config.heartbeat_ns;
  settings.peer_timeout_ns = config.peer_timeout_ns;
  // Who may be silent for so long may be so in the middle of a frame.
  settings.frame_timeout_ns = std::max(settings.frame_timeout_ns, 2 * config.peer_timeout_ns);
  settings.resume_timeout_ns = config.resume_timeout_ns;
  settings.unused_timeout_ns = config.unused_timeout_ns;
  return settings;
}

// The memory of this process, where nothing else is said.
Limits limits_of(const Config& config) {
  Limits limits = config;
  if (limits.max_memory_bytes == 0) limits.max_memory_bytes = memory_limit_bytes();
  return limits;
}

// What the daemon takes beside arenas and codec state.
std::uint64_t own_bytes(const Config& config) {
  constexpr std::uint64_t kProgramAndLinks = std::uint64_t{128} << 20;
  return kProgramAndLinks +
         config.lanes * (lane_settings(config).slab_bytes() + LaneLinks::kMostHeldBytes);
}

}  // namespace

ConductorSettings conductor_settings(const Config& config, const Surrounding& found) {
  ConductorSettings settings;
  const Endpoint advertise = advertised_endpoint(config, found.bound_port);
  settings.advertise = {advertise.host, advertise.port};
  settings.ops = config;
  settings.ops.eager_bytes = std::min(config.eager_bytes, config.chunk_bytes);
  settings.tensors = config;
  settings.admission = config;
  settings.limits = limits_of(config);
  settings.own_bytes = own_bytes(config);
  settings.sub_users = found.sub_users;
  settings.descriptors = descriptor_budget(config, descriptor_limit());
  settings.max_mappings = mapping_limit();
  settings.handshake_timeout_ns = config.handshake_timeout_ns;
  settings.spin_ns = config.spin_ns;
  settings.cores = found.cores;
  settings.active_chunks = 2 * config.result_slabs;
  settings.flight_directory = flight_directory(config);
  settings.link = link_settings(config);
  return settings;
}

Status check_lane_room(const Config& config) {
  const auto room =
      Mapping::make(config.lanes * LaneResources::mapped_bytes(lane_settings(config)));
  if (room) return {};
  return fail(room.error().code, "lanes: no room for their slabs: " + room.error().text +
                                     "; set fewer lanes, fewer slabs or a smaller chunk_bytes");
}

LaneSettings lane_settings(const Config& config) {
  LaneSettings settings;
  settings.chunk_bytes = config.chunk_bytes;
  settings.receive_slabs = config.receive_slabs;
  settings.send_slabs = config.send_slabs;
  settings.result_slabs = config.result_slabs;
  settings.port_bytes = config.switch_port_bytes;
  settings.link = link_settings(config);
  return settings;
}

}  // namespace tern::daemon
