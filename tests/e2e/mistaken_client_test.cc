// Clients that speak well and are wrong: what they ask for is refused, or contradicts the other
// ranks. The job beside them must not notice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/beside_a_job.h"
#include "tests/e2e/hostile_client.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;

class MistakenClient : public BesideAJob {};

TEST_F(MistakenClient, IsRefusedAJoin) {
  work_meanwhile();
  Ranks ranks(cluster, {1, 2});
  const std::string id = ranks[0].ask("mint").field("id");
  ranks[0].tell("join group=g rank=0 size=3 id=" + id);
  ASSERT_TRUE(eventually([&] { return cluster[0].ask("groups").size() == 2; }));
  const auto join = [&](const std::string& options) {
    return ranks[1].ask("join group=g " + options);
  };

  std::string forged = id;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_EQ(join("rank=1 size=3 id=" + forged).code, TERN_ERR_BAD_SECRET);
  const Reply taken = join("rank=0 size=3 id=" + id);
  EXPECT_EQ(taken.code, TERN_ERR_RANK_TAKEN) << taken;
  const Reply sized = join("rank=1 size=4 id=" + id);
  EXPECT_EQ(sized.code, TERN_ERR_WRONG_SIZE) << sized;
  EXPECT_THAT(sized.text, HasSubstr("size 4"));
  EXPECT_THAT(sized.text, HasSubstr("rank 0 says 3"));
  EXPECT_EQ(join("rank=3 size=3 id=" + id).code, TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(join("rank=1 size=3 id=nonsense").code, TERN_ERR_INVALID_ARGUMENT);

  // None of it has harmed the group.
  ranks[1].tell("join group=g rank=1 size=3 id=" + id);
  ranks[2].tell("join group=g rank=2 size=3 id=" + id);
  for (const Reply& reply : ranks.replies()) EXPECT_TRUE(reply.ok()) << reply;
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
  const Reply again = ranks[1].ask("join group=h rank=1 size=3 timeout=300 id=" + id);
  EXPECT_FALSE(again.ok()) << again;
}

// Where no coordinator has to be asked.
TEST_F(MistakenClient, IsRefusedAJoinOnItsOwnNode) {
  work_meanwhile();
  Ranks ranks(cluster, {3});
  const std::string id = ranks[0].ask("mint").field("id");
  ranks[0].tell("join group=g rank=0 size=2 id=" + id);
  ASSERT_TRUE(eventually([&] { return cluster[0].ask("groups").size() == 2; }));
  const std::int64_t before_all = cluster[0].counter("joins_refused");
  std::string forged = id;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_EQ(ranks[1].ask("join group=g rank=1 size=2 id=" + forged).code, TERN_ERR_BAD_SECRET);
  EXPECT_TRUE(cluster[0].logs("was refused: bad_secret: the group id's secret is wrong"));
  EXPECT_EQ(ranks[2].ask("join group=g rank=0 size=2 id=" + id).code, TERN_ERR_RANK_TAKEN);
  EXPECT_TRUE(cluster[0].logs("was refused: rank_taken: rank 0 has been taken"));
  EXPECT_EQ(cluster[0].counter("joins_refused"), before_all + 2);

  // What the library would not send.
  struct Case {
    const char* says;
    std::function<void(shm::GroupJoinPacket&)> change;
  };
  const std::vector<Case> cases{
      {"the group id's text does not end",
       [](auto& join) { std::memset(join.id, 'x', sizeof(join.id)); }},
      {"was refused: invalid_argument: rank must be", [](auto& join) { join.rank = 2; }},
      {"its join was refused: invalid_argument", [](auto& join) { join.id[3] = '!'; }}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    auto join = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 2);
    std::memcpy(join.id, id.c_str(), id.size() + 1);
    join.size = 2;
    cases[i].change(join);
    const auto answer = client.ask<shm::DonePacket>(join);
    ASSERT_TRUE(answer.has_value()) << cases[i].says;
    EXPECT_EQ(answer->status, static_cast<std::int32_t>(Errc::invalid_argument)) << answer->detail;
    EXPECT_TRUE(cluster[0].logs(cases[i].says));
    EXPECT_EQ(cluster[0].counter("joins_refused"), before_all + 3 + static_cast<std::int64_t>(i));
  }
  // None of it has harmed the group.
  ranks[1].tell("join group=g rank=1 size=2 id=" + id);
  for (const std::size_t rank : {0u, 1u}) EXPECT_TRUE(ranks[rank].reply().ok());
  for (const std::size_t rank : {0u, 1u}) ranks[rank].tell("stream group=g ops=20");
  EXPECT_EQ(disagreement({ranks[0].reply(), ranks[1].reply()}), "");
}

TEST_F(MistakenClient, DeclaresOtherThanTheOtherRanksOfItsNode) {
  work_meanwhile();
  Ranks ranks(cluster, {3});
  ASSERT_EQ(ranks.join(), "");
  ASSERT_TRUE(ranks[0].ask("declare group=g name=t count=1000").ok());
  const Reply sized = ranks[1].ask("declare group=g name=t count=1001");
  EXPECT_EQ(sized.code, TERN_ERR_MISMATCH) << sized;
  EXPECT_THAT(sized.text, HasSubstr("rank 0 says 1000 f32"));
  EXPECT_THAT(sized.text, HasSubstr("rank 1 says 1001 f32"));
  EXPECT_TRUE(cluster[0].logs("its declaration of a tensor was refused: mismatch: t: rank 0 says"));
  const Reply typed = ranks[2].ask("declare group=g name=t count=1000 dtype=i32");
  EXPECT_EQ(typed.code, TERN_ERR_MISMATCH) << typed;
  EXPECT_THAT(typed.text, HasSubstr("rank 2 says 1000 i32"));
  EXPECT_EQ(cluster[0].counter("declarations_refused"), 2);
  // Who declares as the first one did is taken.
  for (const std::size_t rank : {1u, 2u}) {
    ASSERT_TRUE(ranks[rank].ask("declare group=g name=t count=1000").ok());
  }
  ranks.ask_all("submit op=x group=g tensor=t");
  EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "");
}

TEST_F(MistakenClient, DiffersFromTheOtherRanks) {
  work_meanwhile();
  Ranks ranks(cluster, {2, 1});
  ASSERT_EQ(ranks.join(), "");
  struct Case {
    const char* mine;
    const char* theirs;
    std::vector<const char*> says;
  };
  const std::vector<Case> cases{
      {"count=1000", "count=1001", {"1000", "1001"}},
      {"count=70000", "count=70001", {"70000", "70001"}},
      {"count=1000 dtype=f32", "count=1000 dtype=i32", {"f32", "i32"}},
      {"count=1000 reduction=sum", "count=1000 reduction=max", {"sum", "max"}},
      {"count=1000", "count=1000 kind=broadcast", {"all_reduce", "broadcast"}},
      {"count=90000 kind=broadcast root=0",
       "count=90000 kind=broadcast root=2",
       {"from 0", "from 2"}},
      {"count=1000", "kind=barrier", {"all_reduce", "barrier"}}};
  for (const std::size_t odd : {std::size_t{2}, std::size_t{1}}) {
    for (const Case& one : cases) {
      for (std::size_t rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(
            ranks[rank]
                .ask(std::string("submit op=x group=g ") + (rank == odd ? one.theirs : one.mine))
                .ok());
      }
      for (const Reply& reply : ranks.ask_all("wait op=x")) {
        EXPECT_EQ(reply.code, TERN_ERR_MISMATCH) << one.theirs << ": " << reply;
        for (const char* part : one.says) EXPECT_THAT(reply.text, HasSubstr(part)) << one.theirs;
        EXPECT_THAT(reply.text, HasSubstr("rank " + std::to_string(odd))) << one.theirs;
      }
    }
  }
  EXPECT_GE(cluster[0].counter("ops_failed"), static_cast<std::int64_t>(2 * cases.size()));
  EXPECT_TRUE(cluster[0].logs("failed: mismatch: "));
  // The group goes on.
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
  // Roles differ by declaration: between nodes the first use tells.
  ASSERT_TRUE(ranks[0].ask("declare group=g name=t count=50000 role=gradient").ok());
  ASSERT_TRUE(ranks[1].ask("declare group=g name=t count=50000 role=gradient").ok());
  ASSERT_TRUE(ranks[2].ask("declare group=g name=t count=50000 role=exact").ok());
  for (const Reply& reply : ranks.ask_all("submit op=x group=g tensor=t"))
    ASSERT_TRUE(reply.ok()) << reply;
  for (const Reply& reply : ranks.ask_all("wait op=x")) {
    EXPECT_EQ(reply.code, TERN_ERR_MISMATCH) << reply;
    EXPECT_THAT(reply.text, HasSubstr("gradient"));
    EXPECT_THAT(reply.text, HasSubstr("exact"));
  }
}

TEST_F(MistakenClient, CancelsAndLeavesThingsUndone) {
  work_meanwhile();
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join("g", "op_timeout=1000"), "");
  ASSERT_TRUE(ranks[0].ask("submit op=x group=g count=50000").ok());
  ASSERT_TRUE(ranks[0].ask("cancel op=x").ok());
  EXPECT_EQ(ranks[0].ask("wait op=x").code, TERN_ERR_CANCELLED);
  ASSERT_TRUE(ranks[1].ask("submit op=x group=g count=50000").ok());
  EXPECT_EQ(ranks[1].ask("wait op=x").code, TERN_ERR_CANCELLED);
  // One that the other never submits.
  ASSERT_TRUE(ranks[1].ask("submit op=y group=g count=50000").ok());
  const Reply late = ranks[1].ask("wait op=y");
  EXPECT_EQ(late.code, TERN_ERR_OP_TIMEOUT) << late;
  EXPECT_THAT(late.text, HasSubstr("rank 0"));
  ASSERT_TRUE(ranks[0].ask("submit op=y group=g count=50000").ok());
  EXPECT_EQ(ranks[0].ask("wait op=y").code, TERN_ERR_OP_TIMEOUT);
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
}

TEST(StateQuota, RefusesADeclarationAndTakesItAfterARelease) {
  Cluster cluster(2, {"--max-state-bytes", "1MiB"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join(), "");
  const std::string declare = "declare group=g role=gradient recipe=3lc:s=1 count=200000 name=";
  ASSERT_TRUE(ranks[0].ask(declare + "a").ok());
  const Reply refused = ranks[0].ask(declare + "b");
  EXPECT_EQ(refused.code, TERN_ERR_QUOTA_EXCEEDED) << refused;
  EXPECT_THAT(refused.text, HasSubstr("max_state_bytes"));
  EXPECT_EQ(cluster[0].counter("quota_refusals"), 1);
  EXPECT_TRUE(cluster[0].logs("more exceeds max_state_bytes"));
  ASSERT_TRUE(ranks[0].ask("release group=g name=a").ok());
  EXPECT_TRUE(eventually([&] { return ranks[0].ask(declare + "b").ok(); }));
}

}  // namespace
}  // namespace tern::e2e
