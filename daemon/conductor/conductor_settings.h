#pragma once

#include <cstdint>
#include <string>

#include "daemon/access/sub_users.h"
#include "daemon/config/config_sections.h"
#include "daemon/config/descriptor_budget.h"
#include "daemon/service/mapping_limit.h"
#include "net/link.h"

namespace tern::daemon {

struct ConductorSettings {
  net::Endpoint advertise;
  OpSettings ops;
  TensorSettings tensors;
  Admission admission;
  Limits limits;
  std::uint64_t own_bytes = 0;  // the daemon's own part of max_memory_bytes
  SubUsers sub_users;           // what a user has is counted for its owner
  DescriptorBudget descriptors;
  MappingLimit max_mappings;
  std::uint64_t handshake_timeout_ns = 5'000'000'000;
  std::uint64_t spin_ns = 20'000;
  std::uint32_t cores = 1;
  std::uint32_t active_chunks = 64;
  std::string flight_directory;  // empty: no files are written
  net::LinkSettings link;
};

}  // namespace tern::daemon
