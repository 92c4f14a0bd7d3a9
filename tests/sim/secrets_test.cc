// What a group's members prove to each other without saying it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "cluster.h"
#include "daemon/membership/group_id.h"

namespace tern::sim {
namespace {

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string raw(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
  return text;
}

TEST(Secrets, OfAGroupNeverCrossTheWire) {
  Cluster cluster({1, 2, 1});
  bool secret_seen = false, uid_seen = false;
  const std::string text = cluster.id = cluster.mint();
  const auto id = daemon::parse_group_id(text);
  ASSERT_TRUE(id) << id.error().text;
  const std::string hex = hex_of(id->secret);
  // In whole and in halves, as text and as bytes.
  const std::vector<std::string> forms = {hex.substr(0, 32), hex.substr(32), upper(hex),
                                          raw(std::span(id->secret).first(16)),
                                          raw(std::span(id->secret).last(16))};
  cluster.world.tap = [&](const net::OutgoingFrame& frame) {
    const std::string whole = raw(frame.head) + raw(frame.body);
    for (const std::string& form : forms) {
      secret_seen = secret_seen || whole.find(form) != std::string::npos;
    }
    uid_seen = uid_seen || whole.find(hex_of(id->uid)) != std::string::npos;
  };
  // A rank that guesses another secret is refused, and the rest still joins.
  std::string guessed = text;
  guessed.back() = guessed.back() == '0' ? '1' : '0';
  std::vector<std::uint64_t> joins;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    joins.push_back(cluster.ranks[rank]->join(text, rank, 4));
  }
  Client& last = *cluster.ranks[3];
  const std::uint64_t attempt = last.join(guessed, 3, 4);
  ASSERT_TRUE(cluster.await(last, attempt));
  EXPECT_EQ(last.status_of(attempt).status, Errc::bad_secret);
  joins.push_back(last.join(text, 3, 4));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.await(client, joins[rank]));
    ASSERT_TRUE(client.adopt_join(joins[rank], rank)) << client.status_of(joins[rank]).detail;
  }
  for (Client* client : cluster.ranks) ASSERT_TRUE(cluster.await(*client, client->leave()));
  // Another epoch, with work.
  cluster.join();
  cluster.reduce(all_reduce(DType::f32, 20'000), inputs_of(DType::f32, 20'000, 4));
  cluster.reduce(all_reduce(DType::f32, 100), inputs_of(DType::f32, 100, 4));
  cluster.leave_all();
  EXPECT_TRUE(uid_seen) << "the tap has not seen the joins";
  EXPECT_FALSE(secret_seen);
}

}  // namespace
}  // namespace tern::sim
