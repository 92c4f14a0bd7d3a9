#pragma once

// What one seed does: who is where, which tensors and ops there are, and what goes wrong when.

#include <cstdint>
#include <string>
#include <vector>

#include "client.h"
#include "shm/sharding.h"
#include "world.h"

namespace tern::sim {

struct PlannedOp {
  OpRequest request;
  int tensor = -1;  // index, or anonymous
  std::uint64_t sequence = 0;
  bool in_place = false;
  bool mismatched = false;  // one rank says another count
  bool cancelled = false;   // one rank cancels it some time
  int values = 0;           // what the inputs are like
};

enum class Trouble : std::uint8_t {
  none,
  slow,       // frames are delayed, nothing is lost
  transient,  // frames are lost, doubled, reordered, cut; links recover or are lost
  corrupt,    // headers and payloads have wrong bits
  partition,
  daemon_death,
  client_death,
};
const char* trouble_name(Trouble trouble);

struct Plan {
  std::vector<DaemonShape> daemons;
  std::vector<std::size_t> daemon_of_rank;
  std::vector<TensorSpec> tensors;
  std::vector<PlannedOp> ops;
  std::vector<PlannedOp> ops_after;  // when all is well again
  bool verify = false;
  shm::CutVersion cut = shm::CutVersion::full;                         // even seeds have another
  collective::EagerForm eager_form = collective::EagerForm::elements;  // of four seeds two another
  collective::RootedForm rooted_form = collective::RootedForm::direct;
  Trouble trouble = Trouble::none;
  net::FaultSettings faults;
};

Plan make_plan(std::uint64_t seed);

// The input of a rank for an op.
std::vector<std::byte> make_input(const PlannedOp& op, std::uint64_t seed, std::uint32_t rank,
                                  std::size_t op_index);

}  // namespace tern::sim
