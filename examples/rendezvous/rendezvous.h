#pragma once

// How the group id gets from rank 0 to the others in these examples: by a file that all of them
// see. A cluster would use torchrun's store, MPI or Slurm in its place.

#include <string>

#include "tern/tern.hpp"

namespace tern::rendezvous {

// Joins the group whose id rank 0 makes and writes to the file. The others wait for the file, for
// options.timeout_ms at most, and then all wait for one another. The file can be read by this user
// alone, because the id contains the group's secret; a reader sees all of it or nothing. Rank 0
// removes it at the end, when all have read it: the next run meets an old one only where rank 0 was
// killed meanwhile. Throws tern::Error or std::runtime_error.
Group join_by_file(Client& client, const std::string& path, const tern_join_options& options);
// With the usual options.
Group join_by_file(Client& client, const std::string& path, int rank, int size);

}  // namespace tern::rendezvous
