#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <thread>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class DaemonLost : public ClientTest {};

TEST_F(DaemonLost, EndsAWaitWithoutLimit) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  tern_status result = TERN_ERR_INTERNAL;
  std::thread waiter([&] { result = tern_wait(client, ticket, TERN_FOREVER); });
  daemon.await_entries(1);
  daemon.die();
  waiter.join();
  EXPECT_EQ(result, TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, EndsATestInALoop) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  daemon.die();
  tern_status result = TERN_ERR_TIMEOUT;
  while (result == TERN_ERR_TIMEOUT) result = tern_test(client, ticket);
  EXPECT_EQ(result, TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, EndsEveryRequestAndEveryTicket) {
  daemon.set_ops(Ops::hold);
  const tern_ticket first = submit_any();
  const tern_ticket second = submit_any();
  float* values = connection.allocate<float>(4);
  daemon.die();
  tern_group_id id{};
  EXPECT_EQ(tern_group_mint(client, &id), TERN_ERR_DAEMON_LOST);
  EXPECT_EQ(tern_wait(client, first, 0), TERN_ERR_DAEMON_LOST);
  EXPECT_EQ(tern_wait(client, second, 0), TERN_ERR_DAEMON_LOST);
  tern_op op = f32_op(values, values, 4);
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_ERR_DAEMON_LOST);
  EXPECT_EQ(tern_group_leave(group), TERN_ERR_DAEMON_LOST);
  // Its memory stays the application's until it disconnects.
  values[0] = 1.0f;
  EXPECT_EQ(tern_free(client, values), TERN_OK);
}

TEST_F(DaemonLost, KeepsWhatWasCompletedBefore) {
  daemon.set_ops(Ops::hold);
  const tern_ticket done = submit_any();
  daemon.await_entries(1);
  daemon.complete_held();
  const tern_ticket lost = submit_any();
  daemon.await_entries(2);
  daemon.die();
  EXPECT_EQ(tern_wait(client, lost, TERN_FOREVER), TERN_ERR_DAEMON_LOST);
  EXPECT_EQ(tern_wait(client, done, TERN_FOREVER), TERN_OK);
}

TEST_F(DaemonLost, EndsALongJoin) {
  daemon.hold_joins(true);
  tern_status result = TERN_OK;
  tern_group* late = nullptr;
  std::thread joiner([&] { result = connection.join(&late, TERN_FOREVER); });
  daemon.await_requests(shm::PacketKind::group_join, 2);
  daemon.die();
  joiner.join();
  EXPECT_EQ(result, TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, WithAFullTableASubmitTellsItToo) {
  daemon.set_ops(Ops::hold);
  float* values = connection.allocate<float>(4);
  tern_op op = f32_op(values, values, 4);
  tern_ticket ticket = 0;
  while (tern_all_reduce(group, &op, &ticket) == TERN_OK) {
  }
  daemon.die();
  EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, ShowsOnThePollableDescriptor) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  int fd = -1;
  ASSERT_TERN_OK(tern_fd(client, &fd));
  daemon.die();
  pollfd waiting{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, -1), 1);
  tern_status result = TERN_ERR_TIMEOUT;
  while (result == TERN_ERR_TIMEOUT) result = tern_test(client, ticket);
  EXPECT_EQ(result, TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, NonsenseOnTheSocketEndsTheConnection) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  daemon.set_answers(Answers::garbage);
  tern_group_id id{};
  EXPECT_EQ(tern_group_mint(client, &id), TERN_ERR_PROTOCOL_ERROR);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, NonsenseInARingEndsTheConnection) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  daemon.corrupt_completion_ring(1);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_DAEMON_LOST);
}

TEST_F(DaemonLost, ANewConnectionWorksWhenAnotherDaemonIsBack) {
  daemon.die();
  FakeDaemon again;
  Connection fresh(again.path());
  ASSERT_TERN_OK(fresh.status);
  tern_group* joined = nullptr;
  EXPECT_EQ(fresh.join(&joined), TERN_OK);
}

TEST_F(DaemonLost, ASilentDaemonTimesRequestsOut) {
  Connection impatient(daemon.path(), 30);
  ASSERT_TERN_OK(impatient.status);
  daemon.set_answers(Answers::none);
  tern_group_id id{};
  EXPECT_EQ(tern_group_mint(impatient.client, &id), TERN_ERR_TIMEOUT);
  daemon.set_answers(Answers::normal);
  EXPECT_EQ(tern_group_mint(impatient.client, &id), TERN_OK) << tern_error_detail();
}

}  // namespace
}  // namespace tern::testing
