#include "daemon/membership/epoch_terms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace tern::daemon::epoch_terms_test {
namespace {

JoinTerms usual() {
  JoinTerms join;
  join.lanes = 2;
  join.chunk_bytes = 65536;
  join.eager_bytes = 1024;
  join.max_ops = 16;
  join.cut = join.eager_form = join.rooted_form = 1;
  join.op_timeout_ms = 1000;
  join.seed = 42;
  join.completed = 5;
  return join;
}

nlohmann::json agreed(const std::vector<JoinTerms>& joins) {
  EpochTerms terms;
  for (const JoinTerms& one : joins) terms.add(one);
  nlohmann::json body = nlohmann::json::object();
  terms.write_to(body);
  return body;
}

TEST(EpochTerms, AreThoseOfTheOnlyOne) {
  const nlohmann::json body = agreed({usual()});
  EXPECT_EQ(body["lanes"], 2);
  EXPECT_EQ(body["chunk_bytes"], 65536);
  EXPECT_EQ(body["eager_bytes"], 1024);
  EXPECT_EQ(body["max_ops"], 16);
  EXPECT_EQ(body["op_timeout_ms"], 1000);
  EXPECT_EQ(body["verify"], false);
  EXPECT_EQ(body["seed"], 42);
}

TEST(EpochTerms, AreTheSameInAnyOrderButForTheSeed) {
  JoinTerms other = usual();
  other.lanes = 1;
  other.max_ops = 99;
  other.lossy_min = 7;
  other.verify = true;
  other.seed = 43;
  nlohmann::json one = agreed({usual(), other}), two = agreed({other, usual()});
  EXPECT_EQ(one["lanes"], 1);
  EXPECT_EQ(one["max_ops"], 16);
  EXPECT_EQ(one["lossy_min"], 7);
  EXPECT_EQ(one["verify"], true);
  EXPECT_EQ(one["seed"], 42) << "that of the first";
  EXPECT_EQ(two["seed"], 43);
  two["seed"] = one["seed"];
  EXPECT_EQ(one, two);
}

TEST(EpochTerms, SendNoMoreAtOnceThanAChunk) {
  JoinTerms join = usual();
  join.eager_bytes = 1 << 20;
  EXPECT_EQ(agreed({join})["eager_bytes"], 65536);
}

TEST(EpochTerms, StayWithinBoundsWhateverIsSaid) {
  JoinTerms least, most;
  for (std::int64_t JoinTerms::*term :
       {&JoinTerms::lanes, &JoinTerms::chunk_bytes, &JoinTerms::eager_bytes, &JoinTerms::max_ops,
        &JoinTerms::cut, &JoinTerms::eager_form, &JoinTerms::rooted_form}) {
    least.*term = std::numeric_limits<std::int64_t>::min();
    most.*term = std::numeric_limits<std::int64_t>::max();
  }
  const nlohmann::json low = agreed({least}), high = agreed({most});
  EXPECT_EQ(low["lanes"], 1);
  EXPECT_EQ(low["chunk_bytes"], 16 << 10);
  EXPECT_EQ(low["eager_bytes"], 0);
  EXPECT_EQ(low["max_ops"], 1);
  EXPECT_EQ(low["cut"], 1);
  EXPECT_EQ(low["eager_form"], 1);
  EXPECT_EQ(low["rooted_form"], 1);
  EXPECT_EQ(high["lanes"], 16);
  EXPECT_EQ(high["chunk_bytes"], 1 << 30);
  EXPECT_EQ(high["max_ops"], 1 << 20);
  EXPECT_EQ(high["cut"], static_cast<std::int64_t>(shm::kNewestCut));
  EXPECT_EQ(high["eager_form"], static_cast<std::int64_t>(collective::kNewestEagerForm));
  EXPECT_EQ(high["rooted_form"], static_cast<std::int64_t>(collective::kNewestRootedForm));
}

TEST(EpochTerms, AllHaveCompletedWhatTheSlowestHas) {
  JoinTerms slower = usual(), faster = usual();
  slower.completed = 3;
  faster.completed = 9;
  EpochTerms terms;
  for (const JoinTerms& one : {usual(), slower, faster}) terms.add(one);
  EXPECT_EQ(terms.common_ops(), 3);
  JoinTerms nonsense = usual();
  nonsense.completed = -5;
  terms.add(nonsense);
  terms.add(usual());
  EXPECT_EQ(terms.common_ops(), 0);
}

}  // namespace
}  // namespace tern::daemon::epoch_terms_test
