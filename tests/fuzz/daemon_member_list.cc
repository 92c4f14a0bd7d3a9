// What a coordinator says of an epoch: refused, or every rank and node is there once.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/check.h"
#include "collective/group_ops.h"
#include "daemon/control/foreign_json.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/member_list.h"

using namespace tern;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  if (daemon::objection_to_json(text) != nullptr) return 0;
  const auto list = daemon::parse_member_list(nlohmann::json::parse(text, nullptr, false));
  if (!list) {
    TERN_CHECK(list.error().code == Errc::protocol_error);
    return 0;
  }
  std::set<std::uint32_t> ranks;
  std::set<std::string> nodes;
  for (const auto& node : list->nodes) {
    TERN_CHECK(nodes.insert(daemon::node_text(node.id)).second);
    TERN_CHECK(node.ranks.size() <= collective::kMaxLocalRanks);
    TERN_CHECK(node.ranks.size() == node.nonces.size());
    TERN_CHECK(!node.endpoint.host.empty() && node.endpoint.port != 0);
    for (const auto rank : node.ranks) TERN_CHECK(rank < list->size && ranks.insert(rank).second);
  }
  TERN_CHECK(ranks.size() == list->size && nodes.size() <= collective::kMaxNodes);
  return 0;
}
