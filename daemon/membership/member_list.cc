#include "daemon/membership/member_list.h"

#include <algorithm>
#include <limits>
#include <set>

#include "collective/group_ops.h"
#include "daemon/config/units.h"
#include "daemon/membership/control_frames.h"

namespace tern::daemon {
namespace {

constexpr std::size_t kMaxAddressBytes = 300;

auto malformed(const std::string& what) {
  return fail(Errc::protocol_error, "the coordinator's list of members is malformed: " + what);
}

Status parse_ranks(const nlohmann::json& said, std::uint32_t size, MemberList::Node& node) {
  const auto ranks = said.find("ranks");
  const auto nonces = said.find("nonces");
  if (ranks == said.end() || nonces == said.end() || !ranks->is_array() || !nonces->is_array() ||
      ranks->empty() || ranks->size() > collective::kMaxLocalRanks ||
      ranks->size() != nonces->size()) {
    return malformed("a node has 1 to 64 ranks, and a nonce for each");
  }
  for (const auto& rank : *ranks) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() >= size) {
      return malformed("a rank is not below the size");
    }
    node.ranks.push_back(rank.get<std::uint32_t>());
  }
  for (const auto& nonce : *nonces) {
    if (!nonce.is_string() || nonce.get<std::string>().size() != kNonceDigits) {
      return malformed("a nonce has 32 digits");
    }
    node.nonces.push_back(nonce.get<std::string>());
  }
  return {};
}

Status parse_nodes(const nlohmann::json& body, MemberList& list) {
  const auto nodes = body.find("nodes");
  if (nodes == body.end() || !nodes->is_array() || nodes->empty() ||
      nodes->size() > collective::kMaxNodes) {
    return malformed("a group has 1 to 64 nodes");
  }
  std::set<std::uint32_t> ranks;
  for (const auto& said : *nodes) {
    const auto id = said.is_object() ? parse_node(text_of(said, "id")) : std::nullopt;
    const auto endpoint = id ? parse_address(text_of(said, "address")) : std::nullopt;
    if (!endpoint) return malformed("a node has no id or no address");
    if (list.find(*id) != nullptr) return malformed("a node is there twice");
    MemberList::Node node;
    node.id = *id;
    node.endpoint = *endpoint;
    if (auto status = parse_ranks(said, list.size, node); !status) {
      return tl::unexpected(std::move(status.error()));
    }
    for (const auto rank : node.ranks) {
      if (!ranks.insert(rank).second) return malformed("a rank is there twice");
    }
    list.nodes.push_back(std::move(node));
  }
  if (ranks.size() != list.size) return malformed("a rank is missing");
  return {};
}

}  // namespace

const MemberList::Node* MemberList::find(const wire::NodeId& node) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&node](const Node& one) { return one.id == node; });
  return found == nodes.end() ? nullptr : &*found;
}

Result<MemberList> parse_member_list(const nlohmann::json& body) {
  if (!body.is_object()) return malformed("it is no object");
  const std::int64_t size = number_of(body, "size");
  const std::int64_t epoch = number_of(body, "epoch");
  const std::int64_t lanes = number_of(body, "lanes", 1);
  const std::int64_t max_ops = number_of(body, "max_ops");
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (size < 1 || size > kMaxRanks) return malformed("size is 1 to 1024");
  if (epoch < 1 || epoch > kMost) return malformed("epochs are counted from 1");
  if (lanes < 1 || lanes > kMost || max_ops < 1 || max_ops > kMost) {
    return malformed("there are no lanes or no operations");
  }
  const std::int64_t cut = number_of(body, "cut", 1);
  if (cut < 1 || cut > kMost) return malformed("versions of the cut are counted from 1");
  const std::int64_t eager_form = number_of(body, "eager_form", 1);
  if (eager_form < 1 || eager_form > kMost) {
    return malformed("versions of the eager form are counted from 1");
  }
  const std::int64_t rooted_form = number_of(body, "rooted_form", 1);
  if (rooted_form < 1 || rooted_form > kMost) {
    return malformed("versions of the rooted form are counted from 1");
  }
  const auto natural = [&body](const char* key) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(number_of(body, key), 0));
  };
  MemberList list;
  list.epoch = static_cast<std::uint32_t>(epoch);
  list.size = static_cast<std::uint32_t>(size);
  list.incarnation = text_of(body, "incarnation");
  list.last_common_op = natural("last_common_op");
  list.lanes = static_cast<std::uint32_t>(lanes);
  list.chunk_bytes = natural("chunk_bytes");
  list.eager_bytes = natural("eager_bytes");
  list.cut = static_cast<std::uint32_t>(cut);
  list.eager_form = static_cast<std::uint32_t>(eager_form);
  list.rooted_form = static_cast<std::uint32_t>(rooted_form);
  list.lossy_min_bytes = natural("lossy_min");
  list.max_ops = static_cast<std::uint32_t>(max_ops);
  list.op_timeout_ms = natural("op_timeout_ms");
  list.seed = static_cast<std::uint64_t>(number_of(body, "seed"));
  list.verify = flag_of(body, "verify");
  if (auto status = parse_nodes(body, list); !status) {
    return tl::unexpected(std::move(status.error()));
  }
  return list;
}

std::optional<net::Endpoint> parse_address(const std::string& text) {
  auto endpoint = parse_endpoint(text);
  if (!endpoint || endpoint->port == 0 || text.size() > kMaxAddressBytes) return std::nullopt;
  return net::Endpoint{std::move(endpoint->host), endpoint->port};
}

}  // namespace tern::daemon
