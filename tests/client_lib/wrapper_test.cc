#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "client_lib/include/tern/tern.hpp"
#include "tests/client_lib/fake_daemon.h"

namespace tern::testing {
namespace {

tern_connect_options options_for(const FakeDaemon& daemon) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = daemon.path().c_str();
  options.arena_bytes = 1 << 20;
  return options;
}

TEST(Wrapper, ReducesAndBroadcasts) {
  FakeDaemon daemon;
  tern::Client client(options_for(daemon));
  tern::Group group = client.join(client.mint(), 0, 1);
  EXPECT_EQ(group.info().size, 1);
  const std::span<float> values = client.allocate<float>(100);
  std::fill(values.begin(), values.end(), 2.5f);
  tern::Tensor tensor = group.declare<float>("weights", values.size(), TERN_GRADIENT);
  group.all_reduce(tensor, values, TERN_AVERAGE).wait();
  EXPECT_EQ(values[99], 2.5f);
  std::vector<std::int64_t> numbers{1, 2, 3};
  group.broadcast(std::span(numbers), 0).wait();
  EXPECT_EQ(numbers[2], 3);
  group.barrier().wait();
  EXPECT_EQ(tensor.stats().ops, 3u);
  client.deallocate(values);
}

TEST(Wrapper, FailuresCarryCodeAndText) {
  try {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    options.socket_path = "/nonexistent/ternd.sock";
    tern::Client client(options);
    FAIL();
  } catch (const tern::Failure& failure) {
    EXPECT_EQ(failure.status(), TERN_ERR_DAEMON_ABSENT);
    EXPECT_NE(std::string(failure.what()).find("/nonexistent/ternd.sock"), std::string::npos);
  }
}

TEST(Wrapper, AnAbandonedTicketIsCancelled) {
  FakeDaemon daemon;
  daemon.set_ops(Ops::hold);
  tern::Client client(options_for(daemon));
  tern::Group group = client.join(client.mint(), 0, 1);
  float value = 1;
  {
    tern::Ticket ticket = group.all_reduce(std::span(&value, 1));
    EXPECT_FALSE(ticket.wait_for(0));
    daemon.await_entries(1);
  }
  EXPECT_EQ(daemon.seen().size(), 2u);
}

TEST(Wrapper, HandlesMayEndInAnyOrder) {
  FakeDaemon daemon;
  std::optional<tern::Client> client(std::in_place, options_for(daemon));
  std::optional<tern::Group> group(client->join(client->mint(), 0, 1));
  std::optional<tern::Tensor> tensor(group->declare<double>("t", 5));
  client.reset();
  group.reset();
  EXPECT_EQ(daemon.request_count(shm::PacketKind::group_leave), 0u);
  tensor.reset();
  daemon.await_requests(shm::PacketKind::goodbye, 1);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::group_leave), 1u);
}

}  // namespace
}  // namespace tern::testing
