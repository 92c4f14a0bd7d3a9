#include "daemon/membership/group_proofs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tern::daemon::group_proofs_test {
namespace {

std::array<std::byte, 32> secret() {
  std::array<std::byte, 32> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

JoinProof join() {
  return {.uid = "0123456789abcdef0123456789abcdef",
          .member_nonce = std::string(32, 'a'),
          .challenge = std::string(32, 'b'),
          .node = std::string(32, 'c'),
          .rank = 3,
          .size = 8};
}

// Daemons of different versions compare them: computed by Python's hmac.
TEST(GroupProofs, AreThoseOfTheWireFormat) {
  JoinProof split = join();
  split.split = "terms";
  EXPECT_EQ(join_proof(secret(), join()),
            "397fa0d60719c9d6fb6af75f258f08f91b3f171716b622d6a58e30c35004b76f");
  EXPECT_EQ(join_proof(secret(), split),
            "e425fb11a5c5d5e2c2e393d2783ebd7e499e7d510530971607e271ef55f301ff");
  EXPECT_EQ(members_proof(secret(), "{\"epoch\":1}"),
            "a8acdc4b8cec92df089b194ec93835fe68f63f367d8fc40ecb95235b21a82089");
  EXPECT_EQ(group_token(secret(), join().uid, 7, std::string(32, 'd')), 0xcc0f8c5b6da8f8edu);
}

TEST(GroupProofs, OfAJoinDependOnAllThatItSays) {
  const std::vector<std::function<void(JoinProof&)>> changes = {
      [](JoinProof& one) { one.uid[0] = 'f'; },
      [](JoinProof& one) { one.member_nonce[0] = 'b'; },
      [](JoinProof& one) { one.challenge[0] = 'c'; },
      [](JoinProof& one) { one.node[0] = 'd'; },
      [](JoinProof& one) { one.rank = 4; },
      [](JoinProof& one) { one.size = 9; },
      [](JoinProof& one) { one.split = "other terms"; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    JoinProof changed = join();
    changes[i](changed);
    EXPECT_NE(join_proof(secret(), changed), join_proof(secret(), join())) << i;
  }
  auto other = secret();
  other[31] = std::byte{0};
  EXPECT_NE(join_proof(other, join()), join_proof(secret(), join()));
}

// What moves from one part to the next is another text.
TEST(GroupProofs, KnowWhereAPartEnds) {
  JoinProof moved = join();
  moved.challenge += moved.node.substr(0, 1);
  moved.node.erase(0, 1);
  EXPECT_NE(join_proof(secret(), moved), join_proof(secret(), join()));
  EXPECT_NE(group_token(secret(), "ab", 1, "c"), group_token(secret(), "a", 1, "bc"));
}

}  // namespace
}  // namespace tern::daemon::group_proofs_test
