#include "daemon/membership/group_split.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

// Another id at the same place. Different texts give ids that have nothing to do with each other.
GroupId derive(const GroupId& from, const std::string& text) {
  GroupId id = from;
  const Digest uid = hmac_sha256(from.secret, {bytes_of("tern split uid:"), bytes_of(text)});
  std::copy_n(uid.begin(), id.uid.size(), id.uid.begin());
  id.secret = hmac_sha256(from.secret, {bytes_of("tern split secret:"), bytes_of(text)});
  return id;
}

}  // namespace

std::string text_of(const SplitTerms& split) {
  return split.parent + ":" + std::to_string(split.epoch) + ":" + std::to_string(split.sequence) +
         ":" + std::to_string(split.color) + ":" + std::to_string(split.key);
}

GroupId gathering_id(const GroupId& parent, const SplitPoint& split) {
  return derive(parent, "gathering:" + std::to_string(split.epoch) + ":" + split.incarnation + ":" +
                            std::to_string(split.sequence));
}

GroupId child_id(const GroupId& gathering, std::int64_t color) {
  return derive(gathering, "child:" + std::to_string(color));
}

std::map<std::int64_t, std::vector<std::uint32_t>> divide(std::span<const SplitRank> ranks) {
  std::vector<SplitRank> ordered(ranks.begin(), ranks.end());
  std::sort(ordered.begin(), ordered.end(), [](const SplitRank& a, const SplitRank& b) {
    return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
  });
  std::map<std::int64_t, std::vector<std::uint32_t>> divided;
  for (const SplitRank& one : ordered) {
    divided[std::max<std::int64_t>(one.color, -1)].push_back(one.rank);
  }
  return divided;
}

}  // namespace tern::daemon
