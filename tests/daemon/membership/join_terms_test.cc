#include "daemon/membership/join_terms.h"

#include <gtest/gtest.h>

#include "daemon/membership/control_frames.h"

namespace tern::daemon {
namespace {

nlohmann::json message() {
  return {{"t", "join"},
          {"uid", std::string(32, 'a')},
          {"rank", 3},
          {"size", 8},
          {"nonce", std::string(32, 'b')},
          {"node", node_text({1, 2})},
          {"address", "host:7000"},
          {"lanes", 2},
          {"chunk_bytes", 65'536},
          {"cut", 2},
          {"eager_form", 2},
          {"rooted_form", 2},
          {"eager_bytes", 1'024},
          {"max_ops", 16},
          {"lossy_min", 5},
          {"op_timeout_ms", 1'000},
          {"verify", true},
          {"seed", -7},
          {"completed", 9}};
}

TEST(JoinTerms, HasWhatTheMemberSays) {
  const auto join = parse_join_terms(message());
  ASSERT_TRUE(join);
  EXPECT_EQ(join->node, node_text({1, 2}));
  EXPECT_EQ(join->address, "host:7000");
  EXPECT_EQ(join->nonce, std::string(32, 'b'));
  EXPECT_EQ(join->rank, 3);
  EXPECT_EQ(join->size, 8);
  EXPECT_EQ(join->lanes, 2);
  EXPECT_EQ(join->chunk_bytes, 65'536);
  EXPECT_EQ(join->eager_bytes, 1'024);
  EXPECT_EQ(join->max_ops, 16);
  EXPECT_EQ(join->cut, 2);
  EXPECT_EQ(join->eager_form, 2);
  EXPECT_EQ(join->rooted_form, 2);
  EXPECT_EQ(join->lossy_min, 5);
  EXPECT_EQ(join->op_timeout_ms, 1'000);
  EXPECT_TRUE(join->verify);
  EXPECT_EQ(join->seed, -7);
  EXPECT_EQ(join->completed, 9);
}

TEST(JoinTerms, WithoutItsNumbersIsReadAndHasNonsense) {
  nlohmann::json little = message();
  for (const char* key :
       {"rank", "size", "lanes", "max_ops", "seed", "cut", "eager_form", "rooted_form"})
    little.erase(key);
  const auto join = parse_join_terms(little);
  ASSERT_TRUE(join);
  EXPECT_EQ(join->rank, -1);
  EXPECT_EQ(join->size, -1);
  EXPECT_EQ(join->lanes, 1);
  EXPECT_EQ(join->cut, 1) << "a daemon that knows no other says nothing of it";
  EXPECT_EQ(join->eager_form, 1) << "nor of this";
  EXPECT_EQ(join->rooted_form, 1) << "nor of this";
  EXPECT_EQ(join->max_ops, 0);
}

TEST(JoinTerms, ThatDoesNotSayWhoJoinsIsNone) {
  for (const char* key : {"node", "address", "nonce"}) {
    nlohmann::json wrong = message();
    wrong[key] = 5;
    EXPECT_FALSE(parse_join_terms(wrong)) << key;
    wrong[key] = std::string(33, 'x');
    EXPECT_FALSE(parse_join_terms(wrong)) << key;
    wrong.erase(key);
    EXPECT_FALSE(parse_join_terms(wrong)) << key;
  }
}

TEST(JoinTerms, OfAnAddressThatIsTooLongIsNone) {
  nlohmann::json wrong = message();
  wrong["address"] = std::string(4'000, 'h') + ":7000";
  EXPECT_FALSE(parse_join_terms(wrong));
}

}  // namespace
}  // namespace tern::daemon
