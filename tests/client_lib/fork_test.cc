#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class Fork : public ClientTest {};

struct Handles {
  tern_client* client;
  tern_group* group;
  tern_tensor* tensor;
  tern_ticket ticket;
  void* memory;
};

// How many of the calls did not answer FORKED; runs in the child.
int calls_that_work(Handles handles) {
  auto& [client, group, tensor, ticket, memory] = handles;
  int wrong = 0;
  const auto expect = [&wrong](tern_status status) { wrong += status == TERN_ERR_FORKED ? 0 : 1; };
  tern_group_id id{};
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  tern_group_info info = TERN_GROUP_INFO_INIT;
  tern_tensor_options declare = TERN_TENSOR_OPTIONS_INIT;
  tern_tensor_stats stats = TERN_TENSOR_STATS_INIT;
  tern_op op = TERN_OP_INIT;
  const tern_device_report device = TERN_DEVICE_REPORT_INIT;
  tern_group* new_group = nullptr;
  tern_tensor* new_tensor = nullptr;
  void* more = nullptr;
  std::size_t index = 0;
  int fd = -1;
  expect(tern_alloc(client, 64, &more));
  expect(tern_free(client, memory));
  expect(tern_group_mint(client, &id));
  expect(tern_group_join(client, &id, &join, &new_group));
  expect(tern_group_get_info(group, &info));
  expect(tern_tensor_declare(group, &declare, &new_tensor));
  expect(tern_tensor_get_stats(tensor, &stats));
  expect(tern_all_reduce(group, &op, &ticket));
  expect(tern_broadcast(group, &op, &ticket));
  expect(tern_barrier(group, &ticket));
  expect(tern_wait(client, ticket, TERN_FOREVER));
  expect(tern_test(client, ticket));
  expect(tern_wait_any(client, &ticket, 1, TERN_FOREVER, &index));
  expect(tern_cancel(client, ticket));
  expect(tern_fd(client, &fd));
  expect(tern_report_device(client, &device));
  expect(tern_tensor_release(tensor));
  expect(tern_group_leave(group));
  expect(tern_disconnect(client));
  return wrong;
}

TEST_F(Fork, AChildIsToldAndTheParentIsNotDisturbed) {
  daemon.set_ops(Ops::hold);
  tern_tensor* tensor = declare("t", 4);
  float* values = connection.allocate<float>(4);
  values[0] = 5.0f;
  int fd = -1;
  ASSERT_TERN_OK(tern_fd(client, &fd));
  const tern_ticket ticket = submit_any();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(calls_that_work({client, group, tensor, ticket, values}));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);

  daemon.await_entries(1);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_EQ(values[0], 5.0f);
  EXPECT_EQ(tern_free(client, values), TERN_OK);
  EXPECT_EQ(tern_tensor_release(tensor), TERN_OK);
  EXPECT_EQ(tern_group_leave(group), TERN_OK);
}

}  // namespace
}  // namespace tern::testing
