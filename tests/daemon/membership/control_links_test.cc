#include "daemon/membership/control_links.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/loopback.h"
#include "tests/net/asked_transport.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecondNs = 1'000'000'000;

net::LinkSettings patient() {
  net::LinkSettings settings;
  settings.heartbeat_ns = settings.peer_timeout_ns = 3'600 * kSecondNs;
  return settings;
}

// A daemon of which there is nothing but its control links.
struct End final : ControlLinks::Sink, net::AcceptorSink {
  End(net::LoopbackNetwork& network, ManualClock& its_clock, const net::Endpoint& at,
      std::uint64_t number)
      : clock(its_clock),
        transport(network, at),
        links({transport, its_clock, patient(), wire::NodeId{number, number}}, *this),
        acceptor(network, its_clock, {at, {}}, *this) {}

  void on_control_message(LinkRef from, const nlohmann::json& message) override {
    messages.emplace_back(from, message);
    clock.advance_ns(message_ns);
  }
  void on_control_link_lost(LinkRef, Errc, bool, const std::string&) override { ++lost; }
  void on_control_breach(const std::string&, const std::string& text) override {
    breaches.push_back(text);
  }
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    adopted += links.adopt(std::move(incoming), hello) ? 1 : 0;
  }
  void on_refused(const std::string&, Errc, const char*) override {}
  int do_work() { return acceptor.poll() + links.do_work(); }
  void say(LinkRef to, const nlohmann::json& message) { links.send_text(to, message.dump()); }

  ManualClock& clock;
  std::vector<std::pair<LinkRef, nlohmann::json>> messages;
  std::vector<std::string> breaches;
  std::uint64_t message_ns = 0;  // what one takes
  int lost = 0;
  std::size_t adopted = 0;
  net::LoopbackTransport transport;
  ControlLinks links;
  net::LoopbackAcceptor acceptor;
};

class ControlLinksTest : public testing::Test {
 protected:
  // Daemons on a host are told apart by their ports.
  End& end(const std::string& host) {
    const auto port = static_cast<std::uint16_t>(7000 + ends_.size());
    ends_.push_back(std::make_unique<End>(network_, clock_, net::Endpoint{host, port},
                                          std::uint64_t{ends_.size() + 1}));
    return *ends_.back();
  }
  void settle() {
    for (int i = 0; i < 50; ++i) {
      for (const auto& one : ends_) one->do_work();
    }
  }

  // One more daemon, which opens a link to the first.
  void dial(const std::string& host) {
    End& one = end(host);
    one.links.open({"here", 7000});
    for (int i = 0; i < 10; ++i) {
      one.do_work();
      ends_.front()->do_work();
    }
  }

  ManualClock clock_;
  net::LoopbackNetwork network_;
  std::vector<std::unique_ptr<End>> ends_;
};

TEST_F(ControlLinksTest, WhatComesByALinkIsChargedToItsHost) {
  End& here = end("here");
  End& there = end("there");
  const LinkRef link = there.links.open({"here", 7000});
  there.say(link, {{"t", "join"}});
  settle();
  ASSERT_EQ(here.messages.size(), 1u);
  EXPECT_EQ(here.links.source_of(here.messages[0].first), "there");
  EXPECT_EQ(there.links.source_of(link), "here:7000");
}

// Two links to a daemon that takes a millisecond for a message.
class TwoLinksTest : public ControlLinksTest {
 protected:
  TwoLinksTest() {
    settle();
    here.message_ns = kMs;
  }

  End& here = end("here");
  End& flood = end("flood");
  End& other = end("other");
  const LinkRef from_flood = flood.links.open({"here", 7000});
  const LinkRef from_other = other.links.open({"here", 7000});
};

// The second link's one message is not behind the many of the first.
TEST_F(TwoLinksTest, TakeTurnsWhoseMessagesTakeABoundedTime) {
  for (int i = 0; i < 100; ++i) flood.say(from_flood, {{"t", "join"}, {"number", i}});
  other.say(from_other, {{"t", "join"}, {"number", 1000}});
  for (int i = 0; i < 10; ++i) {
    flood.do_work();
    other.do_work();
  }
  std::size_t before = 0;
  while (here.messages.size() < 101) {
    ASSERT_GT(here.do_work(), 0) << "after " << before << " messages";
    EXPECT_LE(here.messages.size() - before, 2u);
    before = here.messages.size();
  }
  const auto number = [&](std::size_t i) { return here.messages[i].second["number"].get<int>(); };
  EXPECT_TRUE(number(0) == 1000 || number(1) == 1000);
  int next = 0;
  for (std::size_t i = 0; i < 101; ++i) {
    if (number(i) == 1000) continue;
    EXPECT_EQ(number(i), next++);
  }
}

TEST_F(TwoLinksTest, OneIsHeardAndAnsweredWhileTheOtherHasMuchThatWaits) {
  const std::string much(1000, 'x');
  for (int i = 0; i < 100; ++i) flood.say(from_flood, {{"t", "join"}, {"much", much}});
  for (int i = 0; i < 20; ++i) flood.do_work();
  here.do_work();
  ASSERT_LT(here.messages.size(), 10u) << "the rest waits";
  other.say(from_other, {{"t", "join"}, {"number", 1000}});
  for (int i = 0; i < 20; ++i) other.do_work();
  const auto heard = [&] {
    return std::any_of(here.messages.begin(), here.messages.end(),
                       [](const auto& one) { return one.second.contains("number"); });
  };
  for (int turn = 0; turn < 5 && !heard(); ++turn) here.do_work();
  EXPECT_TRUE(heard()) << "after " << here.messages.size() << " messages";
  here.say(here.messages[0].first, {{"t", "answer"}});
  for (int turn = 0; turn < 5; ++turn) {
    here.do_work();
    flood.do_work();
  }
  EXPECT_EQ(flood.messages.size(), 1u);
  EXPECT_LT(here.messages.size(), 50u) << "much still waits";
}

TEST_F(ControlLinksTest, MessagesWaitWhileWhatFollowsFromThemHasNoRoom) {
  End& here = end("here");
  End& there = end("there");
  there.say(there.links.open({"here", 7000}), {{"t", "join"}});
  for (int i = 0; i < 50; ++i) {
    there.do_work();
    here.acceptor.poll();
    here.links.do_work(ControlLinks::Messages::kept_waiting);
  }
  EXPECT_TRUE(here.messages.empty());
  EXPECT_EQ(here.links.next_deadline_ns(), clock_.now_ns()) << "one waits to be read";
  here.do_work();
  EXPECT_EQ(here.messages.size(), 1u);
}

// A link that breaks has said what it has said.
TEST_F(ControlLinksTest, ALinkIsLostAfterItsMessages) {
  End& here = end("here");
  End& there = end("there");
  const LinkRef link = there.links.open({"here", 7000});
  settle();
  here.message_ns = kMs;
  for (int i = 0; i < 20; ++i) there.say(link, {{"t", "join"}});
  for (int i = 0; i < 10; ++i) there.do_work();
  here.do_work();
  ASSERT_LT(here.messages.size(), 20u);
  there.links.say_goodbye();
  for (int i = 0; i < 10; ++i) there.do_work();
  while (here.lost == 0) ASSERT_GT(here.do_work(), 0);
  EXPECT_EQ(here.messages.size(), 20u);
}

TEST_F(ControlLinksTest, AMessageThatIsNoObjectEndsItsLinkAndNoOther) {
  nlohmann::json deep = nlohmann::json::object();
  for (int i = 0; i < 20; ++i) deep = {{"in", deep}};
  // Each value would be memory of its own: a million of them take longer than a turn may.
  const nlohmann::json crowded{{"x", nlohmann::json::array_t(9000, nlohmann::json::array())}};
  for (const nlohmann::json& bad :
       {nlohmann::json::array(), nlohmann::json("join"), deep, crowded}) {
    ends_.clear();
    End& here = end("here");
    End& there = end("there");
    End& other = end("other");
    const LinkRef first = there.links.open({"here", 7000});
    const LinkRef second = other.links.open({"here", 7000});
    settle();
    there.say(first, {{"number", 0}});
    there.say(first, bad);
    there.say(first, {{"number", 1}});
    other.say(second, {{"number", 2}});
    settle();
    std::set<int> heard;
    for (const auto& [link, message] : here.messages) heard.insert(message["number"].get<int>());
    EXPECT_EQ(heard, (std::set<int>{0, 2})) << bad.dump().substr(0, 80);
    EXPECT_EQ(here.lost, 1);
    const std::string why = bad == deep      ? "nests deeper than 16 levels"
                            : bad == crowded ? "has more than 8192 values"
                                             : "is no JSON object";
    EXPECT_EQ(here.breaches, std::vector<std::string>{"its control message " + why});
  }
}

TEST_F(ControlLinksTest, OneHostHasABoundAndAnotherFindsAPlace) {
  constexpr std::size_t kOfOne = 128;
  End& here = end("here");
  for (std::size_t i = 0; i <= kOfOne; ++i) dial("crowd");
  EXPECT_EQ(here.adopted, kOfOne);
  dial("another");
  EXPECT_EQ(here.adopted, kOfOne + 1);
}

TEST_F(ControlLinksTest, ALinkIsNotReplacedByAnotherSourceUnderItsNodesName) {
  End& here = end("here");
  End& there = end("there");
  const LinkRef link = there.links.open({"here", 7000});
  settle();
  ASSERT_TRUE(there.links.is_open(link));
  End forger(network_, clock_, {"elsewhere", 7000}, 2);  // the number of the one before
  forger.links.open({"here", 7000});
  for (int i = 0; i < 50; ++i) {
    forger.do_work();
    settle();
  }
  EXPECT_EQ(here.lost, 0);
  EXPECT_EQ(there.lost, 0);
  there.say(link, {{"t", "join"}});
  settle();
  ASSERT_EQ(here.messages.size(), 1u);
  EXPECT_EQ(here.links.source_of(here.messages[0].first), "there");
}

// Whoever has a link under the node's name does not answer for it.
TEST_F(ControlLinksTest, ALinkIsResumedByItsSessionBesideAnotherUnderItsNodesName) {
  End& here = end("here");
  End forger(network_, clock_, {"elsewhere", 7000}, 2);  // the number of the next one
  forger.links.open({"here", 7000});
  for (int i = 0; i < 50; ++i) {
    forger.do_work();
    settle();
  }
  End& there = end("there");
  const LinkRef link = there.links.open({"here", 7000});
  settle();
  ASSERT_TRUE(there.links.is_open(link));
  network_.kill({"there", 7001});
  network_.revive({"there", 7001});
  for (int i = 0; i < 50; ++i) {
    clock_.advance_ns(10 * kMs);
    settle();
  }
  EXPECT_EQ(there.lost, 0);
  EXPECT_TRUE(there.links.is_open(link));
  there.say(link, {{"t", "join"}});
  settle();
  EXPECT_EQ(here.messages.size(), 1u);
}

TEST_F(ControlLinksTest, ALinkThatItsPeerKeepsForNothingIsClosed) {
  End& here = end("here");
  End& idle = end("idle");
  End& busy = end("busy");
  idle.links.open({"here", 7000});
  const LinkRef used = busy.links.open({"here", 7000});
  busy.say(used, {{"t", "join"}});
  settle();
  ASSERT_EQ(here.messages.size(), 1u);
  ASSERT_EQ(here.adopted, 2u);
  const std::uint64_t patience_ns = 6 * patient().unused_timeout_ns;
  const std::set<LinkRef> in_use{here.messages[0].first};
  here.links.close_unused(in_use);
  clock_.advance_ns(patience_ns - 1);
  here.links.close_unused(in_use);
  settle();
  EXPECT_EQ(idle.lost, 0);
  clock_.advance_ns(1);
  here.links.close_unused(in_use);
  settle();
  EXPECT_EQ(idle.lost, 1);
  EXPECT_EQ(busy.lost, 0);
  EXPECT_TRUE(busy.links.is_open(used));
}

// What links of a host do not acknowledge.
class UnreadLinksTest : public ControlLinksTest {
 protected:
  // So many links from a host by which something has been said. From here on they take nothing.
  std::vector<LinkRef> links_from(const std::string& host, std::size_t count) {
    here.messages.clear();
    for (std::size_t i = 0; i < count; ++i) {
      dial(host);
      ends_.back()->say(1, {{"t", "join"}});
    }
    settle();
    std::vector<LinkRef> links;
    for (const auto& [link, message] : here.messages) links.push_back(link);
    EXPECT_EQ(links.size(), count);
    return links;
  }
  void tell(LinkRef link, std::size_t bytes) {
    here.say(link, {{"much", std::string(bytes, 'x')}});
  }

  static constexpr std::size_t kMiB = 1 << 20;
  End& here = end("here");
};

TEST_F(UnreadLinksTest, OfOneHostHaveTheRoomOfOneAndThatWithMostGivesWay) {
  const std::vector<LinkRef> crowd = links_from("crowd", 40);
  const LinkRef other = links_from("other", 1).front();
  for (const LinkRef link : crowd) tell(link, kMiB / 4);
  for (int i = 0; i < 5; ++i) tell(crowd[3], kMiB);
  for (const LinkRef link : crowd) EXPECT_TRUE(here.links.is_open(link));
  tell(crowd[7], kMiB);
  for (const LinkRef link : crowd) EXPECT_EQ(here.links.is_open(link), link != crowd[3]);
  for (int i = 0; i < 15; ++i) tell(other, kMiB);
  EXPECT_TRUE(here.links.is_open(other)) << "each host has room of its own";
  EXPECT_EQ(here.breaches.size(), 1u);
}

TEST_F(UnreadLinksTest, OfAllHostsHaveABoundAndTheOneWithMostGivesWay) {
  std::vector<LinkRef> hosts;
  for (const char* name : {"a", "b", "c", "d", "e"}) hosts.push_back(links_from(name, 1).front());
  for (std::size_t i = 0; i < 4; ++i) {
    for (int n = 0; n < 15; ++n) tell(hosts[i], kMiB);
  }
  tell(hosts[1], kMiB / 2);
  for (int n = 0; n < 3; ++n) tell(hosts[4], kMiB);
  EXPECT_EQ(here.breaches.size(), 0u);
  tell(hosts[4], kMiB);
  for (const LinkRef link : hosts) EXPECT_EQ(here.links.is_open(link), link != hosts[1]);
}

TEST_F(UnreadLinksTest, AlwaysHaveRoomForALittle) {
  const std::vector<LinkRef> crowd = links_from("crowd", 128);
  for (int i = 0; i < 15; ++i) tell(crowd[0], kMiB);
  for (const LinkRef link : crowd) tell(link, 60'000);
  for (std::size_t i = 1; i < crowd.size(); ++i) EXPECT_TRUE(here.links.is_open(crowd[i])) << i;
}

TEST_F(ControlLinksTest, ALinkThatIsGoneFreesItsPlace) {
  constexpr std::size_t kOfOne = 128;
  End& here = end("here");
  for (std::size_t i = 0; i < kOfOne; ++i) dial("crowd");
  ends_.back()->links.say_goodbye();
  settle();
  dial("crowd");
  EXPECT_EQ(here.adopted, kOfOne + 1);
}

// ---- For whom they are opened

constexpr std::uint64_t kAlice = 1001, kBob = 1002;

class LinksOfUsersTest : public ::testing::Test, private ControlLinks::Sink {
 protected:
  ManualClock clock_;
  net::LoopbackNetwork network_;
  net::LoopbackTransport loopback_{network_, {"here", 7000}};
  net::AskedTransport transport_{loopback_};
  ControlLinks links_{{transport_, clock_, {}, {7, 7}}, *this};

 private:
  void on_control_message(LinkRef, const nlohmann::json&) override {}
  void on_control_link_lost(LinkRef, Errc, bool, const std::string&) override {}
  void on_control_breach(const std::string&, const std::string&) override {}
};

TEST_F(LinksOfUsersTest, ALinkIsConnectedForTheUserWhoOpensIt) {
  links_.open({"there", 7000, kAlice});
  links_.do_work();
  ASSERT_EQ(transport_.connected.size(), 1u);
  EXPECT_EQ(transport_.connected[0].user, kAlice);
}

// Else Bob would wait for all of Alice's slow names, among which she has asked for this one.
TEST_F(LinksOfUsersTest, AnotherUserHastensALinkThatIsNotOpenYet) {
  const LinkRef first = links_.open({"there", 7000, kAlice});
  EXPECT_EQ(links_.open({"there", 7000, kBob}), first);
  ASSERT_EQ(transport_.hastened.size(), 1u);
  EXPECT_EQ(transport_.hastened[0], (net::Endpoint{"there", 7000}));
  EXPECT_EQ(transport_.hastened[0].user, kBob);
}

}  // namespace
}  // namespace tern::daemon
