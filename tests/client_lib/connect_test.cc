#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/machine_memory.h"
#include "client_lib/default_arena.h"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

tern_status connect_to(const char* path, std::int64_t timeout_ms = 0, const char* job = nullptr) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = path;
  options.timeout_ms = timeout_ms;
  options.job = job;
  tern_client* client = nullptr;
  const tern_status status = tern_connect(&options, &client);
  EXPECT_EQ(status == TERN_OK, client != nullptr);
  EXPECT_EQ(status == TERN_OK, *tern_error_detail() == '\0');
  tern_disconnect(client);
  return status;
}

TEST(Connect, SaysThatNobodyListens) {
  EXPECT_EQ(connect_to("/nonexistent/ternd.sock"), TERN_ERR_DAEMON_ABSENT);
  EXPECT_EQ(connect_to(""), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(connect_to(std::string(300, 'x').c_str()), TERN_ERR_INVALID_ARGUMENT);
}

TEST(Connect, ChecksItsOptions) {
  tern_client* client = nullptr;
  EXPECT_EQ(tern_connect(nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.struct_size = 8;
  EXPECT_EQ(tern_connect(&options, &client), TERN_ERR_INVALID_ARGUMENT);
  options = TERN_CONNECT_OPTIONS_INIT;
  options.timeout_ms = -2;
  EXPECT_EQ(tern_connect(&options, &client), TERN_ERR_INVALID_ARGUMENT);
  options = TERN_CONNECT_OPTIONS_INIT;
  options.arena_bytes = ~std::uint64_t{0};
  EXPECT_EQ(tern_connect(&options, &client), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(connect_to("/x", 0, std::string(64, 'j').c_str()), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(connect_to("/x", 0, ""), TERN_ERR_INVALID_ARGUMENT);
}

TEST(Connect, AsksForAQuarterOfASmallMachine) {
  using client_lib::default_arena_bytes;
  constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
  EXPECT_EQ(default_arena_bytes(~std::uint64_t{0}), kGiB);
  EXPECT_EQ(default_arena_bytes(4 * kGiB), kGiB);
  EXPECT_EQ(default_arena_bytes(2 * kGiB), 512 * kMiB);
  EXPECT_EQ(default_arena_bytes(2 * kGiB - 1), 510 * kMiB);
  EXPECT_EQ(default_arena_bytes(0), 2 * kMiB);
}

TEST(Connect, TakesPathAndJobFromTheEnvironment) {
  FakeDaemon daemon;
  ::setenv("TERN_SOCKET", daemon.path().c_str(), 1);
  ::setenv("TERN_JOB", "from-environment", 1);
  tern_client* client = nullptr;
  EXPECT_EQ(tern_connect(nullptr, &client), TERN_OK) << tern_error_detail();
  EXPECT_STREQ(daemon.last_hello().job, "from-environment");
  EXPECT_EQ(daemon.last_hello().arena_bytes,
            client_lib::default_arena_bytes(machine_memory_bytes()));
  EXPECT_EQ(tern_disconnect(client), TERN_OK);
  EXPECT_EQ(connect_to(nullptr, 0, "given"), TERN_OK);
  EXPECT_STREQ(daemon.last_hello().job, "given");
  ::unsetenv("TERN_SOCKET");
  ::unsetenv("TERN_JOB");
}

TEST(Connect, ASilentDaemonIsATimeout) {
  FakeDaemon daemon;
  daemon.set_answers(Answers::none);
  EXPECT_EQ(connect_to(daemon.path().c_str(), 30), TERN_ERR_TIMEOUT);
}

TEST(Connect, ForwardsARefusalWithItsReason) {
  FakeDaemon daemon;
  daemon.set_answers(Answers::refuse);
  EXPECT_EQ(connect_to(daemon.path().c_str()), TERN_ERR_QUOTA_EXCEEDED);
}

TEST(Connect, SurvivesAnswersThatAreNone) {
  FakeDaemon daemon;
  for (const Answers answers : {Answers::garbage, Answers::wrong_kind, Answers::short_packet}) {
    daemon.set_answers(answers);
    EXPECT_EQ(connect_to(daemon.path().c_str()), TERN_ERR_PROTOCOL_ERROR);
  }
  daemon.set_answers(Answers::hang_up);
  EXPECT_EQ(connect_to(daemon.path().c_str()), TERN_ERR_DAEMON_LOST);
}

TEST(Connect, RefusesAnotherVersion) {
  FakeDaemon daemon;
  const std::string path = daemon.path();
  daemon.set_welcome_change([](shm::WelcomePacket& w, shm::SegmentHeader&) { w.abi = 2; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_VERSION_MISMATCH);
  daemon.set_welcome_change(
      [](shm::WelcomePacket& w, shm::SegmentHeader&) { w.header.version = 2; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_VERSION_MISMATCH);
  daemon.set_welcome_change([](shm::WelcomePacket&, shm::SegmentHeader& h) { h.abi = 2; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_VERSION_MISMATCH);
}

TEST(Connect, RefusesASegmentThatDoesNotFit) {
  FakeDaemon daemon;
  const std::string path = daemon.path();
  daemon.set_welcome_change([](shm::WelcomePacket& w, shm::SegmentHeader&) { w.lane_count = 1; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_PROTOCOL_ERROR);
  daemon.set_welcome_change([](shm::WelcomePacket& w, shm::SegmentHeader&) { w.lane_count = 500; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_PROTOCOL_ERROR);
  daemon.set_welcome_change([](shm::WelcomePacket& w, shm::SegmentHeader&) { w.segment_bytes++; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_PROTOCOL_ERROR);
  daemon.set_welcome_change([](shm::WelcomePacket&, shm::SegmentHeader& h) { h.arena_offset = 0; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_PROTOCOL_ERROR);
  daemon.set_welcome_change([](shm::WelcomePacket&, shm::SegmentHeader& h) { h.abi = 0; });
  EXPECT_EQ(connect_to(path.c_str()), TERN_ERR_PROTOCOL_ERROR);
}

TEST(Connect, SaysGoodbye) {
  FakeDaemon daemon;
  EXPECT_EQ(connect_to(daemon.path().c_str()), TERN_OK);
  daemon.await_requests(shm::PacketKind::goodbye, 1);
}

TEST(Connect, AGoodbyeThatNobodyAnswersIsNotWaitedForForEver) {
  FakeDaemon daemon;
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = daemon.path().c_str();
  options.timeout_ms = TERN_FOREVER;
  tern_client* client = nullptr;
  ASSERT_EQ(tern_connect(&options, &client), TERN_OK);
  daemon.set_answers(Answers::none);
  tern_disconnect(client);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::goodbye), 1u);
}

TEST(ErrorText, EveryCodeHasOneAndAForeignNumberIsHarmless) {
  for (tern_status status = TERN_OK; status <= TERN_ERR_INTERNAL; ++status) {
    EXPECT_GT(std::strlen(tern_strerror(status)), 0u);
  }
  EXPECT_STREQ(tern_strerror(-5), "unknown error");
  EXPECT_STREQ(tern_strerror(1 << 20), "unknown error");
  EXPECT_STREQ(tern_version(), "0.1.0");
}

TEST(Allocation, RefusesWhenFullAndTakesBack) {
  FakeDaemon daemon;
  Connection connection(daemon.path());
  ASSERT_TERN_OK(connection.status);
  void* all = nullptr;
  ASSERT_TERN_OK(tern_alloc(connection.client, kTestArenaBytes, &all));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all) % 64, 0u);
  void* more = nullptr;
  EXPECT_EQ(tern_alloc(connection.client, 1, &more), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(more, nullptr);
  EXPECT_NE(std::string(tern_error_detail()).find("arena_bytes"), std::string::npos);
  EXPECT_EQ(tern_alloc(connection.client, 0, &more), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_free(connection.client, static_cast<char*>(all) + 64), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_free(connection.client, &more), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_free(connection.client, nullptr), TERN_OK);
  EXPECT_EQ(tern_free(connection.client, all), TERN_OK);
  EXPECT_EQ(tern_free(connection.client, all), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_alloc(connection.client, 1, &more), TERN_OK);
}

}  // namespace
}  // namespace tern::testing
