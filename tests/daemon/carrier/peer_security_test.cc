#include "daemon/carrier/peer_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "tests/net/tls_files.h"

namespace tern::daemon::peer_security_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kDay = 86'400;

class PeerSecurityTest : public ::testing::Test {
 protected:
  PeerSecurityTest() {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(std::move(logger));
  }
  ~PeerSecurityTest() override { spdlog::set_default_logger(before_); }

  static Config with_mode(const std::string& mode) {
    Config config;
    config.peer_security = mode;
    return config;
  }
  // Of a node whose certificate ends in so many days.
  Config with_certificate(std::int64_t ends_in_days) {
    const auto node =
        files.node("cluster", {"node0"}, net::TlsFiles::days_from_now(-1, ends_in_days));
    Config config = with_mode("tls");
    config.tls_ca_file = node.authorities;
    config.tls_certificate_file = node.certificate;
    config.tls_key_file = node.key;
    return config;
  }
  static PeerSecurity of(const Config& config) {
    auto made = PeerSecurity::create(config);
    EXPECT_TRUE(made) << made.error().text;
    return std::move(*made);
  }
  // What has been logged since the last look.
  std::string logged() {
    spdlog::default_logger()->flush();
    std::string text = log_.str();
    log_.str("");
    return text;
  }

  net::TlsFiles files;

 private:
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(PeerSecurityTest, PlaintextHasNoSourceAndIsSaidInTheLog) {
  PeerSecurity security = of(with_mode("plaintext"));
  EXPECT_EQ(security.source(), nullptr);
  EXPECT_EQ(security.text(), "plaintext");
  security.announce();
  EXPECT_THAT(logged(), HasSubstr("whoever reaches the network between nodes can read"));
  security.watch(0);
  EXPECT_THAT(logged(), IsEmpty()) << "nothing of it expires";
  nlohmann::json status;
  security.report(status);
  EXPECT_EQ(status["peer_security"], "plaintext");
  EXPECT_EQ(status["plaintext"], true);
  EXPECT_TRUE(status["certificates"].empty());
}

TEST_F(PeerSecurityTest, OneMachineAloneIsNotWarnedOf) {
  const PeerSecurity security = of(with_mode("local"));
  EXPECT_EQ(security.source(), nullptr);
  EXPECT_EQ(security.text(), "plaintext, this machine only");
  security.announce();
  EXPECT_THAT(logged(), IsEmpty());
}

TEST_F(PeerSecurityTest, AClusterKeyHasNoCertificates) {
  Config config = with_mode("key");
  config.cluster_key_file = files.cluster_key("key");
  const PeerSecurity security = of(config);
  ASSERT_NE(security.source(), nullptr);
  EXPECT_EQ(security.text(), "TLS by the cluster key");
  nlohmann::json status;
  security.report(status);
  EXPECT_EQ(status["plaintext"], false);
  EXPECT_TRUE(status["certificates"].empty());
}

TEST_F(PeerSecurityTest, AMissingFileIsAnErrorThatNamesIt) {
  Config config = with_mode("key");
  config.cluster_key_file = files.folder() + "/absent";
  const auto made = PeerSecurity::create(config);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().text, HasSubstr(config.cluster_key_file));
}

TEST_F(PeerSecurityTest, ReportsTheNodesCertificateAndTheAuthorities) {
  const PeerSecurity security = of(with_certificate(10));
  EXPECT_EQ(security.text(), "TLS by certificates");
  nlohmann::json status;
  security.report(status);
  ASSERT_EQ(status["certificates"].size(), 2u);
  EXPECT_EQ(status["certificates"][0]["kind"], "node");
  EXPECT_EQ(status["certificates"][0]["names"], nlohmann::json::array({"node0"}));
  EXPECT_EQ(status["certificates"][1]["kind"], "authority");
}

TEST_F(PeerSecurityTest, OnceADayItSaysWhatEndsSoonAndWhatHasEnded) {
  PeerSecurity security = of(with_certificate(60));
  const std::int64_t now = std::time(nullptr);
  security.watch(now);
  EXPECT_THAT(logged(), IsEmpty()) << "not within thirty days";
  security.watch(now + 31 * kDay);
  EXPECT_THAT(logged(), HasSubstr("expires on"));
  security.watch(now + 31 * kDay + kDay / 2);
  EXPECT_THAT(logged(), IsEmpty()) << "said today";
  security.watch(now + 61 * kDay);
  const std::string ended = logged();
  EXPECT_THAT(ended, HasSubstr("has expired on"));
  EXPECT_THAT(ended, HasSubstr("`ternctl pki issue` makes a new one"));
}

TEST_F(PeerSecurityTest, FilesAreReadAgainAndStayAsTheyWereOnAnError) {
  PeerSecurity security = of(with_certificate(10));
  const auto before = security.source()->current();
  Config absent = with_certificate(20);
  absent.tls_key_file += ".absent";
  EXPECT_FALSE(security.reload(absent));
  EXPECT_EQ(security.source()->current(), before);
  // The mode is that of the start.
  Config config = with_certificate(20);
  config.peer_security = "plaintext";
  EXPECT_TRUE(security.reload(config));
  EXPECT_NE(security.source()->current(), before);
  EXPECT_THAT(logged(), HasSubstr("read again"));
}

}  // namespace
}  // namespace tern::daemon::peer_security_test
