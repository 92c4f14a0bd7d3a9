// Clients that break the rules, by accident or on purpose, beside a job that must not notice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/e2e/hostile_client.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;

// Two nodes where two ranks of a well-behaved job work from the first line of a test to its last.
class BadClient : public ::testing::Test {
 protected:
  BadClient()
      : cluster(2, {"--lanes", "2", "--max-arena-bytes", "1GiB", "--handshake-timeout", "500ms"}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    good = Ranks(cluster, {1, 1}, "good");
    ASSERT_EQ(good.join(), "");
    before = cluster[0].holdings();
  }

  void work_meanwhile() { good.tell_all("stream group=g ops=400 tensors=3 large=60000"); }

  void TearDown() override {
    if (HasFatalFailure()) return;
    EXPECT_EQ(disagreement(good.replies()), "");
    // What the bad ones had is given back.
    EXPECT_TRUE(eventually([&] { return cluster[0].holdings() <= before; }))
        << cluster[0].holdings().descriptors << " descriptors, before " << before.descriptors;
    EXPECT_TRUE(cluster[1].running());
  }

  Cluster cluster;
  Ranks good;
  Holdings before;
};

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
  for (int kind = 0; kind <= 20; ++kind) {
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
      {"dtype", [](auto& entry) { entry.dtype = 7; }},
      {"dtype 255", [](auto& entry) { entry.dtype = 255; }},
      {"reduction", [](auto& entry) { entry.reduction = 5; }},
      {"role", [](auto& entry) { entry.role = 4; }},
      {"flags", [](auto& entry) { entry.flags = 1; }},
      {"reserved0", [](auto& entry) { entry.reserved0 = 1; }},
      {"reserved1", [](auto& entry) { entry.reserved1[11] = 1; }},
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
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello(1 << 20, "job \xff\xfe"));
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

// ---- Honest mistakes
// --------------------------------------------------------------------------------

TEST_F(BadClient, IsRefusedAJoin) {
  work_meanwhile();
  Ranks ranks(cluster, {1, 2});
  const std::string id = ranks[0].ask("mint").field("id");
  ranks[0].tell("join group=g rank=0 size=3 id=" + id);
  ASSERT_TRUE(eventually([&] { return cluster[0].ask("groups").size() == 2; }));
  const auto join = [&](const std::string& options) {
    return ranks[1].ask("join group=g " + options);
  };

  std::string forged = id;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_EQ(join("rank=1 size=3 id=" + forged).code, TERN_ERR_BAD_SECRET);
  const Reply taken = join("rank=0 size=3 id=" + id);
  EXPECT_EQ(taken.code, TERN_ERR_RANK_TAKEN) << taken;
  const Reply sized = join("rank=1 size=4 id=" + id);
  EXPECT_EQ(sized.code, TERN_ERR_WRONG_SIZE) << sized;
  EXPECT_THAT(sized.text, HasSubstr("size 4"));
  EXPECT_THAT(sized.text, HasSubstr("rank 0 says 3"));
  EXPECT_EQ(join("rank=3 size=3 id=" + id).code, TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(join("rank=1 size=3 id=nonsense").code, TERN_ERR_INVALID_ARGUMENT);

  // None of it has harmed the group.
  ranks[1].tell("join group=g rank=1 size=3 id=" + id);
  ranks[2].tell("join group=g rank=2 size=3 id=" + id);
  for (const Reply& reply : ranks.replies()) EXPECT_TRUE(reply.ok()) << reply;
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
  const Reply again = ranks[1].ask("join group=h rank=1 size=3 timeout=300 id=" + id);
  EXPECT_FALSE(again.ok()) << again;
}

// Where no coordinator has to be asked.
TEST_F(BadClient, IsRefusedAJoinOnItsOwnNode) {
  work_meanwhile();
  Ranks ranks(cluster, {3});
  const std::string id = ranks[0].ask("mint").field("id");
  ranks[0].tell("join group=g rank=0 size=2 id=" + id);
  ASSERT_TRUE(eventually([&] { return cluster[0].ask("groups").size() == 2; }));
  const std::int64_t before_all = cluster[0].counter("joins_refused");
  std::string forged = id;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_EQ(ranks[1].ask("join group=g rank=1 size=2 id=" + forged).code, TERN_ERR_BAD_SECRET);
  EXPECT_TRUE(cluster[0].logs("was refused: bad_secret: the group id's secret is wrong"));
  EXPECT_EQ(ranks[2].ask("join group=g rank=0 size=2 id=" + id).code, TERN_ERR_RANK_TAKEN);
  EXPECT_TRUE(cluster[0].logs("was refused: rank_taken: rank 0 has been taken"));
  EXPECT_EQ(cluster[0].counter("joins_refused"), before_all + 2);

  // What the library would not send.
  struct Case {
    const char* says;
    std::function<void(shm::GroupJoinPacket&)> change;
  };
  const std::vector<Case> cases{
      {"the group id's text does not end",
       [](auto& join) { std::memset(join.id, 'x', sizeof(join.id)); }},
      {"was refused: invalid_argument: rank must be", [](auto& join) { join.rank = 2; }},
      {"its join was refused: invalid_argument", [](auto& join) { join.id[3] = '!'; }}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    HostileClient client(cluster[0].socket());
    ASSERT_TRUE(client.hello());
    auto join = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 2);
    std::memcpy(join.id, id.c_str(), id.size() + 1);
    join.size = 2;
    cases[i].change(join);
    const auto answer = client.ask<shm::DonePacket>(join);
    ASSERT_TRUE(answer.has_value()) << cases[i].says;
    EXPECT_EQ(answer->status, static_cast<std::int32_t>(Errc::invalid_argument)) << answer->detail;
    EXPECT_TRUE(cluster[0].logs(cases[i].says));
    EXPECT_EQ(cluster[0].counter("joins_refused"), before_all + 3 + static_cast<std::int64_t>(i));
  }
  // None of it has harmed the group.
  ranks[1].tell("join group=g rank=1 size=2 id=" + id);
  for (const std::size_t rank : {0u, 1u}) EXPECT_TRUE(ranks[rank].reply().ok());
  for (const std::size_t rank : {0u, 1u}) ranks[rank].tell("stream group=g ops=20");
  EXPECT_EQ(disagreement({ranks[0].reply(), ranks[1].reply()}), "");
}

TEST_F(BadClient, DeclaresOtherThanTheOtherRanksOfItsNode) {
  work_meanwhile();
  Ranks ranks(cluster, {3});
  ASSERT_EQ(ranks.join(), "");
  ASSERT_TRUE(ranks[0].ask("declare group=g name=t count=1000").ok());
  const Reply sized = ranks[1].ask("declare group=g name=t count=1001");
  EXPECT_EQ(sized.code, TERN_ERR_MISMATCH) << sized;
  EXPECT_THAT(sized.text, HasSubstr("rank 0 says 1000 f32"));
  EXPECT_THAT(sized.text, HasSubstr("rank 1 says 1001 f32"));
  EXPECT_TRUE(cluster[0].logs("its declaration of a tensor was refused: mismatch: t: rank 0 says"));
  const Reply typed = ranks[2].ask("declare group=g name=t count=1000 dtype=i32");
  EXPECT_EQ(typed.code, TERN_ERR_MISMATCH) << typed;
  EXPECT_THAT(typed.text, HasSubstr("rank 2 says 1000 i32"));
  EXPECT_EQ(cluster[0].counter("declarations_refused"), 2);
  // Who declares as the first one did is taken.
  for (const std::size_t rank : {1u, 2u}) {
    ASSERT_TRUE(ranks[rank].ask("declare group=g name=t count=1000").ok());
  }
  ranks.ask_all("submit op=x group=g tensor=t");
  EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "");
}

TEST_F(BadClient, DiffersFromTheOtherRanks) {
  work_meanwhile();
  Ranks ranks(cluster, {2, 1});
  ASSERT_EQ(ranks.join(), "");
  struct Case {
    const char* mine;
    const char* theirs;
    std::vector<const char*> says;
  };
  const std::vector<Case> cases{
      {"count=1000", "count=1001", {"1000", "1001"}},
      {"count=70000", "count=70001", {"70000", "70001"}},
      {"count=1000 dtype=f32", "count=1000 dtype=i32", {"f32", "i32"}},
      {"count=1000 reduction=sum", "count=1000 reduction=max", {"sum", "max"}},
      {"count=1000", "count=1000 kind=broadcast", {"all_reduce", "broadcast"}},
      {"count=90000 kind=broadcast root=0",
       "count=90000 kind=broadcast root=2",
       {"from 0", "from 2"}},
      {"count=1000", "kind=barrier", {"all_reduce", "barrier"}}};
  for (const std::size_t odd : {std::size_t{2}, std::size_t{1}}) {
    for (const Case& one : cases) {
      for (std::size_t rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(
            ranks[rank]
                .ask(std::string("submit op=x group=g ") + (rank == odd ? one.theirs : one.mine))
                .ok());
      }
      for (const Reply& reply : ranks.ask_all("wait op=x")) {
        EXPECT_EQ(reply.code, TERN_ERR_MISMATCH) << one.theirs << ": " << reply;
        for (const char* part : one.says) EXPECT_THAT(reply.text, HasSubstr(part)) << one.theirs;
        EXPECT_THAT(reply.text, HasSubstr("rank " + std::to_string(odd))) << one.theirs;
      }
    }
  }
  EXPECT_GE(cluster[0].counter("ops_failed"), static_cast<std::int64_t>(2 * cases.size()));
  EXPECT_TRUE(cluster[0].logs("failed: mismatch: "));
  // The group goes on.
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
  // Roles differ by declaration: between nodes the first use tells.
  ASSERT_TRUE(ranks[0].ask("declare group=g name=t count=50000 role=gradient").ok());
  ASSERT_TRUE(ranks[1].ask("declare group=g name=t count=50000 role=gradient").ok());
  ASSERT_TRUE(ranks[2].ask("declare group=g name=t count=50000 role=exact").ok());
  for (const Reply& reply : ranks.ask_all("submit op=x group=g tensor=t"))
    ASSERT_TRUE(reply.ok()) << reply;
  for (const Reply& reply : ranks.ask_all("wait op=x")) {
    EXPECT_EQ(reply.code, TERN_ERR_MISMATCH) << reply;
    EXPECT_THAT(reply.text, HasSubstr("gradient"));
    EXPECT_THAT(reply.text, HasSubstr("exact"));
  }
}

TEST_F(BadClient, CancelsAndLeavesThingsUndone) {
  work_meanwhile();
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join("g", "op_timeout=1000"), "");
  ASSERT_TRUE(ranks[0].ask("submit op=x group=g count=50000").ok());
  ASSERT_TRUE(ranks[0].ask("cancel op=x").ok());
  EXPECT_EQ(ranks[0].ask("wait op=x").code, TERN_ERR_CANCELLED);
  ASSERT_TRUE(ranks[1].ask("submit op=x group=g count=50000").ok());
  EXPECT_EQ(ranks[1].ask("wait op=x").code, TERN_ERR_CANCELLED);
  // One that the other never submits.
  ASSERT_TRUE(ranks[1].ask("submit op=y group=g count=50000").ok());
  const Reply late = ranks[1].ask("wait op=y");
  EXPECT_EQ(late.code, TERN_ERR_OP_TIMEOUT) << late;
  EXPECT_THAT(late.text, HasSubstr("rank 0"));
  ASSERT_TRUE(ranks[0].ask("submit op=y group=g count=50000").ok());
  EXPECT_EQ(ranks[0].ask("wait op=y").code, TERN_ERR_OP_TIMEOUT);
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
}

TEST(StateQuota, RefusesADeclarationAndTakesItAfterARelease) {
  Cluster cluster(2, {"--max-state-bytes", "1MiB"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join(), "");
  const std::string declare = "declare group=g role=gradient recipe=3lc:s=1 count=200000 name=";
  ASSERT_TRUE(ranks[0].ask(declare + "a").ok());
  const Reply refused = ranks[0].ask(declare + "b");
  EXPECT_EQ(refused.code, TERN_ERR_QUOTA_EXCEEDED) << refused;
  EXPECT_THAT(refused.text, HasSubstr("max_state_bytes"));
  EXPECT_EQ(cluster[0].counter("quota_refusals"), 1);
  EXPECT_TRUE(cluster[0].logs("more exceeds max_state_bytes"));
  ASSERT_TRUE(ranks[0].ask("release group=g name=a").ok());
  EXPECT_TRUE(eventually([&] { return ranks[0].ask(declare + "b").ok(); }));
}

}  // namespace
}  // namespace tern::e2e
