#include "daemon/lane/fail_body.h"

#include <gtest/gtest.h>

#include <string>

namespace tern::daemon {
namespace fail_body_test {

wire::OpFailBody body_of(std::int32_t code) {
  wire::OpFailBody body{};
  body.code = code;
  body.rank = 3;
  std::memset(body.text, 'x', sizeof(body.text));  // no end
  return body;
}

std::optional<FailBody> read(const wire::OpFailBody& body) {
  return FailBody::read(std::as_bytes(std::span(&body, 1)));
}

TEST(FailBody, IsReadAsItWasWritten) {
  const FailBody told({Errc::timeout, 7, "nobody answered"});
  const auto heard = FailBody::read(told.payload());
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->failure().code, Errc::timeout);
  EXPECT_EQ(heard->failure().about_rank, 7u);
  EXPECT_EQ(heard->failure().text, "nobody answered");
}

TEST(FailBody, ALongTextIsCut) {
  const std::string text(1000, 'y');
  const FailBody told({Errc::timeout, 7, text});
  EXPECT_EQ(told.failure().text, text.substr(0, sizeof(wire::OpFailBody::text) - 1));
}

TEST(FailBody, AForeignTextEndsInTheFrame) {
  const auto heard = read(body_of(1));
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->failure().text.size(), sizeof(wire::OpFailBody::text) - 1);
}

TEST(FailBody, WhatIsNoFailureMakesNoSense) {
  for (const std::int32_t code : {-1, 0, static_cast<std::int32_t>(kErrcCount), 1 << 30}) {
    EXPECT_FALSE(read(body_of(code)).has_value()) << code;
  }
  const wire::OpFailBody body = body_of(1);
  const auto payload = std::as_bytes(std::span(&body, 1));
  EXPECT_FALSE(FailBody::read(payload.first(payload.size() - 1)).has_value());
  EXPECT_FALSE(FailBody::read({}).has_value());
}

}  // namespace fail_body_test
}  // namespace tern::daemon
