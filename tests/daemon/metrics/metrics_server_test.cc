#include "daemon/metrics/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/daemon/metrics/http_client.h"

namespace tern::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsServer, AnswersWithWhatWasPublishedLast) {
  auto server = MetricsServer::create("127.0.0.1", 0, [] {});
  ASSERT_TRUE(server) << server.error().text;
  const std::uint16_t port = (*server)->port();
  EXPECT_THAT(http_get(port, "/metrics"), HasSubstr("200 OK"));
  prometheus::ClientMetric value;
  for (const double number : {1.0, 42.0}) {
    value.gauge.value = number;
    (*server)->publish({{"tern_clients", "Clients.", prometheus::MetricType::Gauge, {value}}});
  }
  EXPECT_THAT(http_get(port, "/metrics"), HasSubstr("\ntern_clients 42\n"));
  EXPECT_THAT(http_get(port, "/etc/passwd"), Not(HasSubstr("200 OK")));
}

TEST(MetricsServer, AsksForFamiliesWhenSomebodyScrapesAndNotBefore) {
  std::atomic<int> asked{0};
  std::unique_ptr<MetricsServer> server;
  const auto publish_if_wanted = [&](double number) {
    if (!server->wanted()) return false;
    prometheus::ClientMetric value;
    value.gauge.value = number;
    server->publish({{"tern_clients", "Clients.", prometheus::MetricType::Gauge, {value}}});
    return true;
  };
  auto created = MetricsServer::create("127.0.0.1", 0, [&] { ++asked; });
  ASSERT_TRUE(created) << created.error().text;
  server = std::move(*created);
  EXPECT_FALSE(publish_if_wanted(1));
  EXPECT_EQ(asked, 0);
  std::string answer;
  std::thread scrape([&] { answer = http_get(server->port(), "/metrics"); });
  while (!publish_if_wanted(7)) std::this_thread::yield();
  scrape.join();
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(server->wanted());
  // Either it was in time, or the one after it is: that one is too soon to ask again.
  EXPECT_THAT(answer + http_get(server->port(), "/metrics"), HasSubstr("\ntern_clients 7\n"));
}

TEST(MetricsServer, SaysWhichAddressCannotBeHad) {
  auto first = MetricsServer::create("127.0.0.1", 0, [] {});
  ASSERT_TRUE(first) << first.error().text;
  const auto second = MetricsServer::create("127.0.0.1", (*first)->port(), [] {});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().text, HasSubstr("metrics_listen: cannot listen on 127.0.0.1:"));
  EXPECT_FALSE(MetricsServer::create("192.0.2.1", 0, [] {}));
}

}  // namespace
}  // namespace tern::daemon
