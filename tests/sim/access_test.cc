// Who may connect: allowed_uids and allowed_gids.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cluster.h"

namespace tern::sim {
namespace {

using daemon::ConductorSettings;

constexpr std::uint64_t kHello = 1;  // the number of a client's first request

struct Caller {
  const char* name;
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups;
  bool admitted;
};

// What became of its hello.
Errc outcome(World& world, const Caller& caller, std::string& detail) {
  shm::PeerCredentials credentials;
  credentials.uid = caller.uid;
  credentials.gid = caller.gid;
  credentials.groups = caller.groups;
  Client& client = world.connect_as(0, std::move(credentials));
  EXPECT_TRUE(world.run_until([&] { return client.ready() || client.lost(); })) << caller.name;
  detail = client.status_of(kHello).detail;
  return client.ready() ? Errc::ok : client.status_of(kHello).status;
}

std::int64_t refusals(World& world) {
  return world.daemon(0).conductor->reports().counters()["clients_refused"]["value"];
}

void expect_admission(const DaemonShape& shape, const std::vector<Caller>& callers) {
  World world(1);
  world.add_daemon(shape);
  std::int64_t refused = 0;
  for (const Caller& caller : callers) {
    std::string detail;
    EXPECT_EQ(outcome(world, caller, detail), caller.admitted ? Errc::ok : Errc::permission_denied)
        << caller.name << ": " << detail;
    refused += caller.admitted ? 0 : 1;
    EXPECT_EQ(refusals(world), refused) << caller.name;
    if (caller.admitted) continue;
    EXPECT_NE(detail.find("uid " + std::to_string(caller.uid)), std::string::npos) << detail;
    EXPECT_NE(detail.find("allowed_uids"), std::string::npos) << detail;
  }
}

TEST(Access, EverybodyMayConnectWhereNobodyIsListed) {
  expect_admission({}, {{"a user", 1001, 1001, {}, true}, {"root", 0, 0, {}, true}});
}

TEST(Access, AUserOrOneOfHisGroupsMustBeListed) {
  DaemonShape shape;
  shape.adjust = [](ConductorSettings& settings) {
    settings.admission.allowed_uids = {1001, 1002};
    settings.admission.allowed_gids = {50};
  };
  expect_admission(shape, {{"a listed user", 1002, 7, {}, true},
                           {"by his primary group", 2000, 50, {7}, true},
                           {"by a supplementary group", 2000, 7, {8, 50}, true},
                           {"by none of them", 2000, 7, {8, 9}, false},
                           {"his group has a listed user's number", 2000, 1001, {1002}, false},
                           {"his number is a listed group's", 50, 7, {}, false},
                           {"root, who is not listed", 0, 0, {}, false}});
}

TEST(Access, OneListAloneIsEnoughToShutOut) {
  DaemonShape shape;
  shape.adjust = [](ConductorSettings& settings) { settings.admission.allowed_gids = {50}; };
  expect_admission(shape,
                   {{"in the group", 2000, 7, {50}, true}, {"not in it", 2000, 7, {8}, false}});
  shape.adjust = [](ConductorSettings& settings) { settings.admission.allowed_uids = {1001}; };
  expect_admission(shape, {{"the user", 1001, 7, {}, true}, {"another", 1002, 7, {}, false}});
}

}  // namespace
}  // namespace tern::sim
