// Clients that break the rules, by accident or on purpose, beside a job that must not notice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "shm/absent_pages.h"
#include "tests/e2e/beside_a_job.h"
#include "tests/e2e/hostile_client.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;

class BadClient : public BesideAJob {};

#if !defined(TERN_SANITIZES)
std::uint64_t mapped_bytes_of(pid_t pid) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/" + std::to_string(pid) + "/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}
#endif

TEST_F(BadClient, SendsGarbageOnTheSocket) {
  work_meanwhile();
  std::mt19937_64 random(7);
  for (const std::size_t bytes : {1u, 7u, 15u, 16u, 17u, 127u, 128u, 129u, 2000u, 4096u, 5000u}) {
    HostileClient client(cluster[0].socket());
    std::vector<std::byte> packet(bytes);
    for (auto& byte : packet) byte = static_cast<std::byte>(random());
    // Not by PacketSocket, which refuses what is too large.
    ASSERT_EQ(::send(client.socket().fd(), packet.data(), bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
    const auto answer = client.receive();
    shm::DonePacket said;
    ASSERT_TRUE(answer && shm::read_packet(answer->bytes, said)) << bytes << " bytes";
    EXPECT_EQ(said.status, static_cast<std::int32_t>(Errc::protocol_error)) << bytes << " bytes";
    EXPECT_STREQ(said.detail, "it sent what is not a packet of Tern") << bytes << " bytes";
    EXPECT_TRUE(client.is_thrown_out()) << bytes << " bytes";
  }
  // Right in its header, wrong behind it; and a second hello.
  for (int kind = 0; kind <= 26; ++kind) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    auto packet = shm::make_packet<shm::GroupJoinPacket>(static_cast<shm::PacketKind>(kind), 9);
    std::memset(packet.id, 0xff, sizeof(packet.id));
    const std::size_t size = kind % 2 == 0 ? sizeof(packet) : sizeof(shm::PacketHeader);
    ASSERT_TRUE(client.socket().send(shm::packet_bytes(packet).first(size)));
    // Each is answered or thrown out; the daemon lives.
    client.receive();
  }
  EXPECT_GE(cluster[0].counter("bad_packets"), 8);
  EXPECT_TRUE(cluster[0].logs("is disconnected: it sent what is not a packet of Tern"));
}

// Not where the sanitizer of undefined behaviour opens a pipe to look at an object.
#if !defined(TERN_SANITIZES)
TEST_F(BadClient, TakesTheLastDescriptor) {
  work_meanwhile();
  const rlimit few{before.descriptors + 12, before.descriptors + 12};
  ASSERT_EQ(::prlimit(cluster[0].pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  {
    std::vector<std::unique_ptr<HostileClient>> clients;
    std::size_t served = 0;
    for (int i = 0; i < 40; ++i) {
      clients.push_back(std::make_unique<HostileClient>(cluster[0].socket()));
      if (i % 2 == 0) served += clients.back()->hello() ? 1 : 0;
    }
    EXPECT_LT(served, 20u);
  }
  EXPECT_TRUE(cluster[0].running());
  EXPECT_TRUE(eventually([&] { return HostileClient(cluster[0].socket()).hello(); }));
}

// As where memory must not be overcommitted.
TEST_F(BadClient, JoinsAGroupWhoseRoomTheKernelDoesNotMap) {
  work_meanwhile();
  HostileClient client(cluster[0].socket());
  ASSERT_TRUE(client.hello());
  const auto minted = client.ask<shm::GroupMintedPacket>(
      shm::make_packet<HeaderOnly>(shm::PacketKind::group_mint, 2));
  ASSERT_TRUE(minted);
  rlimit usual{};
  // A lane of a group with the default settings takes a little more.
  const rlimit little{mapped_bytes_of(cluster[0].pid()) + (8 << 20), RLIM_INFINITY};
  ASSERT_EQ(::prlimit(cluster[0].pid(), RLIMIT_AS, &little, &usual), 0);
  auto join = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 3);
  std::memcpy(join.id, minted->id, sizeof(join.id));
  join.size = 1;
  const auto refused = client.ask<shm::DonePacket>(join);
  ASSERT_EQ(::prlimit(cluster[0].pid(), RLIMIT_AS, &usual, nullptr), 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, static_cast<std::int32_t>(Errc::out_of_memory));
  EXPECT_THAT(refused->detail, HasSubstr("no room for small operations: cannot map"));
  EXPECT_NE(client.join_alone(), 0u) << "the daemon goes on";
}
#endif

TEST_F(BadClient, AsksForWhatIsNotAllowed) {
  work_meanwhile();
  struct Case {
    const char* name;
    std::function<void(shm::HelloPacket&)> change;
    Errc code;
  };
  const std::vector<Case> cases{
      {"no job", [](auto& hello) { hello.job[0] = '\0'; }, Errc::invalid_argument},
      {"no arena", [](auto& hello) { hello.arena_bytes = 0; }, Errc::quota_exceeded},
      {"too large an arena", [](auto& hello) { hello.arena_bytes = ~std::uint64_t{0}; },
       Errc::quota_exceeded},
      {"an endless job", [](auto& hello) { std::memset(hello.job, 'x', sizeof(hello.job)); },
       Errc::invalid_argument},
      {"another version", [](auto& hello) { hello.abi_min = 99; }, Errc::version_mismatch}};
  for (const Case& one : cases) {
    HostileClient client(cluster[0].socket());
    auto hello = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 1);
    hello.abi_min = hello.abi_max = wire::kShmAbi;
    hello.arena_bytes = 1 << 20;
    hello.job[0] = 'j';
    one.change(hello);
    const auto answer = client.ask<shm::DonePacket>(hello);
    ASSERT_TRUE(answer.has_value()) << one.name;
    EXPECT_EQ(answer->status, static_cast<std::int32_t>(one.code))
        << one.name << ": " << answer->detail;
    EXPECT_TRUE(client.is_thrown_out()) << one.name;
  }
  EXPECT_EQ(cluster[0].counter("clients_refused"), static_cast<std::int64_t>(cases.size()));
  EXPECT_TRUE(cluster[0].logs("was refused: the job's label must have"));
}

TEST_F(BadClient, SubmitsBadEntries) {
  work_meanwhile();
  struct Case {
    const char* name;
    std::function<void(shm::SubmitEntry&)> change;
    Errc code = Errc::invalid_argument;
  };
  const std::uint64_t huge = ~std::uint64_t{0};
  const std::vector<Case> cases{
      {"kind", [](auto& entry) { entry.kind = 77; }},
      {"dtype", [](auto& entry) { entry.dtype = 17; }},
      {"dtype 255", [](auto& entry) { entry.dtype = 255; }},
      {"reduction", [](auto& entry) { entry.reduction = 8; }},
      {"role", [](auto& entry) { entry.role = 4; }},
      {"flags", [](auto& entry) { entry.flags = 4; }},
      {"reserved0", [](auto& entry) { entry.reserved0 = 1; }},
      {"reserved2", [](auto& entry) { entry.reserved2[5] = 1; }},
      {"counts", [](auto& entry) { entry.counts_offset = 8; }},
      {"events", [](auto& entry) { entry.wait_event = 8; }},
      {"region", [](auto& entry) { entry.input_region = 1; }},
      {"output region", [](auto& entry) { entry.output_region = 3; }},
      {"input behind the arena", [](auto& entry) { entry.input_offset = 1 << 20; }},
      {"input across its end", [](auto& entry) { entry.input_offset = (1 << 20) - 60; }},
      {"output that wraps", [huge](auto& entry) { entry.output_offset = huge - 31; }},
      {"odd offset", [](auto& entry) { entry.input_offset = 2; }},
      {"count", [](auto& entry) { entry.count = 1 << 20; }},
      {"count that wraps", [huge](auto& entry) { entry.count = huge / 4 + 2; }},
      {"root", [](auto& entry) { entry.kind = 2, entry.root = 1; }},
      {"barrier with elements", [](auto& entry) { entry.kind = 3; }},
      {"integer average", [](auto& entry) { entry.dtype = 5, entry.reduction = 1; }},
      {"recipe without end",
       [](auto& entry) { std::memset(entry.recipe, 'r', sizeof(entry.recipe)); }},
      {"bad recipe", [](auto& entry) { std::memcpy(entry.recipe, "3lc:s=9(", 8); },
       Errc::bad_recipe},
      {"tensor", [](auto& entry) { entry.tensor = 0xdeadbeef; }, Errc::unknown_tensor},
      {"group", [](auto& entry) { entry.group += 1000; }, Errc::unknown_group},
      {"the group of others", [](auto& entry) { entry.group = 1; }, Errc::unknown_group}};
  HostileClient client(cluster[0].socket());
  ASSERT_TRUE(client.hello());
  const std::uint64_t group = client.join_alone();
  ASSERT_NE(group, 0u);
  // Even sequences belong on lane 0, the one that this client speaks to.
  for (const Case& one : cases) {
    auto entry = HostileClient::good_entry(group, 0);
    one.change(entry);
    ASSERT_TRUE(client.submit(entry));
    const auto ended = client.completion();
    ASSERT_TRUE(ended.has_value()) << one.name;
    EXPECT_EQ(ended->status, static_cast<std::int32_t>(one.code))
        << one.name << ": " << ended->detail;
    EXPECT_NE(ended->detail[0], '\0') << one.name;
  }
  EXPECT_GE(cluster[0].counter("bad_entries"), static_cast<std::int64_t>(cases.size()));
  // The first of them; a line a second is enough.
  EXPECT_TRUE(cluster[0].logs(
      "an entry of its ring was refused: invalid_argument: unknown kind of operation"));
  HostileClient stranger(cluster[0].socket());
  ASSERT_TRUE(stranger.hello());
  ASSERT_TRUE(stranger.submit(HostileClient::good_entry(group, 0)));
  ASSERT_TRUE(stranger.completion().has_value());
  EXPECT_TRUE(cluster[0].logs("unknown_group: no such group for this client"));
  ASSERT_TRUE(client.submit(HostileClient::good_entry(group, 0)));
  const auto ended = client.completion();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->status, 0) << ended->detail;
  // Again the same use, and one for a lane that does not own it.
  ASSERT_TRUE(client.submit(HostileClient::good_entry(group, 0)));
  EXPECT_EQ(client.completion()->status, static_cast<std::int32_t>(Errc::invalid_argument));
  ASSERT_TRUE(client.submit(HostileClient::good_entry(group, 1)));
  EXPECT_EQ(client.completion()->status, static_cast<std::int32_t>(Errc::invalid_argument));
}

// Whoever touches a page first pays for it.
TEST_F(BadClient, LeavesItsPagesForTheDaemonToMake) {
  if (!shm::can_leave_absent()) GTEST_SKIP() << shm::can_leave_absent().error().text;
  constexpr auto kBlocksOfRings = (128 << 10) / 512;  // which the daemon does touch
  work_meanwhile();
  for (const bool output_alone : {false, true}) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello(std::uint64_t{8} << 20));
    const std::uint64_t group = client.join_alone();
    ASSERT_NE(group, 0u);
    const auto blocks = [&] {
      struct stat file {};
      EXPECT_EQ(::fstat(client.segment().fd(), &file), 0);
      return file.st_blocks;
    };
    if (output_alone) {
      ASSERT_TRUE(client.take_pages(std::uint64_t{4} << 20));
    }
    const auto at_first = blocks();
    auto entry = HostileClient::good_entry(group, 0);
    entry.count = 1 << 20;
    entry.output_offset = std::uint64_t{4} << 20;
    ASSERT_TRUE(client.submit(entry));
    EXPECT_TRUE(client.is_thrown_out());
    EXPECT_LT(blocks(), at_first + kBlocksOfRings);
  }
}

// The same of a region, whose pages libtern finds before it opens it.
TEST_F(BadClient, LeavesPagesOfARegionForTheDaemonToMake) {
  if (!shm::can_leave_absent()) GTEST_SKIP() << shm::can_leave_absent().error().text;
  work_meanwhile();
  for (const bool output_alone : {false, true}) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    const std::uint64_t group = client.join_alone();
    ASSERT_NE(group, 0u);
    const auto region = client.open_region(std::uint64_t{8} << 20);
    ASSERT_TRUE(region.has_value());
    const auto blocks = [&] {
      struct stat file {};
      EXPECT_EQ(::fstat(region->fd(), &file), 0);
      return file.st_blocks;
    };
    if (output_alone) {
      ASSERT_TRUE(shm::populate(region->arena().first(std::size_t{4} << 20)));
    }
    const auto at_first = blocks();
    auto entry = HostileClient::good_entry(group, 0);
    entry.input_region = entry.output_region = 1;
    entry.count = 1 << 20;
    entry.output_offset = std::uint64_t{4} << 20;
    ASSERT_TRUE(client.submit(entry));
    EXPECT_TRUE(client.is_thrown_out());
    EXPECT_EQ(blocks(), at_first);
  }
}

TEST_F(BadClient, ScribblesOverItsRings) {
  work_meanwhile();
  std::mt19937_64 random(11);
  for (int round = 0; round < 12; ++round) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    ASSERT_NE(client.join_alone(), 0u);
    auto& rings = client.segment().lane_rings(0);
    const auto store = [](std::uint64_t& word, std::uint64_t value) {
      std::atomic_ref<std::uint64_t>(word).store(value);
    };
    switch (round % 6) {
      case 0:
      case 1:
        store(rings.submit.tail, round % 6 == 0 ? random() : shm::kRingEntries + 1);
        break;
      case 2: {  // a full ring of noise
        const auto ring = client.segment().submit_ring(0);
        for (auto& entry : ring.entries) {
          std::array<std::uint64_t, sizeof(entry) / 8> noise;
          for (auto& word : noise) word = random();
          std::memcpy(static_cast<void*>(&entry), noise.data(), sizeof(entry));
        }
        store(rings.submit.tail, shm::kRingEntries);
        break;
      }
      case 3: {  // completions that cannot be delivered
        store(rings.completion.head, random() | 1u << 20);
        client.submit(HostileClient::good_entry(1, 0));
        client.submit(HostileClient::good_entry(1, 0));
        break;
      }
      case 4: {  // the whole header, index by index
        auto* words = static_cast<std::uint64_t*>(static_cast<void*>(&client.segment().header()));
        for (std::size_t i = 0; i < sizeof(shm::SegmentHeader) / 8; ++i) store(words[i], random());
        break;
      }
      case 5:
        store(rings.submit.head, random());
        break;
    }
    client.wake();
    // Thrown out where the damage shows; in any case its death below is taken well.
    EXPECT_TRUE(round % 6 > 1 || client.is_thrown_out()) << round;
  }
  EXPECT_TRUE(cluster[0].logs("is disconnected: its submission ring is corrupt"));
}

// The daemon writes them in reports, in its log, and in the flight record of a lost rank.
TEST_F(BadClient, HasNamesThatAreNoText) {
  work_meanwhile();
  const std::int64_t lost = cluster[0].counter("clients_lost");
  {
    HostileClient refused(cluster[0].socket());
    EXPECT_FALSE(refused.hello(1 << 20, "job \xff\xfe"));
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    const std::uint64_t group = client.join_alone();
    ASSERT_NE(group, 0u);
    const auto tensor = client.declare(group, "tensor \xc3\x28");
    ASSERT_TRUE(tensor.has_value());
    auto entry = HostileClient::good_entry(group, 0);
    entry.tensor = *tensor;
    ASSERT_TRUE(client.submit(entry));
    ASSERT_TRUE(client.completion().has_value());
    EXPECT_EQ(cluster[0].ask("clients").size(), 2u);
    EXPECT_EQ(cluster[0].ask("tensors").size(), 4u);  // three are of the good job
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].counter("clients_lost") == lost + 1; }));
  EXPECT_TRUE(eventually([&] { return cluster[0].ask("clients").size() == 1; }));
}

TEST_F(BadClient, Floods) {
  work_meanwhile();
  {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    const std::uint64_t group = client.join_alone();
    ASSERT_NE(group, 0u);
    // Never reads a completion; the ring of 512 overflows, and the client is thrown out.
    std::uint64_t next = 0;
    EXPECT_TRUE(eventually([&] {
      for (int i = 0; i < 100; ++i) {
        if (client.submit(HostileClient::good_entry(group, 2 * next))) ++next;
      }
      return cluster[0].ask("clients").size() == 1;
    })) << next;
    EXPECT_TRUE(cluster[0].logs("is disconnected: its completion ring is full or corrupt"));
  }
  {
    // Asks and never reads the answers.
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    const auto mint = shm::make_packet<HeaderOnly>(shm::PacketKind::group_mint, 2);
    for (int i = 0; i < 5000; ++i) static_cast<void>(client.socket().send(shm::packet_bytes(mint)));
  }
}

shm::DeviceReportPacket report_of(std::uint32_t device) {
  auto report = shm::make_packet<shm::DeviceReportPacket>(shm::PacketKind::device_report, 2);
  report.device = device;
  report.device_bytes = report.pinned_bytes = 4096;
  return report;
}

TEST_F(BadClient, ReportsDevicesThatCannotBe) {
  work_meanwhile();
  struct Case {
    const char* name;
    std::function<void(shm::DeviceReportPacket&)> change;
    std::size_t cut = 0;
  };
  const std::vector<Case> cases{
      {"a device too many", [](auto& report) { report.device = 16; }},
      {"any device", [](auto& report) { report.device = ~0u; }},
      {"more memory than there is", [](auto& report) { report.device_bytes = ~std::uint64_t{0}; }},
      {"the same, pinned", [](auto& report) { report.pinned_bytes = std::uint64_t{1} << 49; }},
      {"a text without an end",
       [](auto& report) {
         std::memset(report.pinning_problem, 'x', sizeof(report.pinning_problem));
       }},
      {"half a report", [](auto&) {}, 100}};
  for (const Case& one : cases) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    auto report = report_of(0);
    one.change(report);
    const auto bytes = shm::packet_bytes(report);
    ASSERT_TRUE(client.socket().send(bytes.first(bytes.size() - one.cut)));
    const auto answer = client.receive();
    shm::DonePacket said;
    ASSERT_TRUE(answer && shm::read_packet(answer->bytes, said)) << one.name;
    EXPECT_EQ(said.status, static_cast<std::int32_t>(Errc::protocol_error)) << one.name;
    EXPECT_TRUE(client.is_thrown_out()) << one.name;
  }
  EXPECT_EQ(cluster[0].counter("bad_packets"), static_cast<std::int64_t>(cases.size()));
  EXPECT_EQ(cluster[0].counter("device_reports"), 0);
  EXPECT_EQ(cluster[0].counter("device_bytes"), 0);
}

// Of every device, with numbers as large as any and a text that steers a terminal. What it says is
// kept once for each device, harms no table, and goes with it.
TEST_F(BadClient, FloodsWithReports) {
  work_meanwhile();
  const auto devices = [&] {
    for (const auto& client : cluster[0].ask("clients")) {
      if (client["job"] == "hostile") return client["devices"];
    }
    return nlohmann::json();
  };
  {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello(1 << 20, "hostile"));
    for (std::uint32_t i = 0; i < 20'000; ++i) {
      auto report = report_of(i % shm::kMaxDevices);
      report.pinning_failures = report.operations = report.encodes = ~std::uint64_t{0} - i;
      report.encode_ns = report.last_encode_ns = report.decode_ns = ~std::uint64_t{0};
      std::strcpy(report.pinning_problem, "\x1b[2J\n\xff");
      static_cast<void>(client.socket().send(shm::packet_bytes(report)));
    }
    EXPECT_TRUE(eventually([&] { return devices().size() == shm::kMaxDevices; }));
    EXPECT_EQ(cluster[0].counter("clients_not_pinned"), 1);
    EXPECT_EQ(cluster[0].counter("device_bytes"), std::int64_t{4096} * shm::kMaxDevices);
    for (const char* const verb : {"clients", "doctor"}) {
      const std::string shown = cluster[0].ternctl({verb});
      EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
      EXPECT_THAT(shown, HasSubstr("\\x1b[2J")) << verb;
    }
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].counter("device_bytes") == 0; }));
}

TEST_F(BadClient, NeverSaysHello) {
  work_meanwhile();
  std::vector<HostileClient> silent;
  silent.reserve(100);
  for (int i = 0; i < 100; ++i) silent.emplace_back(cluster[0].socket());
  for (auto& client : silent) EXPECT_TRUE(client.is_thrown_out());
  EXPECT_EQ(cluster[0].counter("clients_refused"), 100);
}

TEST_F(BadClient, FindsQuotasOnClientsAndArenas) {
  work_meanwhile();
  std::vector<std::unique_ptr<HostileClient>> clients;
  int accepted = 0;
  for (int i = 0; i < 80; ++i) {
    clients.push_back(std::make_unique<HostileClient>(cluster[0].socket()));
    accepted += clients.back()->hello() ? 1 : 0;
  }
  EXPECT_EQ(accepted, 63);  // max_clients_per_user is 64, one of them is of the good job
  RankProcess late(cluster[0]);
  const Reply refused = late.connect();
  EXPECT_EQ(refused.code, TERN_ERR_QUOTA_EXCEEDED) << refused;
  EXPECT_THAT(refused.text, HasSubstr("max_clients_per_user"));
  clients.clear();
  EXPECT_TRUE(eventually([&] { return late.connect().ok(); }));
  EXPECT_TRUE(late.ask("disconnect").ok());
  const Reply large = late.connect("large", std::uint64_t{1} << 30);
  EXPECT_EQ(large.code, TERN_ERR_QUOTA_EXCEEDED) << large;
  EXPECT_THAT(large.text, HasSubstr("max_arena_bytes"));
}

}  // namespace
}  // namespace tern::e2e
