#include "daemon/conductor/quotas.h"

#include <cstdio>
#include <fstream>
#include <latch>

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class QuotasTest : public PartRig {
 protected:
  static bool has(const std::string& problem, const char* setting) {
    return problem.find(setting) != std::string::npos;
  }
  static SubUsers sub_users(const std::string& text) {
    const std::string path = testing::TempDir() + "/quotas_subuid";
    std::ofstream(path) << text;
    SubUsers users = SubUsers::read(path);
    std::remove(path.c_str());
    return users;
  }
};

TEST_F(QuotasTest, ThereIsNoProblemOnAnIdleDaemon) {
  EXPECT_EQ(quotas_.connection_problem(kAlice), "");
  EXPECT_EQ(quotas_.hello_problem(connect(1, kAlice), 4096), "");
  EXPECT_EQ(quotas_.join_problem(kAlice, "uid"), "");
  EXPECT_EQ(quotas_.tensor_problem(kAlice), "");
  EXPECT_EQ(quotas_.state_problem(kAlice, 0, 4096), "");
}

TEST_F(QuotasTest, SilentConnectionsCountForTheirUser) {
  settings_.limits.max_clients_per_user = 2;
  connect(1, kAlice);
  connect(2, kAlice);
  EXPECT_TRUE(has(quotas_.connection_problem(kAlice), "max_clients_per_user = 2"));
  EXPECT_EQ(quotas_.connection_problem(kBob), "");
  greet(*clients_.find(1));
  EXPECT_EQ(quotas_.connection_problem(kAlice), "");
}

// Of clients that say nothing each may still say hello, and then needs more.
TEST_F(QuotasTest, TheLastDescriptorsAreNotForClients) {
  Client& silent = connect(1, kAlice);
  settings_.descriptors = descriptor_budget({}, 400);
  EXPECT_EQ(quotas_.connection_problem(kAlice), "");
  EXPECT_EQ(quotas_.hello_problem(silent, 4096), "");
  std::vector<Fd> taken;
  while (taken.empty() || taken.back().get() < 300) taken.push_back(duplicate(STDERR_FILENO));
  EXPECT_TRUE(has(quotas_.connection_problem(kAlice), "LimitNOFILE="));
  EXPECT_TRUE(has(quotas_.hello_problem(silent, 4096), "LimitNOFILE="));
  taken.clear();
  EXPECT_EQ(quotas_.connection_problem(kAlice), "");
}

TEST_F(QuotasTest, WhoseThingsCannotBeClosedLeavesNoMore) {
  std::latch begun(1), may_end(1);
  Disposal disposal;
  const Quotas quotas(settings_, {clients_, joins_, groups_, kept_, disposal, sealing_});
  disposal.take(kAlice, [&] {
    begun.count_down();
    may_end.wait();
    return false;
  });
  begun.wait();
  for (std::size_t i = 0; i < Disposal::kMaxWaiting; ++i) {
    EXPECT_EQ(quotas.connection_problem(kAlice), "") << i;
    disposal.take(kAlice, [] { return false; });
  }
  EXPECT_EQ(quotas.connection_problem(kAlice),
            "what earlier processes of this user have left is not closed yet; try again later");
  EXPECT_EQ(quotas.connection_problem(kBob), "");
  may_end.count_down();
}

TEST_F(QuotasTest, WhoseMemoryCannotBeSealedBringsNoMore) {
  std::latch may_end(1);
  Disposal sealing;
  const Quotas quotas(settings_, {clients_, joins_, groups_, kept_, disposal_, sealing});
  for (std::size_t i = 0; i <= Disposal::kMaxWaiting; ++i) {
    sealing.take(kAlice, [&may_end] {
      may_end.wait();
      return false;
    });
  }
  EXPECT_EQ(quotas.connection_problem(kAlice),
            "memory of other processes of this user is not sealed yet: they punch holes into it");
  EXPECT_EQ(quotas.connection_problem(kBob), "");
  may_end.count_down();
}

TEST_F(QuotasTest, ArenasThatAreBeingFreedHaveABound) {
  std::latch begun(1), may_end(1);
  settings_.limits.max_arena_bytes = 100;
  {
    Disposal disposal;
    const Quotas quotas(settings_, {clients_, joins_, groups_, kept_, disposal, sealing_});
    disposal.take(
        kAlice,
        [&] {
          begun.count_down();
          may_end.wait();
          return false;
        },
        100);
    begun.wait();
    EXPECT_EQ(quotas.hello_problem(connect(1, kAlice), 100), "") << "a job that begins again";
    disposal.take(
        kAlice, [] { return false; }, 1);
    EXPECT_TRUE(has(quotas.hello_problem(connect(2, kAlice), 1), "max_arena_bytes"));
    EXPECT_EQ(quotas.hello_problem(connect(3, kBob), 100), "");
    may_end.count_down();
  }
}

TEST_F(QuotasTest, ClientsAndArenasCountOnceTheyHaveSaidHello) {
  settings_.limits.max_clients_per_user = 2;
  settings_.limits.max_arena_bytes = 100'000;
  greet(connect(1, kAlice), 65'536);
  const Client& second = connect(2, kAlice);
  EXPECT_EQ(quotas_.hello_problem(second, 30'000), "");
  EXPECT_TRUE(has(quotas_.hello_problem(second, 65'536), "max_arena_bytes"));
  EXPECT_TRUE(has(quotas_.hello_problem(second, 0), "max_arena_bytes"));
  settings_.limits.max_clients = 1;
  EXPECT_TRUE(has(quotas_.hello_problem(second, 4096), "max_clients = 1"));
}

TEST_F(QuotasTest, WhoTakesAllClientsThatHeCanLeavesSomeToOthers) {
  settings_.limits.max_clients = 6;
  settings_.limits.max_clients_per_user = 5;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(quotas_.hello_problem(connect(id, kAlice), 4096), "");
    greet(*clients_.find(id), 4096);
  }
  EXPECT_EQ(quotas_.hello_problem(connect(4, kAlice), 4096),
            "this user has 3 clients, and the 3 that are left of max_clients = 6 are for users who "
            "have fewer");
  EXPECT_EQ(quotas_.hello_problem(connect(5, kBob), 4096), "");
  settings_.limits.max_clients_per_user = 6;
  EXPECT_EQ(quotas_.hello_problem(*clients_.find(4), 4096), "") << "one user may have everything";
}

TEST_F(QuotasTest, UsersOfOneOwnerHaveTheShareOfOne) {
  settings_.sub_users = sub_users("1001:100000:65536\n");
  constexpr std::uint32_t kFirst = 100'000, kSecond = 165'535;
  settings_.limits.max_clients_per_user = 2;
  settings_.limits.max_arena_bytes = 100'000;
  greet(connect(1, kAlice), 40'000);
  greet(connect(2, kFirst), 40'000);
  const Client& third = connect(3, kSecond);
  EXPECT_TRUE(has(quotas_.hello_problem(third, 4096), "max_clients_per_user = 2"));
  EXPECT_EQ(quotas_.hello_problem(connect(4, kBob), 4096), "");
  settings_.limits.max_clients_per_user = 3;
  EXPECT_TRUE(has(quotas_.hello_problem(third, 40'000), "max_arena_bytes"));
  EXPECT_EQ(quotas_.hello_problem(third, 4096), "");
  add_group({1});
  settings_.limits.max_groups_per_user = 1;
  EXPECT_TRUE(has(quotas_.join_problem(kSecond, "uid"), "max_groups_per_user = 1"));
  EXPECT_EQ(quotas_.join_problem(kBob, "uid"), "");
}

TEST_F(QuotasTest, TheLastGroupsAndTensorsAreForUsersWithFew) {
  greet(connect(1, kAlice));
  MemberGroup& group = add_group({1});
  settings_.limits.max_groups = 2;
  settings_.limits.max_groups_per_user = 1;
  EXPECT_EQ(quotas_.join_problem(kBob, "uid"), "");
  DeclaredTensor tensor;
  tensor.state = std::make_shared<TensorState>();
  group.tensors.add(tensor);
  settings_.limits.max_tensors = 2;
  settings_.limits.max_tensors_per_user = 2;
  EXPECT_EQ(quotas_.tensor_problem(kAlice), "");
  settings_.limits.max_tensors = 3;
  EXPECT_EQ(quotas_.tensor_problem(kAlice), "");
  DeclaredTensor other;
  other.state = std::make_shared<TensorState>();
  other.state->id = 1;
  group.tensors.add(other);
  settings_.limits.max_tensors = 4;
  settings_.limits.max_tensors_per_user = 3;
  EXPECT_TRUE(has(quotas_.tensor_problem(kAlice), "the 2 that are left of max_tensors = 4"));
  EXPECT_EQ(quotas_.tensor_problem(kBob), "");
}

TEST_F(QuotasTest, GroupsAndTheirOpsCountForEachUser) {
  greet(connect(1, kAlice));
  add_group({1});
  settings_.limits.max_groups_per_user = 1;
  EXPECT_TRUE(has(quotas_.join_problem(kAlice, "uid"), "max_groups_per_user = 1"));
  EXPECT_EQ(quotas_.join_problem(kBob, "uid"), "");
  settings_.limits.max_groups_per_user = 2;
  settings_.limits.max_ops_in_flight_per_user = 16 + settings_.ops.max_ops_in_flight - 1;
  EXPECT_TRUE(has(quotas_.join_problem(kAlice, "uid"), "max_ops_in_flight_per_user"));
  settings_.limits.max_groups = 1;
  EXPECT_TRUE(has(quotas_.join_problem(kBob, "uid"), "max_groups = 1"));
}

TEST_F(QuotasTest, AnEpochThatHasEndedMakesRoomForItsSuccessor) {
  greet(connect(1, kAlice));
  MemberGroup& group = add_group({1});
  settings_.limits.max_groups_per_user = 1;
  group.phase = MemberGroup::Phase::ended;
  EXPECT_EQ(quotas_.join_problem(kAlice, group.uid), "");
  EXPECT_TRUE(has(quotas_.join_problem(kAlice, "another"), "max_groups_per_user"));
}

TEST_F(QuotasTest, TensorsOfAGroupCountForItsUsersAlone) {
  greet(connect(1, kAlice));
  MemberGroup& group = add_group({1});
  DeclaredTensor tensor;
  tensor.state = std::make_shared<TensorState>();
  group.tensors.add(tensor);
  settings_.limits.max_tensors_per_user = 1;
  EXPECT_TRUE(has(quotas_.tensor_problem(kAlice), "max_tensors_per_user = 1"));
  EXPECT_EQ(quotas_.tensor_problem(kBob), "");
  settings_.limits.max_tensors = 1;
  EXPECT_TRUE(has(quotas_.tensor_problem(kBob), "max_tensors = 1"));
}

TEST_F(QuotasTest, NamesOfGroupsCountForTheirUsersUntilTheGroupsAreRemoved) {
  greet(connect(1, kAlice));
  MemberGroup& group = add_group({1});
  MemberGroup& other = add_group({1});
  group.names.declare(0, "w");
  other.names.declare(0, "w");
  settings_.limits.max_tensors_per_user = 2;
  EXPECT_TRUE(has(quotas_.name_problem(kAlice), "max_tensors_per_user = 2"));
  EXPECT_EQ(quotas_.name_problem(kBob), "");
  other.phase = MemberGroup::Phase::ended;
  EXPECT_TRUE(has(quotas_.name_problem(kAlice), "remember 2 names"));
  other.phase = MemberGroup::Phase::removing;
  EXPECT_EQ(quotas_.name_problem(kAlice), "");
}

TEST_F(QuotasTest, WhatIsFreedMakesRoomForCodecState) {
  settings_.limits.max_state_bytes = 1000;
  EXPECT_TRUE(has(quotas_.state_problem(kAlice, 0, 1001), "max_state_bytes = 1000"));
  EXPECT_EQ(quotas_.state_problem(kAlice, 0, 1000), "");
}

TEST_F(QuotasTest, ArenasAndStatesOfAllStayWithinTheDaemonsMemory) {
  settings_.limits.max_memory_bytes = 1'000'000;
  settings_.own_bytes = 400'000;
  EXPECT_TRUE(has(quotas_.hello_problem(connect(1, kAlice), 750'001), "max_arena_bytes = 750000"));
  settings_.limits.max_arena_bytes = 1'000'000;
  greet(connect(2, kAlice), 400'000);
  EXPECT_EQ(quotas_.hello_problem(connect(3, kBob), 200'000), "");
  EXPECT_EQ(quotas_.hello_problem(*clients_.find(3), 200'001),
            "200001 bytes more beside 800000 exceed max_memory_bytes = 1000000 of all users and "
            "the daemon: free some memory, or ask for less");
  settings_.limits.max_state_bytes = 1'000'000;
  EXPECT_EQ(quotas_.state_problem(kBob, 0, 200'000), "");
  EXPECT_TRUE(has(quotas_.state_problem(kBob, 0, 200'001), "max_memory_bytes"));
  settings_.limits.max_memory_bytes = 0;
  EXPECT_EQ(quotas_.hello_problem(*clients_.find(3), 200'001), "") << "no bound";
}

class QuotasOfGroups : public QuotasTest {
 protected:
  void SetUp() override {
    set.id = *mint_group_id("here", 7000);
    set.ranks[0].user = kAlice;
    settings_.limits.max_memory_bytes = 1'600'000'000;
    greet(connect(1, kAlice));
  }
  JoinSet set;
};

TEST_F(QuotasOfGroups, OfTheHalfThatIsForThemAUserLeavesAsMuchAsHeHas) {
  EXPECT_EQ(quotas_.group_problem(set, 400'000'000), "");
  EXPECT_EQ(quotas_.group_problem(set, 400'000'001),
            "this user's groups keep 0 bytes, and 400000001 more leave less than as much to others "
            "of the 800000000 that are for groups: leave some, or lower lanes, max_ops_in_flight "
            "or eager_bytes");
  MemberGroup& group = add_group({1});
  group.memory_bytes = 350'000'000;
  EXPECT_EQ(quotas_.group_problem(set, 50'000'000), "");
  EXPECT_NE(quotas_.group_problem(set, 50'000'001), "");
  set.ranks[0].user = kBob;
  EXPECT_EQ(quotas_.group_problem(set, 225'000'000), "");
  EXPECT_NE(quotas_.group_problem(set, 225'000'001), "");
  settings_.limits.max_memory_bytes = 0;
  EXPECT_EQ(quotas_.group_problem(set, 1'000'000'000), "") << "no bound";
}

TEST_F(QuotasOfGroups, WhereTheDaemonHasLittleMemoryTheyHaveHalfAGiB) {
  settings_.limits.max_memory_bytes = 600 << 20;
  EXPECT_EQ(quotas_.group_problem(set, 256 << 20), "");
  EXPECT_NE(quotas_.group_problem(set, (256 << 20) + 1), "");
}

TEST_F(QuotasOfGroups, WhatIsKeptOfAnEndedEpochMakesRoomForItsSuccessor) {
  MemberGroup& group = add_group({1});
  group.memory_bytes = 350'000'000;
  group.phase = MemberGroup::Phase::ended;
  EXPECT_NE(quotas_.group_problem(set, 350'000'000), "");
  group.uid = to_hex(set.id.uid);
  EXPECT_EQ(quotas_.group_problem(set, 350'000'000), "");
}

// All that other nodes have been promised may be filled at once. Arenas are the clients' own.
TEST_F(QuotasOfGroups, WithAllThatIsTheDaemonsTheyStayWithinItsMemory) {
  settings_.own_bytes = 1'400'000'000;
  greet(connect(2, kBob), 100'000'000);
  EXPECT_EQ(quotas_.group_problem(set, 200'000'000), "");
  EXPECT_EQ(quotas_.group_problem(set, 200'000'001),
            "200000001 bytes more beside 1400000000 exceed max_memory_bytes = 1600000000 of all "
            "users and the daemon: free some memory, or ask for less");
}

TEST_F(QuotasOfGroups, OnesThatAreBeingFreedStillCount) {
  std::latch begun(1), may_end(1);
  {
    Disposal freeing;
    const Groups groups(outlets_, flights_, freeing);
    const Quotas quotas(settings_, {clients_, joins_, groups, kept_, disposal_, sealing_});
    freeing.take(
        kAlice,
        [&] {
          begun.count_down();
          may_end.wait();
          return false;
        },
        300'000'000);
    begun.wait();
    EXPECT_EQ(quotas.group_problem(set, 400'000'000), "") << "a job that begins again";
    EXPECT_NE(quotas.group_problem(set, 400'000'001), "");
    set.ranks[0].user = kBob;
    EXPECT_EQ(quotas.group_problem(set, 250'000'000), "");
    EXPECT_NE(quotas.group_problem(set, 250'000'001), "");
    EXPECT_NE(quotas.hello_problem(connect(2, kBob), 1'150'000'000), "");
    may_end.count_down();
  }
}

TEST_F(QuotasTest, WhatIsKeptOfGroupsIsNoRoomForArenas) {
  settings_.limits.max_memory_bytes = 1'600'000;
  greet(connect(1, kAlice), 100'000);
  add_group({1}).memory_bytes = 1'000'000;
  EXPECT_EQ(quotas_.hello_problem(connect(2, kBob), 375'000), "") << "three quarters of the rest";
  EXPECT_NE(quotas_.hello_problem(*clients_.find(2), 375'001), "");
}

TEST_F(QuotasTest, WhoTakesAllMemoryThatHeCanLeavesSomeToOthers) {
  settings_.limits.max_memory_bytes = 1'600'000;
  settings_.limits.max_state_bytes = 1'600'000;
  greet(connect(1, kAlice), 1'000'000);
  EXPECT_EQ(quotas_.hello_problem(connect(2, kAlice), 200'000), "")
      << "one may have three quarters";
  EXPECT_EQ(quotas_.state_problem(kAlice, 0, 200'000), "");
  EXPECT_EQ(quotas_.state_problem(kAlice, 0, 200'001),
            "200001 bytes more beside the 1000000 that this user has leave 399999 of "
            "max_memory_bytes = 1600000 to others, less than a third as much: free some memory, or "
            "ask for less");
  greet(*clients_.find(2), 200'000);
  EXPECT_NE(quotas_.state_problem(kAlice, 0, 4096), "");
  EXPECT_EQ(quotas_.state_problem(kAlice, 4096, 4096), "") << "in place of what is freed";
  EXPECT_EQ(quotas_.hello_problem(connect(3, kBob), 300'000), "") << "three quarters of the rest";
  EXPECT_NE(quotas_.hello_problem(*clients_.find(3), 300'001), "");
}

TEST_F(QuotasTest, MappingsOfArenasAndRegionsStayWithinWhatTheKernelAllows) {
  settings_.max_mappings = {8192 + 3 * 4, true};
  greet(connect(1, kAlice), 100);
  EXPECT_EQ(quotas_.region_problem(*clients_.find(1), 100), "");
  greet(connect(2, kAlice), 100);
  EXPECT_EQ(quotas_.region_problem(*clients_.find(1), 100),
            "the daemon has mapped 2 arenas and regions, 2 of this user, and may map 4: free some "
            "of them, or raise the sysctl vm.max_map_count = 8204 and start the daemon again");
  greet(connect(3, kBob), 100);
  greet(connect(4, 1003), 100);
  EXPECT_NE(quotas_.hello_problem(connect(5, 1004), 100), "");
}

// As under the unit: no other value of the sysctl has an effect there.
TEST_F(QuotasTest, OfALimitOfMappingsThatIsNotReadTheTextSaysWhatLetsTheDaemonReadIt) {
  settings_.max_mappings = {8192 + 3, false};
  greet(connect(1, kAlice), 100);
  EXPECT_EQ(quotas_.region_problem(*clients_.find(1), 100),
            "the daemon has mapped 1 arenas and regions, 1 of this user, and may map 1: free some "
            "of them. The daemon supposes vm.max_map_count = 8195, because it cannot read the "
            "sysctl; with ProcSubset=all in a drop-in of its unit it reads it when it starts");
}

TEST_F(QuotasTest, MemoryThatIsBeingFreedIsStillTheUsersOwn) {
  std::latch begun(1), may_end(1);
  settings_.limits.max_memory_bytes = 1'600'000;
  {
    Disposal disposal;
    const Quotas quotas(settings_, {clients_, joins_, groups_, kept_, disposal, sealing_});
    disposal.take(
        kAlice,
        [&] {
          begun.count_down();
          may_end.wait();
          return false;
        },
        1'000'000);
    begun.wait();
    EXPECT_EQ(quotas.hello_problem(connect(1, kAlice), 200'000), "");
    EXPECT_NE(quotas.hello_problem(*clients_.find(1), 200'001), "");
    EXPECT_EQ(quotas.hello_problem(connect(2, kBob), 450'000), "");
    may_end.count_down();
  }
}

TEST_F(QuotasTest, LinksOfAnEpochCountForTheUsersWhoJoin) {
  greet(connect(1, kAlice));
  add_group({1});  // one peer on each of two lanes
  JoinSet set;
  set.id = *mint_group_id("here", 7000);
  set.ranks[0].user = kAlice;
  MemberList list;
  list.lanes = 2;
  list.nodes.resize(3);
  settings_.limits.max_links_per_user = 6;
  EXPECT_EQ(quotas_.link_problem(set, list), "");
  settings_.limits.max_links_per_user = 5;
  EXPECT_EQ(quotas_.link_problem(set, list),
            "user 1001 has 2 links, and 4 more exceed max_links_per_user = 5");
}

}  // namespace
}  // namespace tern::daemon::conductor_test
