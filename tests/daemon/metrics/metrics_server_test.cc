#include "daemon/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <string_view>
#include <thread>

#include "base/fd.h"

namespace tern::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The whole answer to one request, its head included.
std::string http_get(std::uint16_t port, const std::string& path) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const void* const generic = &address;
  EXPECT_EQ(::connect(socket.get(), static_cast<const sockaddr*>(generic), sizeof address), 0);
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  EXPECT_EQ(::send(socket.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::recv(socket.get(), piece.data(), piece.size(), 0)) > 0;) {
    answer.append(piece.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

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
