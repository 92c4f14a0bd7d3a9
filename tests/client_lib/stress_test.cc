#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class Stress : public ClientTest {};

// Each thread submits, waits, tests, cancels and allocates on the shared handles; every result must
// be right, every ticket must end.
void use_handles(tern_client* client, tern_group* group, std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t count = 1 + random() % 2000;
    std::vector<float> input(count, static_cast<float>(round));
    std::vector<float> output(count, -1.0f);
    tern_op op = TERN_OP_INIT;
    op.input = input.data();
    op.output = output.data();
    op.count = count;
    tern_ticket tickets[2] = {};
    ASSERT_TERN_OK(tern_all_reduce(group, &op, &tickets[0]));
    ASSERT_TERN_OK(tern_barrier(group, &tickets[1]));
    void* memory = nullptr;
    ASSERT_TERN_OK(tern_alloc(client, 1 + random() % 5000, &memory));
    if (random() % 8 == 0) {
      ASSERT_TERN_OK(tern_cancel(client, tickets[1]));
    }
    std::size_t index = 0;
    ASSERT_TERN_OK(tern_wait_any(client, tickets, 2, TERN_FOREVER, &index));
    ASSERT_TERN_OK(tern_wait(client, tickets[1 - index], TERN_FOREVER));
    ASSERT_EQ(output, input);
    ASSERT_TERN_OK(tern_free(client, memory));
  }
}

TEST_F(Stress, ManyThreadsShareTheHandles) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  int fd = -1;
  ASSERT_TERN_OK(tern_fd(client, &fd));
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, seed, t] { use_handles(client, group, seed + t, 300); });
  }
  threads.emplace_back([this] {
    for (int i = 0; i < 100; ++i) {
      const std::string name = std::to_string(i);
      ASSERT_TERN_OK(tern_tensor_release(declare(name.c_str(), 8)));
    }
  });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Stress, ADyingDaemonEndsAllThreads) {
  constexpr int kThreads = 4;
  daemon.set_ops(Ops::hold);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      std::vector<float> values(100);
      tern_op op = f32_op(values.data(), values.data(), values.size());
      for (;;) {
        tern_ticket ticket = 0;
        tern_status status = tern_all_reduce(group, &op, &ticket);
        if (status == TERN_OK) status = tern_wait(client, ticket, TERN_FOREVER);
        ASSERT_EQ(status, TERN_ERR_DAEMON_LOST) << tern_error_detail();
        return;
      }
    });
  }
  daemon.await_entries(4);
  daemon.die();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tern::testing
