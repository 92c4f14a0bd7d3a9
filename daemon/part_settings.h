#pragma once

// What the parts of the daemon are told, of the configuration and of the machine.

#include <cstdint>

#include "base/result.h"
#include "daemon/access/sub_users.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/config/config.h"
#include "daemon/lane/lane_settings.h"

namespace tern::daemon {

// What the configuration does not say.
struct Surrounding {
  std::uint16_t bound_port = 0;  // on which the daemon listens for others
  std::uint32_t cores = 1;
  const SubUsers& sub_users;
};

ConductorSettings conductor_settings(const Config& config, const Surrounding& found);
// Of each lane; its number is the caller's to set.
LaneSettings lane_settings(const Config& config);
// Whether the kernel maps the slabs of all lanes, as their constructors expect.
Status check_lane_room(const Config& config);

}  // namespace tern::daemon
