#pragma once

// A fake daemon, a connected client and a group of one rank: what nearly every test starts with.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client_lib/include/tern/tern.h"
#include "tests/client_lib/fake_daemon.h"

namespace tern::testing {

#define ASSERT_TERN_OK(call) ASSERT_EQ((call), TERN_OK) << tern_error_detail()

inline constexpr std::uint64_t kTestArenaBytes = 1 << 20;

class Connection {
 public:
  explicit Connection(const std::string& path, std::int64_t timeout_ms = 0) {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    options.socket_path = path.c_str();
    options.arena_bytes = kTestArenaBytes;
    options.timeout_ms = timeout_ms;
    status = tern_connect(&options, &client);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { tern_disconnect(client); }

  tern_status join(tern_group** group, std::int64_t timeout_ms = 0) {
    tern_group_id id{};
    if (const tern_status minted = tern_group_mint(client, &id); minted != TERN_OK) return minted;
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.timeout_ms = timeout_ms;
    return tern_group_join(client, &id, &options, group);
  }

  template <typename T>
  T* allocate(std::size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(tern_alloc(client, count * sizeof(T), &memory), TERN_OK) << tern_error_detail();
    return static_cast<T*>(memory);
  }

  tern_client* client = nullptr;
  tern_status status = TERN_OK;
};

class ClientTest : public ::testing::Test {
 protected:
  explicit ClientTest(FakeOptions options = {})
      : daemon(std::move(options)), connection(daemon.path()) {}

  void SetUp() override {
    ASSERT_EQ(connection.status, TERN_OK) << tern_error_detail();
    ASSERT_TERN_OK(connection.join(&group));
    client = connection.client;
  }

  static tern_op f32_op(const void* input, void* output, std::uint64_t count) {
    tern_op op = TERN_OP_INIT;
    op.input = input;
    op.output = output;
    op.count = count;
    return op;
  }

  // An anonymous all_reduce in place on arena memory of its own.
  tern_ticket submit_any(std::uint64_t count = 16) {
    float* values = connection.allocate<float>(count);
    tern_op op = f32_op(values, values, count);
    tern_ticket ticket = 0;
    EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_OK) << tern_error_detail();
    return ticket;
  }

  tern_tensor* declare(const char* name, std::uint64_t count) {
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = name;
    options.count = count;
    tern_tensor* tensor = nullptr;
    EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_OK) << tern_error_detail();
    return tensor;
  }

  FakeDaemon daemon;
  Connection connection;
  tern_client* client = nullptr;
  tern_group* group = nullptr;
};

}  // namespace tern::testing
