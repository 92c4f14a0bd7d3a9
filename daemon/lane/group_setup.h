#pragma once

// What the conductor tells lanes of a group, and lanes the conductor.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/group_shape.h"
#include "daemon/tensor/recipe_resolver.h"
#include "net/transport.h"
#include "wire/frame.h"

namespace tern::daemon {

// What is known of a group when its epoch starts.
struct GroupSetup {
  std::uint64_t number = 0;   // this daemon's, for SubmitEntry::group
  std::uint64_t token = 0;    // for frames: only who knows the secret can derive it
  std::uint64_t link = 0;     // public bytes of the group's id, by which nodes name its links
  std::uint64_t job = 0;      // what groups of one job on this node have in common
  std::uint32_t account = 0;  // whose job it is: the user, or his owner (SubUsers)
  std::uint32_t weight = 1;   // of the job, against others on this node
  std::uint32_t epoch = 1;
  std::uint32_t size = 1;
  std::uint64_t op_timeout_ns = 0;
  std::uint64_t lossy_min_bytes = 0;
  std::uint64_t seed = 0;  // of all random draws of recipes
  collective::GroupShape shape;
  std::vector<wire::NodeId> node_ids;
  std::vector<net::Endpoint> endpoints;
  std::vector<std::uint64_t> local_clients;  // ClientMemory::id of each local rank
  // Of recipes that ops bring; the group's lanes share it.
  std::shared_ptr<RecipeTexts> recipe_texts = std::make_shared<RecipeTexts>();
};

// An op that some rank has not submitted, for `waiting for ranks ...`. At most kShown ranks are
// named. Of a recv from any source none is missing.
struct WaitingOp {
  static constexpr std::size_t kShown = 28;
  std::uint64_t tensor = 0;
  std::uint64_t sequence = 0;  // of a send or recv the tag
  std::uint64_t kind = 0;      // shm::OpKind
  std::uint64_t since_ns = 0;
  std::uint64_t missing = 0;
  std::array<std::uint32_t, kShown> ranks{};
};

}  // namespace tern::daemon
