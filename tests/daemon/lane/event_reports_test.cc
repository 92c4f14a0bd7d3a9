#include "daemon/lane/event_reports.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

event::OpEnded well(std::uint64_t ended_ns, bool tuned, bool surprising) {
  event::OpEnded ended;
  ended.record.ended_ns = ended_ns;
  if (tuned) ended.record.tuned.emplace().surprising = surprising;
  return ended;
}

TEST(EventReports, AnEventNamesItsLaneAndWakesTheConductorOnce) {
  EventReports reports(3);
  reports.report(event::GroupReady{});
  EXPECT_TRUE(reports.take_urgent());
  EXPECT_FALSE(reports.take_urgent());
  Event event;
  ASSERT_TRUE(reports.ring().pop(event));
  EXPECT_EQ(event.lane, 3u);
  EXPECT_TRUE(std::holds_alternative<event::GroupReady>(event.what));
}

TEST(EventReports, ARecordOfAnOpThatWentWellCanWait) {
  EventReports reports(0);
  LaneCounters counters;
  reports.record(well(5'000'000'000, false, false), counters);
  EXPECT_FALSE(reports.take_urgent());
  event::OpEnded failed = well(5'000'000'000, false, false);
  failed.code = Errc::mismatch;
  reports.record(failed, counters);
  EXPECT_TRUE(reports.take_urgent());
}

TEST(EventReports, TheTunerIsWokenSoonerForASurprise) {
  EventReports reports(0);
  LaneCounters counters;
  reports.record(well(2'000'000'000, true, false), counters);
  EXPECT_TRUE(reports.take_urgent());  // the first in a second
  reports.record(well(2'005'000'000, true, false), counters);
  EXPECT_FALSE(reports.take_urgent());
  reports.record(well(2'006'000'000, true, true), counters);
  EXPECT_TRUE(reports.take_urgent());
  reports.record(well(2'007'000'000, true, true), counters);
  EXPECT_FALSE(reports.take_urgent());
}

// Thousands of links may be lost in one round.
TEST(EventReports, WhatTheRingDoesNotHoldWaitsInItsOrder) {
  EventReports reports(0);
  const std::size_t most = reports.ring().write_available();
  const auto report = [&reports](std::uint32_t number) {
    event::OpEnded ended;
    ended.code = Errc::mismatch;
    ended.record.sequence = number;
    reports.report(ended);
  };
  const auto count = static_cast<std::uint32_t>(2 * most + 7);
  for (std::uint32_t i = 0; i < count; ++i) report(i);
  EXPECT_FALSE(reports.has_room());
  std::uint32_t next = 0;
  Event event;
  while (reports.ring().pop(event)) {
    EXPECT_EQ(std::get<event::OpEnded>(event.what).record.sequence, next++);
    (void)reports.take_urgent();
    if (reports.ring().read_available() > 0) continue;
    (void)reports.has_room();
    EXPECT_EQ(reports.take_urgent(), next < count) << "the conductor is woken for the rest";
  }
  EXPECT_EQ(next, count);
  EXPECT_TRUE(reports.has_room());
}

// Else whoever ends enough operations while the conductor is busy would stop the lane.
TEST(EventReports, RecordsAndLinesLeaveTheRoomWithoutWhichTheLaneStandsStill) {
  EventReports reports(0);
  LaneCounters counters;
  while (counters.dropped_records.load() == 0) reports.record(well(1, false, false), counters);
  EXPECT_TRUE(reports.has_room());
  EXPECT_FALSE(reports.report_for_log(event::PeerRefused{}));
  EXPECT_TRUE(reports.has_room());
}

TEST(EventReports, WhileTheConductorIsBehindRecordsAndLinesAreLeftOut) {
  EventReports reports(0);
  LaneCounters counters;
  while (reports.has_room()) reports.report(event::GroupReady{});
  EXPECT_FALSE(reports.report_for_log(event::PeerRefused{}));
  reports.record(well(1, false, false), counters);
  EXPECT_EQ(counters.dropped_records.load(), 1u);
}

TEST(Sentence, IsCutAndStaysText) {
  const Sentence text(std::string(1000, 'x'));
  EXPECT_EQ(std::string(text.c_str()), std::string(sizeof(Sentence) - 1, 'x'));
}

}  // namespace
}  // namespace tern::daemon
