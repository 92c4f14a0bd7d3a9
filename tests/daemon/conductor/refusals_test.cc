#include "daemon/conductor/refusals.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class RefusalsTest : public PartRig {};

TEST_F(RefusalsTest, AreAnsweredAndCounted) {
  const Client& client = connect(1);
  refusals_.join({client, 5, "01234567"}, Errc::rank_taken, "taken");
  EXPECT_EQ(answer_to(5)->status, Errc::rank_taken);
  EXPECT_EQ(answer_to(5)->text, "taken");
  EXPECT_EQ(counters_->joins_refused, 1u);
  refusals_.declaration({client, 6}, Errc::mismatch, "differs");
  EXPECT_EQ(answer_to(6)->status, Errc::mismatch);
  EXPECT_EQ(counters_->declarations_refused, 1u);
  refusals_.client(client, 7, Errc::permission_denied, "no");
  EXPECT_EQ(answer_to(7)->status, Errc::permission_denied);
  EXPECT_EQ(counters_->clients_refused, 1u);
  EXPECT_EQ(counters_->quota_refusals, 0u);
}

TEST_F(RefusalsTest, OverAQuotaAreCountedAsSuch) {
  const Client& client = connect(1);
  refusals_.client(client, 5, Errc::quota_exceeded, "too many");
  refusals_.join_over_quota(client, 6, "too many");
  refusals_.declaration({client, 7}, Errc::quota_exceeded, "too many");
  EXPECT_EQ(counters_->quota_refusals, 3u);
  EXPECT_EQ(counters_->clients_refused, 1u);
  EXPECT_EQ(counters_->joins_refused, 1u);
  EXPECT_EQ(counters_->declarations_refused, 0u);
  for (const std::uint64_t request : {5u, 6u, 7u}) {
    EXPECT_EQ(answer_to(request)->status, Errc::quota_exceeded);
  }
}

// A coordinator may refuse a join for a quota of its own, which is not this daemon's.
TEST_F(RefusalsTest, AQuotaOfTheCoordinatorIsNotThisDaemons) {
  refusals_.join({connect(1), 5}, Errc::quota_exceeded, "the coordinator has too many groups");
  EXPECT_EQ(counters_->quota_refusals, 0u);
  EXPECT_EQ(answer_to(5)->status, Errc::quota_exceeded);
}

TEST_F(RefusalsTest, OfOtherDaemonsAreCountedByKind) {
  refusals_.stranger("10.0.0.7:4711", Errc::permission_denied, "no certificate");
  refusals_.stranger("10.0.0.7:4712", Errc::protocol_error, "not a hello");
  refusals_.hello(wire::HelloBody{}, "there is no lane 9");
  refusals_.control_breach("a peer", "it sent nonsense");
  EXPECT_EQ(counters_->hellos_refused, 3u);
  EXPECT_EQ(counters_->peers_not_trusted, 1u);
  EXPECT_EQ(counters_->bad_control_frames, 1u);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
