#pragma once

// Who takes part in an epoch and what was agreed: the body of the control message `members`
// (docs/wire-format.md, "Control messages"), which a coordinator writes and its members read.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/transport.h"
#include "wire/frame.h"

namespace tern::daemon {

// Of 16 random bytes: the name of a join, which its member draws.
inline constexpr std::size_t kNonceDigits = 32;
inline constexpr std::int64_t kMaxRanks = 1024;

struct MemberList {
  struct Node {
    wire::NodeId id;
    net::Endpoint endpoint;
    std::vector<std::uint32_t> ranks;
    std::vector<std::string> nonces;  // of the joins of these ranks, in their order
  };
  std::uint32_t epoch = 0;
  std::uint32_t size = 0;  // ranks, of all nodes
  std::string incarnation;
  std::uint64_t last_common_op = 0;
  std::uint32_t lanes = 1;
  std::uint64_t chunk_bytes = 0, eager_bytes = 0, lossy_min_bytes = 0;
  std::uint32_t cut = 1;          // shm::CutVersion, perhaps one that this node does not know
  std::uint32_t eager_form = 1;   // EagerForm, as well
  std::uint32_t rooted_form = 1;  // RootedForm, as well
  std::uint32_t max_ops = 0;
  std::uint64_t op_timeout_ms = 0;
  std::uint64_t seed = 0;
  bool verify = false;
  std::vector<Node> nodes;

  // Null if it is not there.
  const Node* find(const wire::NodeId& node) const;
};

// Foreign text: every rank and node is there once, and no more than a group may have. Whether this
// node can work with what was agreed is another question.
Result<MemberList> parse_member_list(const nlohmann::json& body);

// As a member says where it is.
std::optional<net::Endpoint> parse_address(const std::string& text);

}  // namespace tern::daemon
