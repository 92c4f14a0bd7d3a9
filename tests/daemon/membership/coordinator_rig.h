#pragma once

// A coordinator, and members that answer its challenges with the right secret.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/membership/coordinator.h"
#include "daemon/membership/group_proofs.h"
#include "daemon/membership/hmac.h"

namespace tern::daemon::coordinator_test {

using nlohmann::json;

inline constexpr LinkRef kA = 11;
inline constexpr LinkRef kB = 22;
inline constexpr LinkRef kC = 33;
inline constexpr std::uint32_t kUser = 1000;

inline std::string node_id(LinkRef link) { return node_text({link, 1}); }
inline std::string address(LinkRef link) { return "host" + std::to_string(link) + ":7000"; }

// They write down what they are sent.
class CoordinatorTest : public testing::Test, public ControlSender {
 protected:
  void SetUp() override {
    auto minted = mint_group_id("host11", 7000);
    ASSERT_TRUE(minted.has_value());
    id_ = *minted;
    uid_ = to_hex(id_.uid);
    coordinator_.learn(id_, kUser);
  }

  void send_to_all(std::vector<LinkRef> to, json message) override {
    ++messages_;
    for (const LinkRef link : to) sent_.emplace_back(link, message);
  }
  // Links of a thousand are of one source.
  std::string source_of(LinkRef link) const override {
    return "source " + std::to_string(link / 1000);
  }

  json join_of(LinkRef from, std::uint32_t rank, std::int64_t size) {
    const std::string nonce(31, 'a');
    return {{"t", "join"},
            {"uid", uid_},
            {"rank", rank},
            {"size", size},
            {"nonce", nonce + std::to_string(rank % 10)},
            {"node", node_id(from)},
            {"address", address(from)},
            {"lanes", 2},
            {"chunk_bytes", 65536},
            {"eager_bytes", 1024},
            {"max_ops", 16},
            {"lossy_min", 0},
            {"op_timeout_ms", 1000},
            {"verify", false},
            {"seed", 0},
            {"completed", 5 + rank}};
  }
  void prove(LinkRef from, const json& join, const json& challenge,
             std::span<const std::byte> secret) {
    const std::string proof = join_proof(secret, {uid_, join["nonce"], challenge["challenge"],
                                                  join["node"], join["rank"], join["size"]});
    coordinator_.on_message(from, {{"t", "proof"},
                                   {"uid", uid_},
                                   {"rank", join["rank"]},
                                   {"nonce", join["nonce"]},
                                   {"hmac", proof}});
  }
  void withdraw(LinkRef from, const json& join) {
    coordinator_.on_message(
        from, {{"t", "withdraw"}, {"uid", uid_}, {"rank", join["rank"]}, {"nonce", join["nonce"]}});
  }
  void join(LinkRef from, const json& message) {
    coordinator_.on_message(from, message);
    const json* challenge = last(from, "challenge");
    ASSERT_NE(challenge, nullptr);
    prove(from, message, json(*challenge), id_.secret);
  }
  void join(LinkRef from, std::uint32_t rank, std::int64_t size) {
    join(from, join_of(from, rank, size));
  }
  // As it is now and then.
  int tell_changed() {
    clock_.advance_ns(250'000'000);
    return coordinator_.tell_changed(TimeSlice(clock_, 1));
  }
  void lose(LinkRef link, const std::string& why) {
    coordinator_.on_link_lost(link, why);
    coordinator_.end_lost(TimeSlice(clock_, 1));
    EXPECT_FALSE(coordinator_.has_lost());
  }
  void say(LinkRef from, const std::string& what, std::uint32_t epoch, json more = json::object()) {
    more.update({{"t", what}, {"uid", uid_}, {"epoch", epoch}});
    coordinator_.on_message(from, more);
  }
  // Whether a rank that asks to join is asked for its proof. Leaves nothing behind.
  bool knows(const GroupId& id) {
    const std::string uid = std::exchange(uid_, to_hex(id.uid));
    sent_.clear();
    coordinator_.on_message(kC, join_of(kC, 0, 2));
    withdraw(kC, join_of(kC, 0, 2));
    uid_ = uid;
    return last(kC, "challenge") != nullptr;
  }
  // The last message of a type to a link.
  const json* last(LinkRef to, const std::string& type) const {
    for (auto i = sent_.rbegin(); i != sent_.rend(); ++i) {
      if (i->first == to && i->second["t"] == type) return &i->second;
    }
    return nullptr;
  }
  json members(LinkRef to) const {
    const json* message = last(to, "members");
    return message == nullptr ? json() : json::parse((*message)["body"].get<std::string>());
  }
  void expect_refused(LinkRef to, Errc code, const std::string& word) const {
    const json* refused = last(to, "refused");
    ASSERT_NE(refused, nullptr);
    EXPECT_EQ((*refused)["code"], static_cast<int>(code)) << *refused;
    EXPECT_NE((*refused)["text"].get<std::string>().find(word), std::string::npos) << *refused;
    EXPECT_EQ((*refused)["nonce"].get<std::string>().size(), 32u) << *refused;
  }

  ManualClock clock_;
  Coordinator coordinator_{*this, clock_};
  GroupId id_;
  std::string uid_;
  std::vector<std::pair<LinkRef, json>> sent_;
  std::size_t messages_ = 0;  // one that goes to several links counts once
};

}  // namespace tern::daemon::coordinator_test
