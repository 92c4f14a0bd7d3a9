#include "net/tcp/sources.h"

#include <gtest/gtest.h>

#include <string>

namespace tern::net {
namespace {

using boost::asio::ip::make_address;

bool are_one(const char* a, const char* b) {
  return source_of(make_address(a)) == source_of(make_address(b));
}

TEST(Sources, WhatOneAttackerHasManyOfCountsAsOne) {
  EXPECT_TRUE(are_one("127.0.0.1", "127.8.7.6"));
  EXPECT_TRUE(are_one("127.0.0.1", "::1"));
  EXPECT_TRUE(are_one("10.0.0.1", "::ffff:10.0.0.1"));
  EXPECT_TRUE(are_one("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
  EXPECT_FALSE(are_one("2001:db8:0:1::1", "2001:db8:0:2::1"));
  EXPECT_FALSE(are_one("10.0.0.1", "10.0.0.2"));
}

TEST(Sources, TheOldestOfTheSourceWithMostGoes) {
  const auto place = [](const std::string& sources) {
    std::vector<boost::asio::ip::address> all;
    for (const char one : sources) all.push_back(make_address(std::string("10.0.0.") + one));
    return oldest_of_heaviest(all);
  };
  EXPECT_EQ(place("1"), 0u);
  EXPECT_EQ(place("1222"), 1u);
  EXPECT_EQ(place("31222"), 2u);
  EXPECT_EQ(place("1221"), 0u);
  EXPECT_EQ(place("21221"), 0u);
}

}  // namespace
}  // namespace tern::net
