// Which device, port and carrier a connection takes, when it tries again, and what it says of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/rdma/two_ends.h"

namespace tern::rdma {
namespace {

using mock::DeviceShape;
using mock::Port;
using ::testing::HasSubstr;

std::string note_of(const net::Connection& connection) { return connection.carriage().note; }

TEST(Choice, LanesTakeTurnsOnAllPortsOfAllDevices) {
  mock::Fabric fabric({{"one", {Port{}, Port{}}}, {"two", {Port{}, Port{}}}});
  std::set<std::string> taken;
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    const auto of_lane = [lane](RdmaSettings& settings) { settings.lane = lane; };
    TwoEnds ends(fabric, of_lane, of_lane);
    ASSERT_TRUE(ends.connect_until("rdma"));
    EXPECT_EQ(fabric.last_path.ah_attr.port_num, lane % 2 + 1);
    taken.insert(note_of(*ends.a));
  }
  EXPECT_EQ(taken, (std::set<std::string>{"one:1", "one:2", "two:1", "two:2"}));
}

TEST(Choice, SettingsReachTheQueuePair) {
  mock::Fabric fabric;
  const auto adjust = [](RdmaSettings& settings) {
    settings.mtu = 1500;  // 1024 is the next below
    settings.service_level = 3;
    settings.traffic_class = 106;
    settings.timeout = 11;
    settings.retry_count = 2;
  };
  TwoEnds ends(fabric, adjust, adjust);
  ASSERT_TRUE(ends.connect_until("rdma"));
  EXPECT_EQ(fabric.last_path.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(fabric.last_path.ah_attr.sl, 3);
  EXPECT_EQ(fabric.last_path.ah_attr.grh.traffic_class, 106);
  EXPECT_EQ(fabric.last_send_settings.timeout, 11);
  EXPECT_EQ(fabric.last_send_settings.retry_cnt, 2);
}

TEST(Choice, TakesTheGidOfRoceV2UnlessToldOtherwise) {
  mock::Fabric fabric(
      {{"mock0", {Port{.gid_types = {IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2}}}}});
  TwoEnds best(fabric);
  ASSERT_TRUE(best.connect_until("rdma"));
  EXPECT_EQ(fabric.last_path.ah_attr.grh.sgid_index, 1);
  const auto first = [](RdmaSettings& settings) { settings.gid_index = 0; };
  TwoEnds chosen(fabric, first, first);
  ASSERT_TRUE(chosen.connect_until("rdma"));
  EXPECT_EQ(fabric.last_path.ah_attr.grh.sgid_index, 0);
  TwoEnds different(fabric, first);
  ASSERT_TRUE(different.connect_until("tcp"));
  EXPECT_THAT(note_of(*different.a), HasSubstr("set rdma_gid_index on both nodes"));
}

TEST(Choice, TheSmallerOfTwoMtusIsTaken) {
  mock::Fabric fabric({{"one", {Port{}}}, {"two", {Port{.mtu = IBV_MTU_1024}}}});
  TwoEnds ends(
      fabric, [](RdmaSettings& settings) { settings.devices = "one"; },
      [](RdmaSettings& settings) { settings.devices = "two"; });
  ASSERT_TRUE(ends.connect_until("rdma"));
  EXPECT_EQ(fabric.last_path.path_mtu, IBV_MTU_1024);
}

// Which of two nodes connects is chance.
TEST(Choice, OfAPeerIsTheSameWhicheverSideConnects) {
  const auto not_to = [](const char* host) {
    return [host](RdmaSettings& settings) { settings.peer_choices = {{host, Choice::never}}; };
  };
  mock::Fabric fabric;
  for (const char* host : {"::1", "127.0.0.1"}) {
    TwoEnds by_accepting(fabric, {}, not_to(host), host);
    ASSERT_TRUE(by_accepting.connect_until("tcp")) << host;
    TwoEnds by_connecting(fabric, not_to(host), {}, host);
    ASSERT_TRUE(by_connecting.connect_until("tcp")) << host;
    TwoEnds of_another(fabric, not_to("fd00::7"), not_to("fd00::7"), host);
    ASSERT_TRUE(of_another.connect_until("rdma")) << host;
  }
}

// A required carrier that the peer has not is no reason to go over another one.
TEST(Choice, ClosesWhereRdmaIsRequiredAndThePeerHasNone) {
  mock::Fabric fabric;
  TwoEnds ends(
      fabric, [](RdmaSettings& settings) { settings.choice = Choice::required; },
      [](RdmaSettings& settings) { settings.choice = Choice::never; });
  ASSERT_TRUE(ends.connect());
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.closed == 1; }));
  EXPECT_THAT(ends.sink_a.closed_text, HasSubstr("RDMA is required"));
}

// Nor is the first frame of the accepting side sent over it.
TEST(Choice, ClosesWhereTheAcceptingSideRequiresRdmaAndHasNone) {
  mock::Fabric fabric;
  fabric.set_port(0, 1, IBV_PORT_DOWN);
  TwoEnds ends(fabric, {}, [](RdmaSettings& settings) { settings.choice = Choice::required; });
  ASSERT_TRUE(ends.connect_saying_rdma());
  const auto frame = net::sealed(net::block_header(1), net::pattern(100, 1));
  ends.b->send({frame, {}});
  ASSERT_TRUE(ends.until([&] { return ends.sink_b.closed == 1; }));
  EXPECT_THAT(ends.sink_b.closed_text, HasSubstr("RDMA is required"));
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.closed == 1; }));
  EXPECT_TRUE(ends.sink_a.payloads.empty());
}

// A refusal is not about RDMA.
TEST(Choice, WhoeverRequiresRdmaIsToldWhyItIsRefused) {
  mock::Fabric fabric;
  TwoEnds ends(fabric, [](RdmaSettings& settings) { settings.choice = Choice::required; });
  ASSERT_TRUE(ends.connect());
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(wire::FrameKind::refuse);
  const auto refuse = net::sealed(header, net::pattern(sizeof(wire::RefuseBody), 1));
  ends.b->send({refuse, {}});
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.payloads.size() == 1; }));
  EXPECT_EQ(ends.sink_a.closed, 0);
}

TEST(Choice, APeerThatIsSentAwayCostsNoQueuePair) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect());
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(wire::FrameKind::refuse);
  const auto refuse = net::sealed(header, net::pattern(sizeof(wire::RefuseBody), 1));
  ends.b->send({refuse, {}});
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.payloads.size() == 1; }));
  EXPECT_EQ(fabric.calls.queue_pairs, 0u);
}

TEST(Choice, APathThatDropsLargePacketsIsNotTaken) {
  mock::Fabric fabric;
  fabric.carries_bytes = 1500;
  fabric.tries = 20;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("tcp"));
  EXPECT_THAT(note_of(*ends.b), HasSubstr("4096 bytes"));
  EXPECT_THAT(note_of(*ends.b), HasSubstr("rdma_mtu"));
  const auto small = [](RdmaSettings& settings) { settings.mtu = 1024; };
  TwoEnds smaller(fabric, small, small);
  ASSERT_TRUE(smaller.connect_until("rdma"));
}

// Frames wait while a set-up is under way, so one that never succeeds must become rare.
TEST(Choice, APathThatNeverWorksIsTriedEverMoreRarely) {
  mock::Fabric fabric;
  fabric.loses_all = true;
  fabric.tries = 3;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("tcp"));
  ends.run_for(3600);
  // After 10, 20, ... 640 s, and then each 640 s; both ends make a pair each time.
  EXPECT_LE(fabric.calls.queue_pairs / 2, 12u);
  EXPECT_GE(fabric.calls.queue_pairs / 2, 8u);
  fabric.loses_all = false;
  ends.run_for(1300);
  EXPECT_EQ(TwoEnds::carrier_of(*ends.a), "rdma");
  EXPECT_EQ(TwoEnds::carrier_of(*ends.b), "rdma");
}

TEST(Choice, AnAddressThatHasChangedIsAskedForAnew) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.change_gid(0, 1, "10.0.0.77");
  ASSERT_TRUE(ends.connect_until("rdma"));
  EXPECT_EQ(fabric.last_path.ah_attr.grh.dgid.raw[15], 77);
}

TEST(Choice, APortThatWentDownIsUsedOnceItIsUp) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.set_port(0, 1, IBV_PORT_DOWN);
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.closed == 1 && ends.sink_b.closed == 1; }));
  EXPECT_THAT(ends.sink_a.closed_text, HasSubstr("mock0:1 went down"));
  ASSERT_TRUE(ends.connect_until("tcp"));
  EXPECT_EQ(ends.a->carriage().failovers, 1u);
  fabric.set_port(0, 1, IBV_PORT_ACTIVE);
  ends.run_for(25);
  EXPECT_EQ(TwoEnds::carrier_of(*ends.a), "rdma");
}

TEST(Choice, ADeviceThatIsRemovedIsLeft) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.remove(0);
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.closed == 1 && ends.sink_b.closed == 1; }));
  EXPECT_THAT(ends.sink_a.closed_text, HasSubstr("was removed"));
  EXPECT_EQ(fabric.open_contexts(), 0u);
  ASSERT_TRUE(ends.connect_until("tcp"));
}

// What is said in the hello holds for the life of a link, so that a link must not be told of an
// old look for devices.
TEST(Choice, ADeviceThatHasJustComeIsUsedByTheNextConnection) {
  mock::Fabric fabric;
  fabric.remove(0);
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("tcp"));
  EXPECT_THAT(note_of(*ends.a), HasSubstr("there is no RDMA device"));
  fabric.add(0);
  ends.clock.advance_ns(200'000'000);
  ASSERT_TRUE(ends.connect_until("rdma"));
}

// A driver that waits until its users have closed the device tells of nothing.
TEST(Choice, ADeviceWhoseNodeIsGoneIsLeft) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.remove_node(0);
  ends.run_for(1);
  EXPECT_EQ(ends.sink_a.closed, 1);
  EXPECT_EQ(ends.sink_b.closed, 1);
}

class BrokenQueue : public ::testing::TestWithParam<ibv_event_type> {};

// Of these there is no completion: without the event a connection would wait for ever.
TEST_P(BrokenQueue, IsFailedOver) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.raise(0, GetParam());
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.closed == 1 && ends.sink_b.closed == 1; }));
  EXPECT_THAT(ends.sink_a.closed_text, HasSubstr("RDMA failed: mock0:1"));
  EXPECT_EQ(ends.transport_a.counters().failovers + ends.transport_b.counters().failovers, 2u)
      << "of each end's own queue pair";
}

INSTANTIATE_TEST_SUITE_P(Events, BrokenQueue,
                         ::testing::Values(IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL),
                         [](const auto& each) {
                           return each.param == IBV_EVENT_CQ_ERR ? "CompletionQueue" : "QueuePair";
                         });

// Each group has a connection of its own to a peer, and they fail together.
TEST(Choice, ConnectionsThatFailTogetherAreOneFailure) {
  mock::Fabric fabric;
  fabric.loses_all = true;
  fabric.tries = 1'000'000;
  TwoEnds ends(fabric);
  std::vector<std::unique_ptr<net::Connection>> connections;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(ends.connect());
    connections.push_back(std::move(ends.a));
    connections.push_back(std::move(ends.b));
  }
  const auto all_are = [&](const std::string& carrier) {
    return std::all_of(connections.begin(), connections.end(),
                       [&](const auto& one) { return TwoEnds::carrier_of(*one) == carrier; });
  };
  ASSERT_TRUE(ends.until([&] { return fabric.calls.queue_pairs == 16; }));
  fabric.tries = 1;
  ASSERT_TRUE(ends.until([&] { return all_are("tcp"); }));
  fabric.loses_all = false;
  ends.run_for(10);
  EXPECT_TRUE(ends.until([&] { return all_are("rdma"); }));
}

// What came of a failure long ago does not make the next one worse.
TEST(Choice, APathThatHasWorkedIsTriedSoonAgain) {
  mock::Fabric fabric;
  fabric.loses_all = true;
  fabric.tries = 3;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("tcp"));
  ends.run_for(200);  // attempts at 10, 30, 70, 150 s
  fabric.loses_all = false;
  ends.run_for(200);
  ASSERT_EQ(TwoEnds::carrier_of(*ends.a), "rdma");
  ends.a.reset();
  ends.b.reset();
  fabric.loses_all = true;
  ASSERT_TRUE(ends.connect_until("tcp"));
  fabric.loses_all = false;
  ends.run_for(12);
  EXPECT_EQ(TwoEnds::carrier_of(*ends.a), "rdma");
}

// Nothing is held up by a port that is down.
TEST(Choice, APortThatIsDownForLongIsUsedSoonAfterItIsUp) {
  mock::Fabric fabric({{"one", {Port{}}}, {"two", {Port{.address = "10.0.0.2"}}}});
  TwoEnds ends(
      fabric, [](RdmaSettings& settings) { settings.devices = "one"; },
      [](RdmaSettings& settings) { settings.devices = "two"; });
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.set_port(0, 1, IBV_PORT_DOWN);
  ASSERT_TRUE(ends.until([&] { return ends.sink_a.closed == 1 && ends.sink_b.closed == 1; }));
  ASSERT_TRUE(ends.connect_until("tcp"));
  ends.run_for(400);
  ASSERT_EQ(TwoEnds::carrier_of(*ends.a), "tcp");
  fabric.set_port(0, 1, IBV_PORT_ACTIVE);
  ends.run_for(21);
  EXPECT_EQ(TwoEnds::carrier_of(*ends.a), "rdma");
}

// Cards differ in what they carry inline, and refuse more.
TEST(Choice, ADeviceThatCarriesLittleInlineIsUsed) {
  for (const std::uint32_t most : {0u, 64u, 100u}) {
    DeviceShape shape;
    shape.max_inline = most;
    mock::Fabric fabric({shape});
    TwoEnds ends(fabric);
    ASSERT_TRUE(ends.connect_until("rdma")) << most;
    const auto frame = net::sealed(net::block_header(1), net::pattern(100, 1));
    ASSERT_TRUE(ends.carry(frame));
  }
}

// What the device takes fewer of than are wanted.
TEST(Choice, AQueueTooDeepForTheDeviceNamesTheSetting) {
  mock::Fabric fabric({{"mock0", {Port{}}, 32}});
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("tcp"));
  EXPECT_THAT(note_of(*ends.b), HasSubstr("lower rdma_receive_slots"));
}

TEST(Choice, MemoryThatMayNotBeLockedNamesTheLimit) {
  mock::Fabric fabric;
  fabric.max_registered_bytes = 1 << 20;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("tcp"));
  EXPECT_THAT(note_of(*ends.b), HasSubstr("cannot register"));
}

}  // namespace
}  // namespace tern::rdma
