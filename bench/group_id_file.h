#pragma once

#include <string>

#include "client_lib/include/tern/tern.h"

namespace tern::bench {

// How the ranks of a measurement learn the group's id. Both throw std::runtime_error.
// The file is complete when it appears.
void publish_group_id(const std::string& path, const tern_group_id& id);
// Waits for it for a minute.
tern_group_id await_group_id(const std::string& path);

}  // namespace tern::bench
