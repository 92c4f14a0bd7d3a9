#pragma once

// What a member says when one of its ranks joins a group: the control message `join`
// (docs/wire-format.md, "Control messages").

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "daemon/membership/group_split.h"

namespace tern::daemon {

// Only what is known of it is kept: whatever else the message has costs nobody memory. Numbers are
// as they were said, and may be nonsense.
struct JoinTerms {
  std::string node;     // node id, text
  std::string address;  // where its daemon listens
  std::string nonce;    // names the join in all that is said of it
  std::int64_t rank = -1, size = -1;
  // What the member can do, of which the group agrees on the least.
  std::int64_t lanes = 1, chunk_bytes = 0, eager_bytes = 0, max_ops = 0;
  std::int64_t cut = 1;          // shm::CutVersion
  std::int64_t eager_form = 1;   // collective::EagerForm
  std::int64_t rooted_form = 1;  // collective::RootedForm
  // Of which it agrees on the most.
  std::int64_t lossy_min = 0, op_timeout_ms = 0;
  bool verify = false;
  std::int64_t seed = 0;
  std::int64_t completed = 0;       // operations of the epochs before
  std::optional<SplitTerms> split;  // none: to a group that was minted
};

// None: it does not say who joins, from where, or by which name.
std::optional<JoinTerms> parse_join_terms(const nlohmann::json& message);

}  // namespace tern::daemon
