#pragma once

// A split divides a group into children by colour. Its ranks gather at the parent's coordinator
// under an id that only members of the parent can compute, and each colour becomes a group whose
// secret is derived from that (docs/adr/0026-a-child-is-a-group-of-its-own.md).

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "daemon/membership/group_id.h"

namespace tern::daemon {

// What a rank says of the split, beside what a join says.
struct SplitTerms {
  std::string parent;  // uid, hex
  std::int64_t epoch = 0;
  std::int64_t sequence = 0;  // how often this epoch of the parent was split before
  std::int64_t color = 0;     // negative: the rank takes no part in any child
  std::int64_t key = 0;
};

// All that a proof of the join must cover.
std::string text_of(const SplitTerms& split);

// Which split of a group it is. `incarnation` names the epoch beside its number: only the daemons
// of its members know it, so that no process can tell the ids of splits in advance.
struct SplitPoint {
  std::int64_t epoch = 0;
  std::string incarnation;
  std::int64_t sequence = 0;
};

// Ids at the same coordinator. Of the secret of one nobody learns that of what it was derived from.
GroupId gathering_id(const GroupId& parent, const SplitPoint& split);
GroupId child_id(const GroupId& gathering, std::int64_t color);

struct SplitRank {
  std::int64_t color = 0;
  std::int64_t key = 0;
  std::uint32_t rank = 0;  // in the parent
};
// The parent's ranks by colour, each in the order of its ranks in the child: by key, then by rank.
// Those of negative colours, which become nothing, are together under -1.
std::map<std::int64_t, std::vector<std::uint32_t>> divide(std::span<const SplitRank> ranks);

}  // namespace tern::daemon
