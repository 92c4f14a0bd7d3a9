#include "daemon/lane/pass_ledger.h"

#include <gtest/gtest.h>

#include <vector>

#include "group_rig.h"
#include "plan/recv.h"
#include "plan/send.h"

namespace tern::daemon::pass_ledger_test {
namespace {

using collective::Pass;

constexpr std::uint64_t kSubmittedNs = 100, kStartedNs = 300;

class PassLedgerTest : public group_test::OneNode {
 protected:
  PassLedgerTest() {
    memory.started_ns = kStartedNs;
    memory.bytes_sent = 60;
    memory.elements_sent = 80;
  }
  // Of 20 floats, from rank 0 to rank 1.
  static Pass send() {
    Pass pass;
    pass.what.sends = true;
    pass.what.kind = plan::kSend.number;
    pass.what.now_ns = kSubmittedNs;
    pass.what.envelope = {0, 1, 7, DType::f32, 20};
    return pass;
  }
  // Of what rank 1 sends to rank 0, with room for 50 floats.
  static Pass recv(std::uint32_t source) {
    Pass pass;
    pass.what.kind = plan::kRecv.number;
    pass.what.now_ns = kSubmittedNs;
    pass.what.envelope = {source, 0, 7, DType::f32, 50};
    return pass;
  }
  event::OpEnded written(const Pass& pass) {
    write_down(node.core, node.group, pass, memory);
    const auto ended = node.events<event::OpEnded>();
    EXPECT_EQ(ended.size(), 1u);
    return ended.empty() ? event::OpEnded{} : ended[0];
  }
  std::uint64_t completed() const { return node.resources.counters->ops_completed.load(); }
  std::uint64_t failed() const { return node.resources.counters->ops_failed.load(); }
  std::vector<TraceEvent> traced() const { return node.resources.trace.read(0, 10).events; }

  PassMemory memory;
};

// ---- The record

TEST_F(PassLedgerTest, ARecordSaysWhatASendWasAndHowLongItTook) {
  Pass pass = send();
  pass.eager = true;
  const event::OpEnded ended = written(pass);
  EXPECT_EQ(ended.group, &node.group);
  EXPECT_EQ(ended.code, Errc::ok);
  EXPECT_STREQ(ended.text.c_str(), "");
  EXPECT_EQ(ended.record.kind, plan::kSend.number);
  EXPECT_EQ(node.resources.kinds.succeeded(plan::kSend.number), 1u);
  EXPECT_EQ(node.resources.kinds.succeeded(plan::kRecv.number), 0u);
  EXPECT_EQ(ended.record.tensor, 0u);
  EXPECT_EQ(ended.record.sequence, 7u) << "the tag";
  EXPECT_EQ(ended.record.peer, 1u);
  EXPECT_EQ(ended.record.count, 20u);
  EXPECT_EQ(ended.record.bytes_sent, 60u);
  EXPECT_EQ(ended.record.submitted_ns, kSubmittedNs);
  EXPECT_EQ(ended.record.started_ns, kStartedNs);
  EXPECT_EQ(ended.record.ended_ns, world.clock.now_ns());
  EXPECT_EQ(ended.record.dtype, static_cast<std::uint8_t>(DType::f32));
  EXPECT_TRUE(ended.record.eager);
  EXPECT_FALSE(ended.record.tuned);
}

TEST_F(PassLedgerTest, OfARecvItSaysWhoHasSentAndHowMuchHasCome) {
  Pass pass = recv(collective::kAnySource);
  pass.offer = 3;
  pass.source = 1;
  pass.elements = 20;
  const event::OpEnded ended = written(pass);
  EXPECT_EQ(ended.record.kind, plan::kRecv.number);
  EXPECT_EQ(ended.record.peer, 1u);
  EXPECT_EQ(ended.record.count, 20u) << "and not what there was room for";
  EXPECT_EQ(ended.record.eager, 0u);
}

// `source` is not known then.
TEST_F(PassLedgerTest, OfARecvThatHasMetNobodyItSaysWhomItWasFor) {
  EXPECT_EQ(written(recv(1)).record.peer, 1u);
  const event::OpEnded ended = written(recv(collective::kAnySource));
  EXPECT_EQ(ended.record.peer, OpRecord{}.peer) << "nobody is known";
  EXPECT_EQ(ended.record.count, 0u);
}

// ---- Counters

TEST_F(PassLedgerTest, WhatWentWellIsCountedAsCompleted) {
  written(send());
  EXPECT_EQ(completed(), 1u);
  EXPECT_EQ(failed(), 0u);
}

TEST_F(PassLedgerTest, WhatHasFailedIsCountedAsThatAndSaysWhy) {
  Pass pass = send();
  pass.outcome.set({Errc::op_timeout, 1, "nobody came"});
  const event::OpEnded ended = written(pass);
  EXPECT_EQ(ended.code, Errc::op_timeout);
  EXPECT_STREQ(ended.text.c_str(), "nobody came");
  EXPECT_EQ(completed(), 0u);
  EXPECT_EQ(failed(), 1u);
}

// ---- The trace

TEST_F(PassLedgerTest, NothingIsTracedWhileTracingIsOff) {
  written(send());
  EXPECT_TRUE(traced().empty());
}

TEST_F(PassLedgerTest, ATraceHasThePassAndHowLongItWaited) {
  node.resources.trace.start();
  Pass pass = send();
  pass.outcome.set({Errc::cancelled, 0, "enough"});
  written(pass);
  const auto events = traced();
  ASSERT_EQ(events.size(), 2u);
  for (const TraceEvent& event : events) {
    EXPECT_EQ(event.group, node.core.setup().number);
    EXPECT_EQ(event.tensor, 0u);
    EXPECT_EQ(event.sequence, 7u);
    EXPECT_EQ(event.bytes_raw, 80u);
    EXPECT_EQ(event.bytes, 60u);
    EXPECT_EQ(event.node, plan::kSend.number) << "of an op: its kind";
    EXPECT_EQ(event.codec, static_cast<std::uint8_t>(Errc::cancelled)) << "of an op: its code";
    EXPECT_EQ(event.begin_ns, kSubmittedNs);
  }
  EXPECT_EQ(events[0].kind, TraceKind::op);
  EXPECT_EQ(events[0].end_ns, world.clock.now_ns());
  EXPECT_EQ(events[1].kind, TraceKind::wait);
  EXPECT_EQ(events[1].end_ns, kStartedNs);
}

TEST_F(PassLedgerTest, OneThatNeverBeganHasWaitedToItsEnd) {
  node.resources.trace.start();
  memory.started_ns = 0;
  EXPECT_EQ(written(send()).record.started_ns, 0u);
  const auto events = traced();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].kind, TraceKind::wait);
  EXPECT_EQ(events[1].end_ns, world.clock.now_ns());
}

}  // namespace
}  // namespace tern::daemon::pass_ledger_test
