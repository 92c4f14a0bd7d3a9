#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "daemon/access/scope.h"
#include "daemon/conductor/clients.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/tensor_registry.h"
#include "daemon/conductor/turn_watch.h"
#include "daemon/control/row_source.h"
#include "daemon/membership/control_links.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {

// What the operator sees of the conductor's parts: docs/control-protocol.md describes every field.
// It asks and changes nothing.
class Reports {
 public:
  // Who is asked. They outlive the reports.
  struct Sources {
    const Outlets& outlets;
    const Clients& clients;
    const Joins& joins;
    const Groups& groups;
    const TensorRegistry& tensors;
    const ControlLinks& links;
    const Tuning* tuning;  // null: there is none
    const TurnWatch& turns;
  };

  Reports(const Sources& sources, std::vector<Lane*> lanes, const char* transport_name)
      : of_(sources), lanes_(std::move(lanes)), transport_name_(transport_name) {}

  // What peers are told of this daemon.
  void set_about(std::function<nlohmann::json()> about) { about_ = std::move(about); }

  nlohmann::json clients(const Scope& scope) const;
  nlohmann::json peers() const;
  // The sources ask these reports.
  RowSource groups(const Scope& scope) const;
  RowSource tensors(const Scope& scope) const;
  nlohmann::json counters() const;
  // Numbers and ids of groups and tensors, and their names.
  nlohmann::json names() const;
  // What clients have said of their devices from then on, as totals.
  nlohmann::json devices(std::uint64_t since_ns) const;

  std::size_t client_count(const Scope& scope = Scope::of_all()) const;
  std::size_t group_count(const Scope& scope = Scope::of_all()) const;
  // Other daemons: those that are linked, or those in the groups of one user.
  std::size_t peer_count(const Scope& scope = Scope::of_all()) const;
  const wire::NodeId& self() const { return of_.outlets.post.self(); }

 private:
  // Ops of groups. Each op is counted by one of the lanes that have chunks of it.
  struct Progress {
    std::uint64_t in_flight = 0, completed = 0;

    void add(const MemberGroup& group);
  };

  nlohmann::json joining_row(const std::string& uid, const JoinSet& set) const;
  nlohmann::json group_row(const MemberGroup& group) const;
  nlohmann::json waiting_rows(const MemberGroup& group) const;
  nlohmann::json tensor_row(const MemberGroup& group, const TensorState& state) const;

  Sources of_;
  std::vector<Lane*> lanes_;
  const char* transport_name_;
  std::function<nlohmann::json()> about_;
};

}  // namespace tern::daemon
