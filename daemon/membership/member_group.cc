#include "daemon/membership/member_group.h"

#include "daemon/lane/lane_group.h"

namespace tern::daemon {

MemberGroup::MemberGroup() = default;
MemberGroup::~MemberGroup() = default;

std::string MemberGroup::node_name(std::uint32_t number_of_node) const {
  return "node " + std::to_string(number_of_node) + " (" + addresses[number_of_node] + ", ranks " +
         join_numbers(ranks_of_node[number_of_node]) + ")";
}

}  // namespace tern::daemon
