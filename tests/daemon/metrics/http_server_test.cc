#include "daemon/metrics/http_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <deque>

#include "tests/daemon/metrics/http_client.h"

namespace tern::daemon {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::size_t kPlaces = 8;
constexpr std::uint64_t kNever = 3'600'000'000'000;

class HttpServerTest : public ::testing::Test {
 protected:
  // Without a deadline, so that nothing but a want of places ends a connection.
  std::uint16_t serve(std::uint64_t request_ns = kNever) {
    HttpServer::Settings settings;
    settings.host = "127.0.0.1";
    settings.places = kPlaces;
    settings.request_ns = request_ns;
    settings.answer_ns = kNever;
    auto made = HttpServer::create(settings, [this] { return page(); });
    EXPECT_TRUE(made) << made.error().text;
    server_ = std::move(*made);
    return server_->port();
  }
  std::string page() { return "page " + std::to_string(++pages_); }

  std::atomic<int> pages_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersARequestThatComesInPieces) {
  const HttpClient client(serve());
  client.say("GET /met");
  client.say("rics HTTP/1.1\r\nHost: here\r\n");
  client.say("\r\n");
  EXPECT_THAT(client.read_all(), EndsWith("\r\n\r\npage 1"));
}

TEST_F(HttpServerTest, MakesNoPageForWhoAsksForAnother) {
  const std::uint16_t port = serve();
  EXPECT_THAT(http_get(port, "/etc/passwd"), HasSubstr("404 Not Found"));
  EXPECT_EQ(pages_, 0);
}

// Sixty of them once held a scrape for ten seconds.
TEST_F(HttpServerTest, HalfRequestsKeepNobodyOut) {
  const std::uint16_t port = serve();
  std::deque<HttpClient> silent;
  for (std::size_t i = 0; i < 10 * kPlaces; ++i) {
    silent.emplace_back(port).say("GET /metrics HTTP/1.1\r\n");
  }
  EXPECT_THAT(http_get(port, "/metrics"), EndsWith("page 1"));
  // The oldest ones have gone, the youngest are still waited for.
  EXPECT_EQ(silent.front().read_all(), "");
  silent.back().say("\r\n");
  EXPECT_THAT(silent.back().read_all(), EndsWith("page 2"));
}

TEST_F(HttpServerTest, WhoDoesNotReadKeepsNobodyOut) {
  const std::uint16_t port = serve();
  std::deque<HttpClient> deaf;
  for (std::size_t i = 0; i < 10 * kPlaces; ++i) {
    deaf.emplace_back(port).say("GET /metrics HTTP/1.1\r\n\r\n");
  }
  EXPECT_THAT(http_get(port, "/metrics"), HasSubstr("page"));
}

TEST_F(HttpServerTest, AHalfRequestEndsAfterAWhile) {
  const HttpClient silent(serve(1));
  EXPECT_EQ(silent.read_all(), "");
}

TEST_F(HttpServerTest, ARequestWithoutEndIsCutOff) {
  const HttpClient endless(serve());
  endless.say(std::string(HttpServer::kMaxRequestBytes, 'x'));
  EXPECT_EQ(endless.read_all(), "");
}

TEST_F(HttpServerTest, EndsWhileSomebodyIsConnected) {
  const HttpClient silent(serve());
  server_.reset();
  EXPECT_EQ(silent.read_all(), "");
}

}  // namespace
}  // namespace tern::daemon
