// What may come to a daemon's port: none of it is believed, and the job beside it does not notice.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errc.h"
#include "base/fd.h"
#include "tests/e2e/hostile_peer.h"
#include "tests/e2e/rank_process.h"
#include "wire/hello.h"
#include "wire/op_frames.h"

namespace tern::e2e {
namespace {

using wire::FrameKind;

const std::string kToConductor = "its connection to the conductor was closed: ";
const std::string kToLane = "its connection to lane 0 was closed: ";

class BadPeer : public ::testing::Test {
 protected:
  explicit BadPeer(const std::string& handshake_timeout = "300ms",
                   const std::string& peer_timeout = "1s", const std::string& unused_timeout = "1s")
      : cluster(2, {"--handshake-timeout", handshake_timeout, "--peer-timeout", peer_timeout,
                    "--unused-timeout", unused_timeout}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    good = Ranks(cluster, {1, 1}, "good");
    ASSERT_EQ(good.join(), "");
    before = cluster[0].holdings();
    port = cluster[0].port();
    good.tell_all("stream group=g ops=400 tensors=3 large=60000");
  }

  void TearDown() override {
    EXPECT_EQ(disagreement(good.replies()), "");
    EXPECT_EQ(disagreement(good.ask_all("stream group=g ops=20")), "");
    EXPECT_TRUE(eventually([&] { return cluster[0].holdings().descriptors <= before.descriptors; }))
        << cluster[0].holdings().descriptors << " descriptors, before " << before.descriptors;
  }

  Cluster cluster;
  Ranks good;
  Holdings before;
  int port = 0;
};

// A coordinator that refuses every hello, as a daemon of another wire version does.
class ForeignCoordinator {
 public:
  ForeignCoordinator() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic{};
    std::memcpy(&generic, &address, sizeof(generic));
    EXPECT_EQ(::bind(socket_.get(), &generic, sizeof(address)), 0);
    EXPECT_EQ(::listen(socket_.get(), 16), 0);
    socklen_t bytes = sizeof(generic);
    EXPECT_EQ(::getsockname(socket_.get(), &generic, &bytes), 0);
    std::memcpy(&address, &generic, sizeof(address));
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ForeignCoordinator() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  int port() const { return port_; }

 private:
  void serve() {
    const auto refusal = wire::make_refuse(Errc::version_mismatch, "it speaks protocol 9 only");
    std::vector<Fd> refused;
    for (;;) {
      Fd peer(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer) return;
      wire::HelloFrame hello;
      static_cast<void>(::recv(peer.get(), &hello, sizeof(hello), MSG_WAITALL));
      static_cast<void>(::send(peer.get(), &refusal, sizeof(refusal), MSG_NOSIGNAL));
      refused.push_back(std::move(peer));
    }
  }
  Fd socket_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(BadPeer, CoordinatesInAnotherVersion) {
  const ForeignCoordinator coordinator;
  RankProcess rank(cluster[0]);
  ASSERT_TRUE(rank.connect().ok());
  const std::string id = "tern1:127.0.0.1:" + std::to_string(coordinator.port()) + ":" +
                         std::string(32, 'a') + ":" + std::string(64, 'b');
  const Reply refused = rank.ask("join group=x rank=0 size=2 id=" + id);
  EXPECT_EQ(refused.code, TERN_ERR_VERSION_MISMATCH) << refused;
  EXPECT_THAT(refused.text, testing::HasSubstr("it speaks protocol 9 only"));
}

TEST_F(BadPeer, SendsNoise) {
  std::mt19937_64 random(3);
  for (const std::size_t bytes : {1u, 10u, 87u, 88u, 89u, 168u, 1000u, 100'000u}) {
    std::vector<std::byte> noise(bytes);
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    HostilePeer peer(port);
    peer.send(noise);
    EXPECT_TRUE(peer.is_thrown_out()) << bytes;
  }
  HostilePeer silent(port);
  EXPECT_TRUE(silent.is_thrown_out());
  const auto hello = HostilePeer::hello_frame(HostilePeer::hello_body(0, 9));
  for (const std::size_t bytes : {std::size_t{5}, sizeof(wire::FrameHeader), hello.size() - 1}) {
    HostilePeer stops(port);  // half-way through a good one
    ASSERT_TRUE(stops.send(std::span(hello).first(bytes)));
    EXPECT_TRUE(stops.is_thrown_out()) << bytes;
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].counter("hellos_refused") >= 11; }));
}

TEST_F(BadPeer, ComesAgainAndAgainAndFillsNoLog) {
  constexpr int kTimes = 300;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::byte> zeros(88);
  for (int i = 0; i < kTimes; ++i) {
    HostilePeer peer(port);
    peer.send(zeros);
    EXPECT_TRUE(peer.is_thrown_out()) << i;
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].counter("hellos_refused") >= kTimes; }));
  // One a second, of which the log has the first at once.
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin)
          .count();
  EXPECT_TRUE(cluster[0].logs("refused a co"));
  std::ifstream log(cluster[0].log_path());
  int lines = 0;
  for (std::string line; std::getline(log, line);) lines += line.find("refused a co") != line.npos;
  EXPECT_LE(lines, seconds + 2);
}

TEST_F(BadPeer, SendsBadHellos) {
  using Header = wire::FrameHeader;
  using Body = wire::HelloBody;
  struct Case {
    const char* name;
    std::function<void(Header&, Body&)> change;
  };
  const std::vector<Case> cases{
      {"magic", [](Header& header, Body&) { header.magic ^= 1; }},
      {"version", [](Header& header, Body&) { header.version = 2; }},
      {"kind", [](Header& header, Body&) { header.kind = 99; }},
      {"no hello",
       [](Header& header, Body&) { header.kind = static_cast<std::uint8_t>(FrameKind::control); }},
      {"oversize",
       [](Header& header, Body&) { header.payload_bytes = wire::kMaxPayloadBytes + 1; }},
      {"larger than a hello", [](Header& header, Body&) { header.payload_bytes = 81; }},
      {"smaller than a hello", [](Header& header, Body&) { header.payload_bytes = 79; }},
      {"checksum", [](Header& header, Body&) { header.payload_crc ^= 1; }},
      {"reserved", [](Header& header, Body&) { header.reserved2 = 1; }},
      {"versions", [](Header&, Body& body) { body.version_min = body.version_max = 9; }},
      {"lane", [](Header&, Body& body) { body.lane = 40; }},
      {"another node", [](Header&, Body& body) {
         body.expected_node = {1, 2};
       }}};
  for (const Case& one : cases) {
    Header header;
    Body body = HostilePeer::hello_body(0, 5);
    header.kind = static_cast<std::uint8_t>(FrameKind::hello);
    header.payload_bytes = sizeof(body);
    one.change(header, body);
    const auto payload = std::as_bytes(std::span(&body, 1));
    if (one.name != std::string("checksum")) header.payload_crc = wire::crc32c(payload);
    HostilePeer peer(port);
    peer.send(HostilePeer::sealed(header, payload));
    EXPECT_TRUE(peer.is_thrown_out()) << one.name;
  }
  // All but the last, which may come from one that has not heard of a restart.
  EXPECT_GE(cluster[0].counter("hellos_refused"), static_cast<std::int64_t>(cases.size()) - 1);
  EXPECT_TRUE(cluster[0].logs("its connection was refused: there is no lane 40"));
}

TEST_F(BadPeer, SpeaksNonsenseToTheConductor) {
  std::uint64_t node = 100;
  const auto open = [&](HostilePeer& peer) {
    return peer.hello(HostilePeer::hello_body(wire::kConductorLane, ++node));
  };
  const std::string deep(5000, '['), uid_of_nobody(32, 'b');
  // To copy or to print it would exhaust a stack.
  const std::string deep_join = "{\"t\":\"join\",\"rank\":0,\"size\":2,\"uid\":\"" + uid_of_nobody +
                                "\",\"seed\":" + std::string(400'000, '[') +
                                std::string(400'000, ']') + "}";
  for (const std::string& text : {std::string("not json"), std::string("[1,2]"), std::string("7"),
                                  deep, deep_join, std::string("{\"t\":")}) {
    HostilePeer peer(port);
    ASSERT_TRUE(open(peer));
    ASSERT_TRUE(peer.send(peer.control(text)));
    EXPECT_TRUE(peer.is_thrown_out()) << text.substr(0, 20);
  }
  EXPECT_EQ(cluster[0].counter("bad_control_frames"), 6);
  EXPECT_TRUE(cluster[0].logs(kToConductor + "its control message is no JSON object"));
  {
    // Objects with fields of wrong types and values; the link stays or not, the daemon does.
    HostilePeer peer(port);
    ASSERT_TRUE(open(peer));
    const std::string uid(32, 'a');
    for (const std::string& text :
         {std::string("{}"), std::string("{\"t\":7}"), std::string("{\"t\":\"join\"}"),
          "{\"t\":\"join\",\"uid\":\"" + uid + "\",\"rank\":-1,\"size\":1}",
          "{\"t\":\"join\",\"uid\":\"" + uid + "\",\"rank\":0,\"size\":1e99}",
          "{\"t\":\"join\",\"uid\":\"" + uid + "\",\"rank\":0,\"size\":1,\"node\":[],\"nonce\":{}}",
          nlohmann::json{{"t", "join"},
                         {"uid", uid},
                         {"rank", 0},
                         {"size", 1},
                         {"node", uid},
                         {"nonce", uid},
                         {"lanes", -5},
                         {"chunk_bytes", "x"}}
              .dump(),
          "{\"t\":\"proof\",\"uid\":\"" + uid + "\",\"rank\":0,\"hmac\":\"\"}",
          "{\"t\":\"members\",\"uid\":\"" + uid + "\",\"body\":\"{}\",\"hmac\":\"00\"}",
          "{\"t\":\"start\",\"uid\":\"" + uid + "\",\"epoch\":1}",
          "{\"t\":\"end\",\"uid\":\"" + uid + "\",\"epoch\":1,\"code\":-4}",
          "{\"t\":\"ended\",\"uid\":\"" + uid + "\",\"epoch\":1,\"code\":7}",
          "{\"t\":\"left\",\"uid\":\"" + uid + "\",\"rank\":0}",
          "{\"t\":\"challenge\",\"uid\":\"" + uid + "\",\"rank\":0,\"nonce\":5}"}) {
      peer.send(peer.control(text));
    }
    EXPECT_TRUE(eventually([&] { return cluster[0].counter("bad_control_messages") > 0; }));
    EXPECT_TRUE(cluster[0].logs("a control message that nobody understands was ignored"));
  }
  {
    HostilePeer peer(port);  // larger than any control message
    ASSERT_TRUE(open(peer));
    const std::vector<std::byte> large(2 << 20, std::byte{' '});
    peer.send(peer.next(FrameKind::control, large));
    EXPECT_TRUE(peer.is_thrown_out());
    EXPECT_TRUE(eventually([&] { return cluster[0].counter("bad_control_frames") == 7; }));
  }
  {
    HostilePeer peer(port);  // thousands of joins of groups that nobody knows
    ASSERT_TRUE(open(peer));
    for (int i = 0; i < 6000; ++i) {
      char uid[33];
      std::snprintf(uid, sizeof(uid), "%032x", i);
      peer.send(peer.control(std::string("{\"t\":\"join\",\"rank\":0,\"size\":2,\"uid\":\"") + uid +
                             "\",\"node\":\"" + uid + "\",\"nonce\":\"" + uid +
                             "\",\"address\":\"127.0.0.1:1\"}"));
    }
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].ask("status").is_object(); }));
}

TEST_F(BadPeer, BreaksTheSequence) {
  std::uint64_t node = 300;
  const std::string_view text = "{\"t\":\"nothing\"}";
  const auto bytes = std::as_bytes(std::span(text));
  struct Breach {
    const char* says;
    std::function<void(HostilePeer&)> commit;
  };
  const std::vector<Breach> breaches{
      {"a frame was refused",  // a gap
       [&](HostilePeer& peer) {
         peer.next(FrameKind::control, bytes);
         peer.send(peer.next(FrameKind::control, bytes));
       }},
      {"the peer acknowledged what was not sent",
       [&](HostilePeer& peer) {
         wire::FrameHeader header;
         header.kind = static_cast<std::uint8_t>(FrameKind::heartbeat);
         header.ack_seq = 1'000'000;
         peer.send(HostilePeer::frame(header, {}));
       }},
      {"the frame header's CRC is wrong",
       [&](HostilePeer& peer) {
         auto frame = peer.control(text);
         frame[30] ^= std::byte{4};
         peer.send(frame);
       }},
      {"the connection ended inside a frame",
       [&](HostilePeer& peer) {
         const auto frame = peer.control(text);
         peer.send(std::span(frame).first(frame.size() - 3));
         peer.shut();
       }},
      {"the connection ended inside a frame",  // and inside its header
       [&](HostilePeer& peer) {
         const auto frame = peer.control(text);
         peer.send(std::span(frame).first(20));
         peer.shut();
       }},
      {"a frame was refused",  // a second hello
       [&](HostilePeer& peer) {
         peer.send(HostilePeer::hello_frame(HostilePeer::hello_body(wire::kConductorLane, 1)));
       }}};
  for (const std::uint16_t lane : {wire::kConductorLane, std::uint16_t{0}}) {
    const bool conductor = lane == wire::kConductorLane;
    const std::string counter = conductor ? "bad_control_frames" : "bad_frames";
    for (std::size_t i = 0; i < breaches.size(); ++i) {
      const std::int64_t seen = cluster[0].counter(counter);
      HostilePeer peer(port);
      ASSERT_TRUE(peer.hello(HostilePeer::hello_body(lane, ++node))) << i;
      breaches[i].commit(peer);
      EXPECT_TRUE(peer.is_thrown_out()) << i;
      EXPECT_TRUE(eventually([&] { return cluster[0].counter(counter) == seen + 1; }))
          << counter << ", breach " << i;
      char who[64];
      std::snprintf(who, sizeof(who),
                    "the daemon 0000000070656572%016llx: ", static_cast<unsigned long long>(node));
      EXPECT_TRUE(cluster[0].logs(who + (conductor ? kToConductor : kToLane) + breaches[i].says))
          << who << breaches[i].says;
    }
  }
  {
    HostilePeer peer(port);  // the same frame again is dropped or refused, never taken twice
    ASSERT_TRUE(peer.hello(HostilePeer::hello_body(wire::kConductorLane, ++node)));
    const auto frame = peer.control(text);
    const std::int64_t seen = cluster[0].counter("bad_control_messages");
    for (int i = 0; i < 5; ++i) peer.send(frame);
    EXPECT_TRUE(eventually([&] { return cluster[0].counter("bad_control_messages") == seen + 1; }));
    EXPECT_TRUE(eventually([&] {
      return cluster[0].counter("bad_control_frames") ==
             static_cast<std::int64_t>(breaches.size()) + 1;
    }));
    peer.shut();
    EXPECT_TRUE(peer.is_thrown_out());
    EXPECT_EQ(cluster[0].counter("bad_control_messages"), seen + 1);
  }
}

TEST_F(BadPeer, GuessesGroupsOnALane) {
  std::mt19937_64 random(5);
  HostilePeer peer(port);
  ASSERT_TRUE(peer.hello(HostilePeer::hello_body(0, 700)));
  const std::int64_t seen = cluster[0].counter("unknown_group_frames");
  std::uint64_t sequence = 0;
  for (const auto kind :
       {FrameKind::announce, FrameKind::grant, FrameKind::contribution, FrameKind::result,
        FrameKind::op_fail, FrameKind::verify, FrameKind::submitted, FrameKind::send_offer,
        FrameKind::send_accept, FrameKind::send_piece, FrameKind::send_end,
        FrameKind::send_withdraw, FrameKind::rank_left}) {
    for (const std::size_t bytes : {0u, 8u, 48u, 192u, 70'000u}) {
      wire::FrameHeader header;
      header.kind = static_cast<std::uint8_t>(kind);
      header.link_seq = ++sequence;
      header.group = random();
      header.tensor = random();
      header.epoch = 1;
      header.chunk = static_cast<std::uint32_t>(random());
      header.count = static_cast<std::uint32_t>(random());
      ASSERT_TRUE(
          peer.send(HostilePeer::frame(header, std::vector<std::byte>(bytes, std::byte{0x5a}))));
    }
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].counter("unknown_group_frames") >= seen + 65; }));
  EXPECT_TRUE(cluster[0].logs("it sends frames of a group that is not known here"));
}

TEST_F(BadPeer, OpensManyConnections) {
  std::vector<HostilePeer> peers;
  peers.reserve(300);
  for (int i = 0; i < 300; ++i) peers.emplace_back(port);
  for (std::uint16_t i = 0; i < 100; ++i) {
    peers[i].send(HostilePeer::hello_frame(HostilePeer::hello_body(0, 2000u + i)));
  }
  EXPECT_TRUE(cluster[0].ask("status").is_object());
  peers.clear();
}

TEST_F(BadPeer, OpensManyLinksOfNoGroup) {
  std::vector<HostilePeer> peers;
  std::uint64_t node = 3000;
  bool taken = true;
  while (taken && peers.size() < 800) {
    peers.emplace_back(port);
    taken = peers.back().hello(HostilePeer::hello_body(0, ++node));
  }
  EXPECT_FALSE(taken);
  EXPECT_EQ(peers.size(), 33u);  // the share of one user, and one
  EXPECT_EQ(cluster[0].counter("links_turned_away"), 1);
  EXPECT_TRUE(cluster[0].logs("its link was turned away: too many wait for a group"));
  peers.clear();
}

// So patient that what a peer does too much of is met first, and not that it is slow.
class BadPeersOfAPatientDaemon : public BadPeer {
 protected:
  BadPeersOfAPatientDaemon() : BadPeer("300s", "300s", "300s") {}
};

// Every join is answered, and the peer acknowledges no answer.
TEST_F(BadPeersOfAPatientDaemon, AskAndTakeNoAnswer) {
  HostilePeer peer(port);
  ASSERT_TRUE(peer.hello(HostilePeer::hello_body(wire::kConductorLane, 250)));
  const std::string join =
      nlohmann::json{{"t", "join"}, {"uid", std::string(32, 'c')}, {"rank", 7}, {"size", 1}}.dump();
  std::size_t asked = 0;
  while (asked < 1'000'000 && peer.send(peer.control(join)) && peer.drain()) ++asked;
  EXPECT_TRUE(peer.is_thrown_out());
  EXPECT_LT(asked, 1'000'000u);
  EXPECT_GT(asked, 1000u);
  EXPECT_TRUE(cluster[0].logs(kToConductor + "the peer does not acknowledge what it is told"));
  EXPECT_EQ(cluster[0].counter("bad_control_frames"), 1);
}

// Eight that are not small may arrive at once from one source. A small one always may.
TEST_F(BadPeersOfAPatientDaemon, BeginLargeMessages) {
  std::vector<HostilePeer> peers;
  const auto enter = [&]() -> HostilePeer& {
    HostilePeer& peer = peers.emplace_back(port);
    EXPECT_TRUE(peer.hello(HostilePeer::hello_body(wire::kConductorLane, 900 + peers.size())));
    return peer;
  };
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) {
    HostilePeer& peer = enter();
    auto begun = peer.control(large);
    begun.resize(begun.size() / 2);
    EXPECT_TRUE(peer.send(begun));
    EXPECT_TRUE(peer.is_delivered());
  }
  HostilePeer& ninth = enter();
  ninth.send(ninth.control(large));
  EXPECT_TRUE(ninth.is_thrown_out());
  EXPECT_TRUE(cluster[0].logs(kToConductor + "there was no room for its message"));
  HostilePeer& small = enter();
  small.send(small.control("small"));
  EXPECT_TRUE(small.is_thrown_out());
  EXPECT_TRUE(cluster[0].logs(kToConductor + "its control message is no JSON object"));
}

TEST_F(BadPeersOfAPatientDaemon, AreTurnedAwayWhenThereAreTooMany) {
  std::vector<HostilePeer> peers;
  std::uint64_t node = 5000;
  bool taken = true;
  while (taken && peers.size() < 1000) {
    peers.emplace_back(port);
    taken = peers.back().hello(HostilePeer::hello_body(wire::kConductorLane, ++node));
  }
  EXPECT_FALSE(taken);
  // All daemons of this test are of one user, whose share 128 links are.
  EXPECT_GE(peers.size(), 120u);
  EXPECT_LE(peers.size(), 129u);
  EXPECT_TRUE(eventually([&] { return cluster[0].counter("hellos_refused") == 1; }));
  EXPECT_TRUE(cluster[0].logs("its connection was refused: its source has too many links"));
  // There is room again when they have gone.
  peers.clear();
  EXPECT_TRUE(eventually([&] {
    return HostilePeer(port).hello(HostilePeer::hello_body(wire::kConductorLane, ++node));
  }));
}

}  // namespace
}  // namespace tern::e2e
