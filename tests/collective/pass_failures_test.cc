#include "collective/pass_failures.h"

#include <gtest/gtest.h>

#include <string>

namespace tern::collective {
namespace pass_failures_test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// Rank 1 sends 10 floats to rank 4.
constexpr Envelope kEnvelope{
    .source = 1, .destination = 4, .tag = 7, .dtype = DType::f32, .count = 10};

Pass send_of(const Envelope& envelope = kEnvelope) {
  Pass pass;
  pass.what.sends = true;
  pass.what.envelope = envelope;
  return pass;
}
Pass recv_of(const Envelope& envelope = kEnvelope) {
  Pass pass;
  pass.what.envelope = envelope;
  pass.source = envelope.source;
  return pass;
}
Envelope from_any() {
  Envelope envelope = kEnvelope;
  envelope.source = kAnySource;
  return envelope;
}

void expect(const Failure& failure, Errc code, std::uint32_t about_rank, const std::string& text) {
  EXPECT_EQ(failure.code, code);
  EXPECT_EQ(failure.about_rank, about_rank);
  EXPECT_EQ(failure.text, text);
}

class PassFailures : public testing::Test {
 protected:
  PassText text;
};

TEST_F(PassFailures, WhatHappensToAGroupNamesThePass) {
  const Failure why{Errc::peer_lost, 3, "node 2 is gone"};
  expect(failure_of(send_of(), why, text), Errc::peer_lost, 3,
         "send to rank 4, tag 7: node 2 is gone");
  expect(failure_of(recv_of(), why, text), Errc::peer_lost, 3,
         "recv from rank 1, tag 7: node 2 is gone");
  expect(failure_of(recv_of(from_any()), why, text), Errc::peer_lost, 3,
         "recv from any rank, tag 7: node 2 is gone");
}

TEST_F(PassFailures, ATextThatIsTooLongIsCut) {
  const std::string reason(1000, 'x');
  const Failure failure = failure_of(send_of(), {Errc::peer_lost, 3, reason}, text);
  EXPECT_EQ(failure.text.size(), sizeof(PassText) - 1);
  EXPECT_EQ(failure.text.substr(0, 26), "send to rank 4, tag 7: xxx");
}

// Reasons are parts of longer texts.
TEST_F(PassFailures, AReasonEndsWhereItSays) {
  const std::string_view reason = std::string_view("cancelled by its rank").substr(0, 9);
  EXPECT_EQ(failure_of(send_of(), {Errc::cancelled, kNoRank, reason}, text).text,
            "send to rank 4, tag 7: cancelled");
}

TEST_F(PassFailures, ATimeoutSaysWhoHasNotCome) {
  expect(timeout_of(send_of(), 1500 * kMs, text), Errc::op_timeout, 4,
         "after 1500 ms rank 4 has no recv from rank 1 with tag 7");
  expect(timeout_of(recv_of(), 1500 * kMs, text), Errc::op_timeout, 1,
         "after 1500 ms rank 1 has not sent to rank 4 with tag 7");
  expect(timeout_of(recv_of(from_any()), 1500 * kMs, text), Errc::op_timeout, kNoRank,
         "after 1500 ms no rank has sent to rank 4 with tag 7");
}

TEST_F(PassFailures, AStallIsAboutTheOtherSide) {
  expect(stall_of(send_of(), 200 * kMs, text), Errc::op_timeout, 4,
         "for 200 ms nothing has moved to rank 4 with tag 7");
  Pass met = recv_of(from_any());
  met.source = 2;  // who has come
  expect(stall_of(met, 200 * kMs, text), Errc::op_timeout, 2,
         "for 200 ms nothing has moved from rank 2 with tag 7");
}

TEST_F(PassFailures, DamageNamesTheNodeThatSent) {
  expect(damage_by(5, text), Errc::corrupt_data, kNoRank,
         "a payload from node 5 did not match its checksum");
}

// ---- Whether the two sides agree

TEST_F(PassFailures, WhatFitsIsNoDisagreement) {
  Envelope room = kEnvelope;
  EXPECT_EQ(disagreement(kEnvelope, room, text).code, Errc::ok);
  room.count = 1000;
  EXPECT_EQ(disagreement(kEnvelope, room, text).code, Errc::ok);
  room.lossy = true;  // it takes what has lost nothing too
  EXPECT_EQ(disagreement(kEnvelope, room, text).code, Errc::ok);
  Envelope sent = kEnvelope;
  sent.lossy = true;
  EXPECT_EQ(disagreement(sent, room, text).code, Errc::ok);
  EXPECT_EQ(kDelivered.code, Errc::ok);
}

TEST_F(PassFailures, AnotherTypeIsTheSenders) {
  Envelope room = kEnvelope;
  room.dtype = DType::i32;
  expect(disagreement(kEnvelope, room, text), Errc::mismatch, 1,
         "rank 1 sends f32 to rank 4 with tag 7, which receives i32");
}

TEST_F(PassFailures, TooLittleRoomIsTheReceivers) {
  Envelope room = kEnvelope;
  room.count = 9;
  expect(disagreement(kEnvelope, room, text), Errc::mismatch, 4,
         "rank 1 sends 10 elements to rank 4 with tag 7, which has room for 9");
}

// A type goes before a count: elements of two types are not compared.
TEST_F(PassFailures, OfTwoDisagreementsTheTypeIsTold) {
  Envelope room = kEnvelope;
  room.dtype = DType::u8;
  room.count = 1;
  EXPECT_NE(disagreement(kEnvelope, room, text).text.find("which receives u8"),
            std::string_view::npos);
}

TEST_F(PassFailures, LostValuesAreTakenOnlyByWhoHasSaidSo) {
  Envelope sent = kEnvelope;
  sent.lossy = true;
  const Failure failure = disagreement(sent, kEnvelope, text);
  EXPECT_EQ(failure.code, Errc::mismatch);
  EXPECT_EQ(failure.about_rank, 1u);
  EXPECT_EQ(failure.text,
            "rank 1 sends to rank 4 with tag 7 by a recipe that loses values, and the recv has "
            "none: give both one, or neither");
}

// The longest text there is.
TEST_F(PassFailures, TextsFitWithTheLargestNumbers) {
  constexpr std::uint32_t kMost = 4'294'967'294;
  Envelope sent{kMost, kMost, kMost, DType::f32, ~std::uint64_t{0}, true}, room = sent;
  room.lossy = false;
  EXPECT_TRUE(disagreement(sent, room, text).text.ends_with("or neither"));
  room.count = ~std::uint64_t{0} - 1;
  EXPECT_TRUE(disagreement(sent, room, text).text.ends_with("18446744073709551614"));
  room.dtype = DType::bf16;
  EXPECT_TRUE(disagreement(sent, room, text).text.ends_with("which receives bf16"));
  EXPECT_TRUE(timeout_of(send_of(sent), ~std::uint64_t{0}, text).text.ends_with("4294967294"));
}

// ---- How a pass has ended

TEST(PassOutcome, KeepsATextOfItsOwn) {
  PassOutcome outcome;
  EXPECT_EQ(outcome.failure().code, Errc::ok);
  {
    const std::string gone = "for a while";
    outcome.set({Errc::op_timeout, 6, gone});
  }
  expect(outcome.failure(), Errc::op_timeout, 6, "for a while");
  outcome.set({Errc::cancelled, kNoRank, "short"});
  expect(outcome.failure(), Errc::cancelled, kNoRank, "short");
}

TEST(PassOutcome, CutsWhatIsTooLong) {
  PassOutcome outcome;
  const std::string text(500, 'y');
  outcome.set({Errc::mismatch, 1, text});
  EXPECT_EQ(outcome.failure().text, text.substr(0, sizeof outcome.text - 1));
}

}  // namespace
}  // namespace pass_failures_test
}  // namespace tern::collective
