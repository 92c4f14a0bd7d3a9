#include "daemon/metrics/http_request.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

HttpAnswer answer_to(std::string_view received) { return http_answer_to(received, "/metrics"); }

TEST(HttpRequest, IsAnsweredWhenItsHeadIsWhole) {
  const std::string_view request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  for (std::size_t bytes = 0; bytes < request.size(); ++bytes) {
    EXPECT_EQ(answer_to(request.substr(0, bytes)), HttpAnswer::none_yet) << bytes;
  }
  EXPECT_EQ(answer_to(request), HttpAnswer::page);
  EXPECT_EQ(answer_to("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), HttpAnswer::page);
  EXPECT_EQ(answer_to("HEAD /metrics HTTP/1.1\r\n\r\n"), HttpAnswer::head_alone);
}

TEST(HttpRequest, ForAnythingElseIsRefused) {
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\n\r\n"), HttpAnswer::not_found);
  EXPECT_EQ(answer_to("GET /metrics/../etc HTTP/1.1\r\n\r\n"), HttpAnswer::not_found);
  EXPECT_EQ(answer_to("POST /metrics HTTP/1.1\r\n\r\n"), HttpAnswer::not_allowed);
  for (const char* bad : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n",
                          "GET /metrics SMTP\r\n\r\n", " \r\n\r\n"}) {
    EXPECT_EQ(answer_to(bad), HttpAnswer::bad) << bad;
  }
}

TEST(HttpRequest, AnswersSayHowLongTheyAre) {
  EXPECT_EQ(http_answer(HttpAnswer::page, "abc"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 3\r\nConnection: close\r\n\r\nabc");
  EXPECT_EQ(http_answer(HttpAnswer::head_alone, "abc"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 3\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(http_answer(HttpAnswer::not_found, "abc"),
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "Content-Length: 14\r\nConnection: close\r\n\r\n404 Not Found\n");
}

}  // namespace
}  // namespace tern::daemon
