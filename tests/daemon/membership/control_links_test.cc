#include "daemon/membership/control_links.h"

#include <gtest/gtest.h>

#include "net/loopback.h"
#include "tests/net/asked_transport.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kAlice = 1001, kBob = 1002;

class ControlLinksTest : public ::testing::Test, private ControlLinks::Sink {
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

TEST_F(ControlLinksTest, ALinkIsConnectedForTheUserWhoOpensIt) {
  links_.open({"there", 7000, kAlice});
  links_.do_work();
  ASSERT_EQ(transport_.connected.size(), 1u);
  EXPECT_EQ(transport_.connected[0].user, kAlice);
}

// Else Bob would wait for all of Alice's slow names, among which she has asked for this one.
TEST_F(ControlLinksTest, AnotherUserHastensALinkThatIsNotOpenYet) {
  const LinkRef first = links_.open({"there", 7000, kAlice});
  EXPECT_EQ(links_.open({"there", 7000, kBob}), first);
  ASSERT_EQ(transport_.hastened.size(), 1u);
  EXPECT_EQ(transport_.hastened[0], (net::Endpoint{"there", 7000}));
  EXPECT_EQ(transport_.hastened[0].user, kBob);
}

}  // namespace
}  // namespace tern::daemon
