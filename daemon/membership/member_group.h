#pragma once

// What the conductor keeps of an epoch that ranks of this node are in, from its list of members to
// the last word of the lanes.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collective/group_shape.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/declared_names.h"
#include "daemon/membership/declared_tensors.h"
#include "daemon/membership/group_id.h"
#include "daemon/membership/group_split.h"
#include "daemon/service/log.h"
#include "shm/sharding.h"

namespace tern::daemon {

class LaneGroup;

// Clients and messages speak of milliseconds. For ever is so long that a sum does not overflow.
constexpr std::uint64_t ns_of_ms(std::uint64_t ms) noexcept {
  constexpr std::uint64_t kNsPerMs = 1'000'000;
  constexpr std::uint64_t kForEverMs = std::numeric_limits<std::uint64_t>::max() / 4 / kNsPerMs;
  return std::min(ms, kForEverMs) * kNsPerMs;
}

// Each field of the two that follow is written by the conductor's part that it stands under.
struct MemberRank {
  enum class Phase : std::uint8_t {
    joining,
    joined,   // the client has been told
    leaving,  // it has asked, or said goodbye, and not all lanes have released the rank
    left,
  };
  // ---- As the epoch begins: Epochs ----
  std::uint32_t rank = 0;
  std::uint64_t client = 0;
  std::uint64_t join_request = 0;  // to be answered when the epoch starts

  // ---- Groups ----
  std::uint64_t leave_request = 0;  // to be answered when all lanes have released the rank
  std::uint32_t released = 0;       // lanes
  Phase phase = Phase::joining;

  // ---- Splits ----
  std::int64_t splits = 0;  // how often the epoch was split
};

struct MemberGroup {
  enum class Phase : std::uint8_t {
    starting,
    running,   // all its ranks have been told
    ended,     // by end_code
    removing,  // from the lanes: no rank is left in it
  };

  // ---- As the epoch begins: Epochs ----
  std::uint64_t number = 0;
  GroupId id;
  std::string uid;
  // By which splits and colours it has come, "0:2/1:0/"; empty: it was minted. What is kept of a
  // tensor for its next declaration goes with it.
  std::string lineage;
  std::string job;
  std::uint32_t uid_of_user = 0;
  std::uint32_t account = 0;         // its owner, for whom it is counted (SubUsers)
  std::vector<std::uint32_t> users;  // of each rank of this node, also when its client is gone
  LinkRef coordinator = kSelf;
  std::uint32_t epoch = 0;
  std::string incarnation;  // of the epoch: a random name that only daemons of its members know
  std::uint32_t size = 0;
  std::uint32_t node = 0;
  std::uint32_t lane_count = 1;
  std::uint64_t last_common_op = 0;
  std::uint64_t chunk_bytes = 0, eager_bytes = 0, max_ops = 0, lossy_min_bytes = 0;
  std::uint64_t memory_bytes = 0;  // beside codec state, for the account
  std::uint64_t seed = 0;          // of all random draws of recipes
  shm::CutVersion cut = shm::CutVersion::full;
  collective::EagerForm eager_form = collective::EagerForm::elements;
  std::vector<std::string> addresses;  // of the nodes
  std::vector<std::vector<std::uint32_t>> ranks_of_node;
  std::vector<MemberRank> ranks;  // of this node
  std::vector<std::unique_ptr<LaneGroup>> lanes;
  std::uint64_t start_deadline_ns = 0;

  // ---- Groups ----
  std::uint32_t lanes_ready = 0;
  std::uint32_t lanes_removed = 0;
  Phase phase = Phase::starting;
  Errc end_code = Errc::ok;
  std::string end_text;

  // ---- TensorRegistry ----
  DeclaredTensors tensors;
  DeclaredNames names;

  MemberGroup();
  ~MemberGroup();
  MemberGroup(const MemberGroup&) = delete;
  MemberGroup& operator=(const MemberGroup&) = delete;

  bool has_ended() const noexcept { return phase >= Phase::ended; }
  // Of every chunk but the last of a tensor that is cut as a whole.
  std::uint64_t chunk_elements(std::uint64_t count, DType dtype) const noexcept {
    return shm::elements_of_chunk(cut, count, shm::most_chunk_elements(chunk_bytes, dtype),
                                  addresses.size());
  }

  // Of one of this group's ranks: its index on this node, and its bit in `holders`.
  std::size_t index_of(const MemberRank& rank) const noexcept {
    return static_cast<std::size_t>(&rank - ranks.data());
  }
  std::uint64_t bit_of(const MemberRank& rank) const noexcept {
    return std::uint64_t{1} << index_of(rank);
  }

  // Null: the client is not, or no longer, a rank of the group.
  MemberRank* rank_of_client(std::uint64_t client) {
    const auto found = std::find_if(ranks.begin(), ranks.end(), [client](const MemberRank& rank) {
      return rank.client == client && rank.phase != MemberRank::Phase::left;
    });
    return found == ranks.end() ? nullptr : &*found;
  }
  // Null: no such tensor is declared.
  const TensorState* tensor(std::uint64_t tensor_id) const {
    const DeclaredTensor* const found = tensors.find(tensor_id);
    return found == nullptr ? nullptr : found->state.get();
  }
  // "node 1 (10.0.0.7:7700, ranks 2,3)".
  std::string node_name(std::uint32_t number_of_node) const;
};

// The first eight digits of a uid, for logs.
inline std::string_view short_uid(std::string_view uid) { return uid.substr(0, 8); }

inline LogFields log_fields(const MemberGroup& group) {
  return {.job = group.job, .group = short_uid(group.uid)};
}

// "3,7", for texts about ranks.
inline std::string join_numbers(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

}  // namespace tern::daemon
