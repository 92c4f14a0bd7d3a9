#include "daemon/lane/lane_clients.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::lane_clients_test {
namespace {

using lane_test::take_events;
using lane_test::TestClient;

class LaneClientsTest : public ::testing::Test, protected EntrySink {
 protected:
  LaneClientsTest() {
    clients.count_in(counters);
    clients.add(alice.memory);
    clients.add(bob.memory);
  }

  void on_entry(LaneClient& client, const shm::SubmitEntry& entry) override {
    taken.push_back({client.memory->id, entry.ticket});
  }
  LaneClient& lane_client(const TestClient& client) { return *clients.find(client.memory.id); }
  static std::uint32_t doorbell(TestClient& client) {
    return shm::read_doorbell(client.memory.segment.header());
  }
  bool sleeps(TestClient& client) {
    return std::atomic_ref<std::uint32_t>(client.memory.segment.lane_rings(0).lane_sleeps).load() !=
           0;
  }

  TestClient alice{11}, bob{12};
  ManualClock clock;
  net::LoopbackNetwork network;
  net::LoopbackTransport wire{network, {"here", 7000}};
  lane_test::RatedTransport transport{wire};
  EventReports reports{0};
  LaneCounters counters;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // client, ticket
  LaneClients clients{0, {clock, transport}, reports};
};

TEST_F(LaneClientsTest, EntriesAreTakenInTheOrderOfTheirClient) {
  for (const std::uint64_t ticket : {5u, 6u, 7u}) alice.submit(ticket);
  bob.submit(1);
  EXPECT_TRUE(clients.take_entry(lane_client(alice), *this));
  lane_test::take_all(clients, *this);
  EXPECT_FALSE(clients.take_entry(lane_client(alice), *this));
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
      {11, 5}, {11, 6}, {11, 7}, {12, 1}};
  EXPECT_EQ(taken, expected);
  EXPECT_EQ(counters.entries.load(), 4u);
}

TEST_F(LaneClientsTest, AClientThatNoLibraryServesIsGivenUp) {
  alice.submit(5);
  std::atomic_ref<std::uint64_t>(alice.memory.segment.lane_rings(0).submit.tail).store(1 << 20);
  bob.submit(1);
  lane_test::take_all(clients, *this);
  EXPECT_EQ(taken.size(), 1u) << "of the other one";
  const auto misbehaved = take_events<event::ClientMisbehaved>(reports);
  ASSERT_EQ(misbehaved.size(), 1u);
  EXPECT_EQ(misbehaved[0].client, &alice.memory);
  lane_test::take_all(clients, *this);
  clients.tell(lane_client(alice), {5, Errc::ok, "", 0});
  EXPECT_FALSE(alice.next_completion());
  EXPECT_TRUE(take_events<event::ClientMisbehaved>(reports).empty()) << "it is said once";
  for (std::uint64_t ticket = 0; ticket < shm::kRingEntries; ++ticket) {
    clients.tell(lane_client(bob), {ticket, Errc::ok, "", 0});
  }
  EXPECT_FALSE(lane_client(bob).dropping);
  clients.tell(lane_client(bob), {9, Errc::ok, "", 0});
  EXPECT_TRUE(lane_client(bob).dropping) << "more ops in flight than its rings have room for";
  EXPECT_EQ(take_events<event::ClientMisbehaved>(reports).size(), 1u);
}

// As where the kernel has no memory for a page.
TEST_F(LaneClientsTest, AClientWhoseArenaHasLostAPageIsGivenUpBeforeItHearsOfSuccess) {
  const Fd empty(::memfd_create("empty", MFD_CLOEXEC));
  std::byte* const page = alice.memory.segment.arena().data();
  ASSERT_NE(::mmap(page, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, empty.get(), 0), MAP_FAILED);
  alice.submit(5);
  EXPECT_TRUE(clients.take_entry(lane_client(alice), *this));
  const volatile auto* const bytes = static_cast<volatile unsigned char*>(static_cast<void*>(page));
  EXPECT_EQ(bytes[0], 0);
  clients.tell(lane_client(alice), {5, Errc::ok, "", 0});
  EXPECT_FALSE(alice.next_completion());
  alice.submit(6);
  EXPECT_FALSE(clients.take_entry(lane_client(alice), *this));
  const auto misbehaved = take_events<event::ClientMisbehaved>(reports);
  ASSERT_EQ(misbehaved.size(), 1u);
  EXPECT_NE(std::string(misbehaved[0].text.c_str()).find("tern_alloc"), std::string::npos)
      << "the remedy is cut off: " << misbehaved[0].text.c_str();
  bob.submit(1);
  EXPECT_TRUE(clients.take_entry(lane_client(bob), *this));
}

TEST_F(LaneClientsTest, ACompletionSaysHowTheOpEndedAndABellRingsForAll) {
  clients.tell(lane_client(alice), {5, Errc::op_timeout, "too late", 4096});
  const auto entry = alice.next_completion();
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->ticket, 5u);
  EXPECT_EQ(entry->status, static_cast<std::int32_t>(Errc::op_timeout));
  EXPECT_EQ(entry->bytes_sent, 4096u);
  EXPECT_STREQ(entry->detail, "too late");
  EXPECT_FALSE(bob.next_completion());
  const std::string endless(1000, 'x');
  clients.tell(lane_client(alice), {6, Errc::cancelled, endless.c_str(), 0});
  EXPECT_EQ(std::string(alice.next_completion()->detail), endless.substr(0, shm::kDetailBytes - 1));
  EXPECT_EQ(doorbell(alice), 0u);
  clients.ring_doorbells();
  clients.ring_doorbells();
  EXPECT_EQ(doorbell(alice), 1u);
  EXPECT_EQ(doorbell(bob), 0u);
}

TEST_F(LaneClientsTest, TheLogHearsOfRefusedEntriesOnceASecond) {
  const auto refuse = [this](TestClient& client) {
    clients.refuse(lane_client(client), 5, Errc::unknown_group, "no such group");
  };
  refuse(alice);
  refuse(alice);
  refuse(bob);
  EXPECT_EQ(take_events<event::EntryRefused>(reports).size(), 2u) << "of each client";
  EXPECT_EQ(counters.bad_entries.load(), 3u);
  EXPECT_EQ(alice.next_completion()->status, static_cast<std::int32_t>(Errc::unknown_group));
  EXPECT_TRUE(alice.next_completion()) << "the client hears of each";
  clock.advance_ns(lane_test::kSecond);
  refuse(alice);
  EXPECT_EQ(take_events<event::EntryRefused>(reports).size(), 1u);
}

TEST_F(LaneClientsTest, AClientIsLetGoWhenNoOpRefersToIt) {
  ASSERT_EQ(transport.remembered.size(), 2u);
  EXPECT_EQ(transport.remembered[0].size(), alice.memory.segment.arena().size());
  LaneClient& client = lane_client(alice);
  EXPECT_EQ(clients.droppable(), nullptr);
  client.uses = 1;
  clients.request_drop(alice.memory);
  EXPECT_EQ(clients.droppable(), nullptr);
  client.uses = 0;
  ASSERT_EQ(clients.droppable(), &client);
  clients.drop(client);
  const auto dropped = take_events<event::ClientDropped>(reports);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].client, &alice.memory);
  EXPECT_EQ(clients.find(11), nullptr);
  EXPECT_NE(clients.find(12), nullptr);
  // The conductor may unmap it now.
  ASSERT_EQ(transport.remembered.size(), 1u);
  EXPECT_EQ(transport.remembered[0].data(), bob.memory.segment.arena().data());
}

// The lane has room for so many reports of one turn, and a user may have thousands of regions.
class RegionsOfAClient : public LaneClientsTest {
 protected:
  void add_regions(std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      auto segment = shm::Segment::create_region(4096);
      ASSERT_TRUE(segment.has_value()) << segment.error().text;
      regions.push_back(std::make_unique<RegionMemory>(RegionMemory{i, std::move(*segment)}));
      clients.run(command::AddRegion{alice.memory.id, regions.back().get()});
    }
  }
  int drop_unused() { return clients.drop_regions(); }

  std::vector<std::unique_ptr<RegionMemory>> regions;
};

TEST_F(RegionsOfAClient, GoWithItInOneReport) {
  add_regions(64);
  clients.run(command::DropRegion{alice.memory.id, 7});
  clients.request_drop(alice.memory);
  clients.drop(lane_client(alice));
  EXPECT_EQ(take_events<event::RegionDropped>(reports).size(), 0u);
  EXPECT_EQ(transport.remembered.size(), 1u) << "bob's arena";
  EXPECT_EQ(drop_unused(), 0);
}

TEST_F(RegionsOfAClient, AreKeptWhileAnOpRefersToThem) {
  add_regions(2);
  const Region* const used = lane_client(alice).region(1);
  used->uses = 2;
  for (const std::uint32_t region : {1u, 2u}) {
    clients.run(command::DropRegion{alice.memory.id, region});
  }
  EXPECT_EQ(drop_unused(), 1);
  EXPECT_EQ(take_events<event::RegionDropped>(reports).at(0).region, 2u);
  used->uses = 0;
  EXPECT_EQ(drop_unused(), 1);
  EXPECT_EQ(take_events<event::RegionDropped>(reports).at(0).region, 1u);
}

TEST_F(RegionsOfAClient, AreFreedSoManyInATurn) {
  add_regions(300);
  for (std::uint32_t i = 1; i <= 300; ++i) {
    clients.run(command::DropRegion{alice.memory.id, i});
  }
  EXPECT_EQ(drop_unused(), 256);
  EXPECT_EQ(take_events<event::RegionDropped>(reports).size(), 256u);
  EXPECT_EQ(drop_unused(), 44);
  EXPECT_EQ(transport.remembered.size(), 2u);
}

TEST_F(LaneClientsTest, AClientThatIsGoneIsLeftAlone) {
  LaneClient& client = lane_client(alice);
  clients.tell(client, {5, Errc::ok, "", 0});
  alice.submit(6);
  clients.request_drop(alice.memory);
  clients.ring_doorbells();
  EXPECT_EQ(doorbell(alice), 0u);
  lane_test::take_all(clients, *this);
  EXPECT_TRUE(taken.empty());
  EXPECT_TRUE(clients.announce_sleep());
  EXPECT_FALSE(sleeps(alice));
}

TEST_F(LaneClientsTest, WhatWaitsWhenAMoveIsAskedForIsOlder) {
  alice.submit(5);
  alice.submit(6);
  clients.take_entry(lane_client(alice), *this);
  clients.mark_before_move();
  EXPECT_TRUE(clients.has_older_than_move());
  alice.submit(7);
  clients.take_entry(lane_client(alice), *this);
  EXPECT_FALSE(clients.has_older_than_move());
  bob.submit(1);
  clients.mark_before_move();
  clients.request_drop(bob.memory);
  EXPECT_TRUE(clients.has_older_than_move());
  clients.request_drop(alice.memory);
  EXPECT_FALSE(clients.has_older_than_move()) << "nobody takes what is gone";
}

TEST_F(LaneClientsTest, ALaneThatSleepsAsksItsClientsToWakeIt) {
  EXPECT_TRUE(clients.announce_sleep());
  EXPECT_TRUE(sleeps(alice));
  EXPECT_TRUE(sleeps(bob));
  clients.end_sleep();
  EXPECT_FALSE(sleeps(alice));
  alice.submit(5);
  EXPECT_FALSE(clients.announce_sleep()) << "there is work already";
}

}  // namespace
}  // namespace tern::daemon::lane_clients_test
