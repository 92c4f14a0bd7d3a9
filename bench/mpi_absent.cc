// Stands in for mpi_contestant.cc in programs that are not linked with Open MPI.
#include <stdexcept>

#include "bench/mpi_contestant.h"

namespace tern::bench {

struct MpiNode::State {};

bool MpiNode::available() { return false; }

MpiNode::MpiNode(const Options&) {
  throw std::runtime_error(
      "this program knows no Open MPI: use tern-bench-mpi, which is built where libopenmpi-dev is "
      "installed");
}

MpiNode::~MpiNode() = default;

std::unique_ptr<CollectiveRunner> MpiNode::runner(const CollectiveShape&) { return nullptr; }

}  // namespace tern::bench
