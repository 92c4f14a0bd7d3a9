// Who may spin: nobody while lanes and clients are as many as cores.

#include <gtest/gtest.h>

#include "client.h"
#include "world.h"

namespace tern::sim {
namespace {

TEST(Spinning, OfClientsEndsWhenOneMoreComesThanThereAreCoresFor) {
  constexpr std::uint32_t kSpinNs = 20'000;
  World world(1);
  DaemonShape shape;
  shape.lanes = 2;
  shape.adjust = [](daemon::ConductorSettings& settings) {
    settings.cores = 5;
    settings.spin_ns = kSpinNs;
  };
  world.add_daemon(shape);
  const auto connect = [&]() -> Client& {
    Client& client = world.connect(0);
    EXPECT_TRUE(world.run_until([&] { return client.ready(); }));
    client.mint();  // the lanes know it by its first request
    return client;
  };
  Client& first = connect();
  Client& second = connect();
  EXPECT_EQ(first.spin_ns(), kSpinNs);
  EXPECT_EQ(second.spin_ns(), kSpinNs);
  Client& third = connect();
  for (const Client* client : {&first, &second, &third}) EXPECT_EQ(client->spin_ns(), 0u);

  world.close(third);
  EXPECT_TRUE(world.run_until([&] { return first.spin_ns() == kSpinNs; }));
  EXPECT_EQ(second.spin_ns(), kSpinNs);
}

}  // namespace
}  // namespace tern::sim
