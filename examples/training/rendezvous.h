#pragma once

#include <chrono>
#include <string>

#include "tern/tern.hpp"

namespace tern::training {

// How the group id gets from rank 0 to the others here: by a file that all of them see. A cluster
// would use torchrun's store, MPI or Slurm in its place.

// Writes the id so that a reader sees all of it or nothing, readable by this user alone, because it
// contains the group's secret. Throws std::runtime_error.
void publish_group_id(const std::string& path, const tern_group_id& id);

// Waits until the file is there. Throws std::runtime_error when `timeout` has passed.
tern_group_id await_group_id(const std::string& path, std::chrono::milliseconds timeout);

}  // namespace tern::training
