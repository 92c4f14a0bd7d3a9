// A coordinator that says what it likes: anybody may mint an id that names a listener of his own.
// Only those who join his group hear of it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster.h"
#include "daemon/membership/group_id.h"
#include "daemon/membership/group_proofs.h"
#include "daemon/membership/hmac.h"
#include "tests/daemon/control/all_rows.h"

namespace tern::sim {
namespace {

using nlohmann::json;

class HostileCoordinator final : private daemon::ControlLinks::Sink, private net::AcceptorSink {
 public:
  // Makes the message `members` for a join of rank 0 whose proof has come; null: none.
  using Answer = std::function<json(const HostileCoordinator&, const json& join)>;

  HostileCoordinator(World& world, Answer answer)
      : answer_(std::move(answer)),
        id_(daemon::mint_group_id("evil", 7000).value()),
        transport_(world.network, kAddress),
        links_({transport_, world.clock, {}, kNode}, *this),
        acceptor_(world.network, world.clock, {kAddress}, *this) {}

  std::string id() const { return format_group_id(id_); }
  int do_work() { return acceptor_.poll() + links_.do_work(); }
  // The last message of a type that a daemon has sent, or null.
  json heard(const std::string& type) const {
    const auto found = heard_.find(type);
    return found == heard_.end() ? json() : found->second;
  }
  void say(const json& message) { links_.send_text(from_, message.dump()); }

  // A list that is right in all.
  json body(const json& join) const {
    return {{"uid", join["uid"]},
            {"epoch", 1},
            {"incarnation", "1"},
            {"size", 2},
            {"lanes", 1},
            {"chunk_bytes", 16 << 10},
            {"eager_bytes", 0},
            {"max_ops", 4},
            {"lossy_min", 0},
            {"op_timeout_ms", 1000},
            {"verify", false},
            {"seed", 0},
            {"last_common_op", 0},
            {"nodes",
             {{{"id", join["node"]},
               {"address", join["address"]},
               {"ranks", json::array({0u})},
               {"nonces", json::array({join["nonce"]})}},
              {{"id", daemon::node_text(kNode)},
               {"address", "evil:7000"},
               {"ranks", json::array({1u})},
               {"nonces", json::array({std::string(32, 'e')})}}}}};
  }
  json members(const std::string& body) const {
    return {{"t", "members"},
            {"uid", daemon::to_hex(id_.uid)},
            {"body", body},
            {"hmac", daemon::members_proof(id_.secret, body)}};
  }

 private:
  void on_control_message(daemon::LinkRef from, const json& message) override {
    from_ = from;
    const std::string type = message["t"];
    heard_[type] = message;
    if (type == "join") {
      say({{"t", "challenge"},
           {"uid", message["uid"]},
           {"rank", message["rank"]},
           {"nonce", message["nonce"]},
           {"challenge", std::string(32, 'c')}});
    } else if (type == "proof") {
      if (const json list = answer_(*this, heard_["join"]); !list.is_null()) say(list);
    }
  }
  void on_control_link_lost(daemon::LinkRef, Errc, bool, const std::string&) override {}
  void on_control_breach(const std::string&, const std::string&) override {}
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    if (hello.lane == wire::kConductorLane) links_.adopt(std::move(incoming), hello);
  }
  void on_refused(const std::string&, Errc, const char*) override {}

  inline static const net::Endpoint kAddress{"evil", 7000};
  static constexpr wire::NodeId kNode{0xe, 1};

  Answer answer_;
  daemon::GroupId id_;
  net::LoopbackTransport transport_;
  daemon::ControlLinks links_;
  net::LoopbackAcceptor acceptor_;
  daemon::LinkRef from_ = 0;
  std::map<std::string, json> heard_;
};

// A daemon with one rank, beside which somebody listens.
class HostileCoordinatorTest : public testing::Test {
 protected:
  void listen(HostileCoordinator::Answer answer) {
    evil_ = std::make_unique<HostileCoordinator>(cluster_.world, std::move(answer));
    cluster_.world.actors = [this, ranks = cluster_.world.actors] {
      return ranks() + evil_->do_work();
    };
  }

  OpResult join() {
    request_ = rank_.join(evil_->id(), 0, 2);
    EXPECT_TRUE(cluster_.await(rank_, request_, 30 * kSecond));
    return rank_.status_of(request_);
  }

  void expect_refused(Errc code, const std::string& word) {
    const OpResult refused = join();
    EXPECT_EQ(refused.status, code) << refused.detail;
    EXPECT_TRUE(contains(refused.detail, word)) << refused.detail;
    EXPECT_TRUE(contains(refused.detail, "node0:7000")) << refused.detail;
    ASSERT_TRUE(cluster_.world.run_until([&] { return !evil_->heard("ended").is_null(); }));
    EXPECT_EQ(evil_->heard("ended")["code"], static_cast<int>(code));
    EXPECT_EQ(cluster_.world.daemon(0)
                  .conductor->reports()
                  .counters()["bad_control_messages"]["value"]
                  .get<int>(),
              1);
    expect_the_daemon_works();
  }

  void expect_the_daemon_works() {
    cluster_.join();
    cluster_.reduce(all_reduce(DType::f32, 100), inputs_of(DType::f32, 100, 1));
    cluster_.leave_all();
  }

  Cluster cluster_{{1}};
  Client& rank_ = *cluster_.ranks[0];
  std::unique_ptr<HostileCoordinator> evil_;
  std::uint64_t request_ = 0;
};

TEST_F(HostileCoordinatorTest, AListThatIsNotProven) {
  listen([](const auto& evil, const json& join) {
    json members = evil.members(evil.body(join).dump());
    members["hmac"] = std::string(64, '0');
    return members;
  });
  expect_refused(Errc::rank_lost, "is not proven");
}

TEST_F(HostileCoordinatorTest, AListThatPlacesARankTwice) {
  listen([](const auto& evil, const json& join) {
    json body = evil.body(join);
    body["nodes"][0]["ranks"] = json::array({0u, 0u});
    body["nodes"][0]["nonces"] = json::array({join["nonce"], join["nonce"]});
    return evil.members(body.dump());
  });
  expect_refused(Errc::protocol_error, "a rank is there twice");
}

TEST_F(HostileCoordinatorTest, AListThatNamesANodeTwice) {
  listen([](const auto& evil, const json& join) {
    json body = evil.body(join);
    body["nodes"][1]["id"] = join["node"];
    return evil.members(body.dump());
  });
  expect_refused(Errc::protocol_error, "a node is there twice");
}

TEST_F(HostileCoordinatorTest, AListWithoutThisNode) {
  listen([](const auto& evil, const json& join) {
    json body = evil.body(join);
    body["nodes"][0]["id"] = std::string(32, '9');
    return evil.members(body.dump());
  });
  expect_refused(Errc::protocol_error, "cannot take part");
}

TEST_F(HostileCoordinatorTest, MoreThanThisNodeHas) {
  listen([](const auto& evil, const json& join) {
    json body = evil.body(join);
    body["lanes"] = 99;
    return evil.members(body.dump());
  });
  expect_refused(Errc::protocol_error, "cannot take part");
}

TEST_F(HostileCoordinatorTest, WhatIsNoList) {
  listen([](const auto& evil, const json&) { return evil.members(std::string(100'000, '[')); });
  expect_refused(Errc::protocol_error, "malformed");
}

// A list is of use for the joins that it names.
TEST_F(HostileCoordinatorTest, AListOfEarlierJoinsChangesNothing) {
  json join;
  listen([&join](const auto& evil, const json& said) {
    join = said;
    json body = evil.body(said);
    body["nodes"][0]["nonces"] = json::array({std::string(32, 'f')});
    return evil.members(body.dump());
  });
  request_ = rank_.join(evil_->id(), 0, 2);
  ASSERT_TRUE(cluster_.world.run_until([&] { return !evil_->heard("ended").is_null(); }));
  EXPECT_TRUE(contains(evil_->heard("ended")["text"], "rank 0 went"));
  EXPECT_FALSE(rank_.answered(request_));
  evil_->say(evil_->members(evil_->body(join).dump()));
  EXPECT_TRUE(cluster_.world.run_until(
      [&] { return cluster_.world.daemon(0).conductor->reports().group_count() == 1; }));
}

// Ranks that nobody has are not remembered.
TEST_F(HostileCoordinatorTest, EndlessMissingRanks) {
  listen([](const auto&, const json& join) {
    json missing = json::array();
    for (std::uint64_t rank = 0; rank < 5000; ++rank) missing.push_back(rank);
    missing.push_back(std::uint64_t{1} << 40);
    return json{{"t", "waiting"}, {"uid", join["uid"]}, {"missing", missing}};
  });
  request_ = rank_.join(evil_->id(), 0, 2);
  const auto waits_for = [&] {
    const auto rows = daemon::all_rows(
        cluster_.world.daemon(0).conductor->reports().groups(daemon::Scope::of_all()));
    return rows.empty() ? 0 : rows[0]["waiting"][0]["ranks"].size();
  };
  ASSERT_TRUE(cluster_.world.run_until([&] { return waits_for() > 0; }));
  EXPECT_EQ(waits_for(), 1024u);
}

}  // namespace
}  // namespace tern::sim
