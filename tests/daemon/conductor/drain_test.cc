#include "daemon/conductor/drain.h"

#include "daemon/membership/group_proofs.h"
#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class DrainTest : public PartRig {
 protected:
  // Messages of a rank on another node, about a group whose id was minted here.
  void say(nlohmann::json message) {
    message["uid"] = to_hex(id_.uid);
    message["rank"] = 0;
    message["nonce"] = std::string(32, 'a');
    coordinator_.on_message(kOther, message);
  }
  void join_from_another_node() {
    coordinator_.learn(id_, kAlice);
    say({{"t", "join"},
         {"size", 2},
         {"node", node_text({9, 9})},
         {"address", "there:7000"},
         {"lanes", 2},
         {"chunk_bytes", 65536},
         {"eager_bytes", 1024},
         {"max_ops", 16},
         {"lossy_min", 0},
         {"op_timeout_ms", 1000},
         {"verify", false},
         {"seed", 0},
         {"completed", 0}});
  }
  void prove() {
    const std::string proof = join_proof(id_.secret, {to_hex(id_.uid), std::string(32, 'a'),
                                                      sender_.challenge, node_text({9, 9}), 0, 2});
    say({{"t", "proof"}, {"hmac", proof}});
  }

  static constexpr LinkRef kOther = 22;
  struct Sender final : ControlSender {
    void send_to_all(std::vector<LinkRef>, nlohmann::json message) override {
      if (message["t"] == "challenge") challenge = message["challenge"];
    }
    std::string source_of(LinkRef) const override { return "there"; }
    std::string challenge;
  };
  Sender sender_;
  GroupId id_ = *mint_group_id("here", 7000);
  Coordinator coordinator_{sender_, clock_};
  Drain drain_{clock_, self_, {clients_, joins_, groups_, coordinator_}};
};

TEST_F(DrainTest, IsOffUntilItBegins) {
  EXPECT_FALSE(drain_.is_on());
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.refusal(), "");
  const nlohmann::json report = drain_.report();
  EXPECT_EQ(report["node_id"], node_text(self_));
  EXPECT_EQ(report["draining"], false);
  EXPECT_EQ(report["idle"], true);
  EXPECT_TRUE(report["waits_for"].empty());
}

TEST_F(DrainTest, OfAnIdleDaemonIsOverAtOnce) {
  connect(1, kAlice);  // one that has not said hello has no job
  drain_.begin(10 * kSecond);
  EXPECT_TRUE(drain_.is_over());
}

TEST_F(DrainTest, WaitsForClientsAndSaysForWhich) {
  greet(connect(1, kAlice));
  drain_.begin(10 * kSecond);
  EXPECT_FALSE(drain_.is_over());
  clock_.advance_ns(4 * kSecond);
  EXPECT_EQ(drain_.text(), "waits for 1 client (job: 1) and 0 groups, for 6 s at most");
  const nlohmann::json report = drain_.report();
  EXPECT_EQ(report["draining"], true);
  EXPECT_EQ(report["seconds_left"], 6.0);
  ASSERT_EQ(report["waits_for"].size(), 1u);
  EXPECT_EQ(report["waits_for"][0]["uid"], kAlice);
  EXPECT_EQ(report["waits_for"][0]["job"], "job");
}

// The launcher that minted the id has gone, and the ranks are on other nodes: their links to this
// daemon are all that is left of the group here.
TEST_F(DrainTest, WaitsForGroupsOfOtherNodesThatItCoordinates) {
  join_from_another_node();
  drain_.begin(10 * kSecond);
  EXPECT_TRUE(drain_.is_over()) << "who has not proven that it has the id holds up nobody";
  prove();
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.text(),
            "waits for 0 clients and 0 groups (1 with other nodes), for 10 s at most");
  EXPECT_EQ(drain_.report()["coordinates"], 1);
  EXPECT_EQ(drain_.report()["idle"], false);
  coordinator_.on_link_lost(kOther, "it ended");
  coordinator_.end_lost(TimeSlice(clock_, 1));
  EXPECT_TRUE(drain_.is_over());
}

TEST_F(DrainTest, IsOverAtItsDeadlineWhoeverIsThere) {
  greet(connect(1, kAlice));
  drain_.begin(10 * kSecond);
  clock_.advance_ns(10 * kSecond - 1);
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.next_deadline_ns(), clock_.now_ns() + 1);
  clock_.advance_ns(1);
  EXPECT_TRUE(drain_.is_over());
}

TEST_F(DrainTest, RefusesNewJobsAndLetsOthersJoinAgain) {
  Client& runs = greet(connect(1, kAlice));
  runs.has_joined = true;
  const Client& fresh = greet(connect(2, kBob));
  drain_.begin(10 * kSecond);
  EXPECT_NE(drain_.refusal(), "");
  const std::string uid = to_hex(id_.uid);
  EXPECT_EQ(drain_.join_refusal(runs, uid), "");
  EXPECT_EQ(drain_.join_refusal(fresh, uid), drain_.refusal());
  EXPECT_EQ(drain_.hello_refusal(), drain_.refusal());
}

// A job of several ranks has begun when the first of them waits: the others are no new job.
TEST_F(DrainTest, LetsInTheOtherRanksOfAGroupThatGathers) {
  const Client& first = greet(connect(1, kAlice));
  const Client& second = greet(connect(2, kAlice));
  JoinRequest join;
  join.id = id_;
  join.uid = to_hex(id_.uid);
  join.packet.size = 2;
  ASSERT_TRUE(joins_.add(first, join));
  drain_.begin(10 * kSecond);
  EXPECT_EQ(drain_.hello_refusal(), "") << "a rank may not have come yet";
  EXPECT_EQ(drain_.join_refusal(second, join.uid), "");
  EXPECT_EQ(drain_.join_refusal(second, std::string(32, '0')), drain_.refusal());
  drain_.stop();
  EXPECT_EQ(drain_.join_refusal(second, join.uid), "the daemon is stopping");
  EXPECT_EQ(drain_.hello_refusal(), "the daemon is stopping");
}

TEST_F(DrainTest, LetsInRanksOfAGroupForWhichOtherNodesWait) {
  const Client& fresh = greet(connect(1, kAlice));
  drain_.begin(10 * kSecond);
  join_from_another_node();
  EXPECT_NE(drain_.join_refusal(fresh, to_hex(id_.uid)), "") << "anybody may say that";
  EXPECT_NE(drain_.hello_refusal(), "");
  prove();
  EXPECT_EQ(drain_.join_refusal(fresh, to_hex(id_.uid)), "");
  EXPECT_EQ(drain_.hello_refusal(), "");
}

TEST_F(DrainTest, ADaemonThatEndsTakesNothingNewOfAnybody) {
  Client& runs = greet(connect(1, kAlice));
  runs.has_joined = true;
  drain_.stop();
  EXPECT_EQ(drain_.refusal(), "the daemon is stopping");
  EXPECT_EQ(drain_.join_refusal(runs, to_hex(id_.uid)), "the daemon is stopping");
}

TEST_F(DrainTest, ThatIsCancelledRefusesNobody) {
  greet(connect(1, kAlice));
  drain_.begin(kSecond);
  drain_.cancel();
  clock_.advance_ns(2 * kSecond);
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.refusal(), "");
}

}  // namespace
}  // namespace tern::daemon::conductor_test
