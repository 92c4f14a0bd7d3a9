// Daemons that must prove themselves to each other: who is let in, who is not, and what is said of
// it on both sides, to operators and to the ranks that wait.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/hostile_peer.h"
#include "tests/e2e/peer_proofs.h"
#include "tests/e2e/rank_process.h"
#include "tests/e2e/unpacked.h"

namespace tern::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SecurePeers : public ::testing::Test, protected PeerProofs {
 protected:
  // A rank at each of two daemons: the second one's dials the first.
  static void expect_work(Cluster& cluster, const std::string& transport) {
    ASSERT_TRUE(cluster.running());
    Ranks ranks(cluster, {1, 1});
    ASSERT_EQ(ranks.join(), "");
    EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=60 tensors=3 large=300000")), "");
    EXPECT_TRUE(eventually([&] {
      int lanes = 0;
      for (const auto& peer : cluster[0].ask("peers")) lanes += peer["transport"] == transport;
      return lanes == 2;  // the control link and the lane's
    })) << cluster[0].ask("peers").dump();
  }

  // What a rank of the second daemon is told that wants to join a group of the first.
  static Reply dial(Cluster& cluster) {
    RankProcess host(cluster[0]), guest(cluster[1]);
    EXPECT_TRUE(host.connect().ok() && guest.connect().ok());
    const Reply minted = host.ask("mint");
    EXPECT_TRUE(minted.ok()) << minted;
    return guest.ask("join group=g id=" + minted.field("id") + " size=2 rank=1");
  }

  // The second daemon dials the first, and they do not find together.
  void expect_refusal(const Options& listener, const Options& dialler,
                      const std::string& says_listener, const std::string& says_dialler) {
    Cluster cluster(2, {}, {listener, dialler});
    ASSERT_TRUE(cluster.running());
    const Reply reply = dial(cluster);
    EXPECT_EQ(reply.code, TERN_ERR_PERMISSION_DENIED);
    EXPECT_THAT(reply.text, AllOf(HasSubstr(says_dialler), HasSubstr(cluster[0].address())));
    EXPECT_TRUE(eventually([&] { return cluster[0].counter("peers_not_trusted") > 0; }));
    EXPECT_GT(cluster[1].counter("peers_not_trusted"), 0);
    EXPECT_TRUE(cluster[0].logs(says_listener)) << says_listener;
    EXPECT_TRUE(cluster[1].logs(says_dialler)) << says_dialler;
  }
};

TEST_F(SecurePeers, WorkByCertificates) {
  Cluster cluster(2, {}, {certified("one", "127.0.0.1"), certified("one", "127.0.0.1")});
  expect_work(cluster, "tls");
  EXPECT_THAT(cluster[0].ternctl({"status"}),
              AllOf(HasSubstr("encrypted"), HasSubstr("127.0.0.1, until 20")));
  EXPECT_THAT(cluster[0].ternctl({"peers"}), HasSubstr("TLS 1.3, 127.0.0.1 until 20"));
}

TEST_F(SecurePeers, WorkByAKey) {
  Cluster cluster(2, keyed("key"));
  expect_work(cluster, "tls");
  EXPECT_THAT(cluster[0].ternctl({"peers"}), HasSubstr("the cluster key"));
}

TEST_F(SecurePeers, ADumpHasNoneOfTheirKeys) {
  const Options by_certificate = certified("one", "127.0.0.1"), by_key = keyed("key");
  Cluster cluster(2, {}, {by_certificate, by_key});
  ASSERT_TRUE(cluster.running());
  std::string all;
  for (const std::size_t node : {0u, 1u}) {
    const std::string at = cluster.folder() + "/dump" + std::to_string(node);
    int exit_code = -1;
    const std::string said =
        cluster[node].ternctl({"dump", "--output", at + ".tar.gz"}, &exit_code);
    ASSERT_EQ(exit_code, 0) << said;
    all += unpacked(at + ".tar.gz", at);
  }
  EXPECT_THAT(all, AllOf(HasSubstr("TLS by certificates"), HasSubstr("TLS by the cluster key")));

  std::istringstream pem(text_of(by_certificate.back()));
  for (std::string line; std::getline(pem, line);) {
    EXPECT_EQ(all.find(line), std::string::npos) << line;
  }
  const std::string digits = text_of(by_key.back()).substr(0, 64);
  ASSERT_EQ(digits.size(), 64u);
  EXPECT_EQ(all.find(digits.substr(0, 16)), std::string::npos);
  EXPECT_EQ(all.find(digits.substr(48)), std::string::npos);
  std::string bytes;
  for (std::size_t i = 0; i < 32; i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  EXPECT_EQ(all.find(bytes), std::string::npos);
}

TEST_F(SecurePeers, StayInPlaintextWhereTheyAreTold) {
  Cluster cluster(2, {"--peer-security", "plaintext"});
  expect_work(cluster, "tcp");
  EXPECT_TRUE(cluster[0].logs("can read and change what they send"));
  EXPECT_THAT(text_of(cluster[0].log_path()), HasSubstr("warn"));
  EXPECT_THAT(cluster[0].ternctl({"status"}), HasSubstr("not encrypted"));
}

TEST_F(SecurePeers, RefuseAForeignCluster) {
  expect_refusal(certified("one", "127.0.0.1"), certified("two", "127.0.0.1"),
                 "refuses this node's certificate", "was issued by \"one\"");
}

TEST_F(SecurePeers, RefuseAnExpiredCertificate) {
  expect_refusal(certified("one", "127.0.0.1"), certified("one", "127.0.0.1", days(-9, -2)),
                 "has expired on", "as expired: issue a new one");
}

TEST_F(SecurePeers, RefuseACertificateOfTomorrow) {
  expect_refusal(certified("one", "127.0.0.1", days(1, 9)), certified("one", "127.0.0.1"),
                 "are the clocks right", "is not valid before");
}

TEST_F(SecurePeers, RefuseAnotherName) {
  expect_refusal(certified("one", "node7.example"), certified("one", "127.0.0.1"),
                 "the address that the peer dials", "is for node7.example, and not for 127.0.0.1");
}

TEST_F(SecurePeers, RefusePlaintextAtATlsPort) {
  expect_refusal(certified("one", "127.0.0.1"), {"--peer-security", "plaintext"},
                 "plaintext, where TLS alone is spoken", "plaintext, where TLS alone is spoken");
}

TEST_F(SecurePeers, RefuseTlsAtAPlaintextPort) {
  expect_refusal({"--peer-security", "plaintext"}, certified("one", "127.0.0.1"),
                 "TLS, where plaintext is spoken", "speaks in plaintext");
}

TEST_F(SecurePeers, RefuseAnotherKey) {
  expect_refusal(keyed("one.key"), keyed("two.key"), "another cluster key", "another cluster key");
}

TEST_F(SecurePeers, WarnOfACertificateThatEndsSoon) {
  Cluster cluster(1, certified("one", "127.0.0.1", days(-1, 20)));
  ASSERT_TRUE(cluster.running());
  EXPECT_TRUE(eventually([&] {
    return text_of(cluster[0].log_path()).find("\"127.0.0.1\" expires on 20") != std::string::npos;
  }));
  EXPECT_THAT(text_of(cluster[0].log_path()),
              AllOf(HasSubstr("days; `ternctl pki issue`"), HasSubstr("warn")));
  EXPECT_THAT(cluster[0].ternctl({"doctor"}), HasSubstr("the certificate of 127.0.0.1 ends on 20"));
}

TEST_F(SecurePeers, NewCertificatesCountFromAReloadOn) {
  const Options late = certified("one", "127.0.0.1", days(-9, -2));
  Cluster cluster(2, {}, {certified("one", "127.0.0.1"), late});
  ASSERT_TRUE(cluster.running());
  EXPECT_TRUE(eventually([&] {
    return text_of(cluster[1].log_path()).find("\"127.0.0.1\" has expired") != std::string::npos;
  }));
  EXPECT_THAT(dial(cluster).text, HasSubstr("as expired"));
  // In place, as an operator does it.
  const Options fresh = certified("one", "127.0.0.1");
  for (const std::size_t file : {5u, 7u}) std::filesystem::rename(fresh[file], late[file]);
  cluster[1].process().signal(SIGHUP);
  ASSERT_TRUE(eventually([&] {
    return cluster[1].ask("status")["certificates"][0]["not_after_s"] > std::time(nullptr);
  }));
  expect_work(cluster, "tls");
}

TEST_F(SecurePeers, ABadFileAtAReloadChangesNothing) {
  const Options own = certified("one", "127.0.0.1");
  Cluster cluster(2, {}, {own, certified("one", "127.0.0.1")});
  ASSERT_TRUE(cluster.running());
  std::ofstream(own[5]) << "no certificate";
  cluster[0].process().signal(SIGHUP);
  ASSERT_TRUE(eventually([&] {
    return text_of(cluster[0].log_path()).find("stay as they were") != std::string::npos;
  }));
  EXPECT_THAT(text_of(cluster[0].log_path()), HasSubstr(own[5] + ": has no certificate in PEM"));
  expect_work(cluster, "tls");
}

// Strangers cost nothing for long: a job beside them goes on.
TEST_F(SecurePeers, HalfOpenHandshakesEndInTime) {
  Cluster cluster(2, {"--handshake-timeout", "300ms"},
                  {certified("one", "127.0.0.1"), certified("one", "127.0.0.1")});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join(), "");
  const Holdings before = cluster[0].holdings();
  ranks.tell_all("stream group=g ops=200 tensors=3 large=60000");
  // A record of the hand-shake that announces more than ever comes.
  constexpr std::byte kBegun[] = {std::byte{0x16}, std::byte{3}, std::byte{1}, std::byte{2},
                                  std::byte{0},    std::byte{1}, std::byte{0}, std::byte{1}};
  std::vector<HostilePeer> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.emplace_back(cluster[0].port());
    if (i % 2 == 0) strangers.back().send(kBegun);
  }
  for (HostilePeer& stranger : strangers) EXPECT_TRUE(stranger.is_thrown_out());
  EXPECT_EQ(disagreement(ranks.replies()), "");
  EXPECT_TRUE(eventually([&] { return cluster[0].holdings().descriptors <= before.descriptors; }));
}

TEST_F(SecurePeers, NoiseInsideAHandshakeIsThrownOut) {
  Cluster cluster(1, certified("one", "127.0.0.1"));
  ASSERT_TRUE(cluster.running());
  std::vector<std::byte> noise(300'000, std::byte{0x5a});
  noise[0] = std::byte{0x16};
  noise[1] = noise[2] = std::byte{3};
  HostilePeer stranger(cluster[0].port());
  stranger.send(noise);
  EXPECT_TRUE(stranger.is_thrown_out());
  EXPECT_TRUE(cluster[0].ask("status").is_object());
}

}  // namespace
}  // namespace tern::e2e
