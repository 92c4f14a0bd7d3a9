// TransportConformance without links: connections and the acceptor.

#include "tests/net/transport_conformance.h"
#include "wire/crc32c.h"

namespace tern::net {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

std::vector<std::byte> sealed(wire::FrameHeader header, std::span<const std::byte> payload) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = wire::crc32c(payload);
  wire::seal_frame_header(header);
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof header);
  return bytes;
}

TEST_P(TransportConformance, FramesArriveInOrderBothWays) {
  connect_raw();
  std::vector<std::vector<std::byte>> frames;
  constexpr std::uint64_t kFrames = 300;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    frames.push_back(sealed(block_header(i), pattern(i * i % 5000, i)));
  }
  for (const auto& frame : frames) {
    // Cut in two at any place: head and body are one frame.
    const std::size_t split = frame.size() / 3;
    raw_a->send({std::span(frame).first(split), std::span(frame).subspan(split)});
    raw_b->send({frame, {}});
  }
  ASSERT_TRUE(until([&] {
    return raw_sink_a.payloads.size() == kFrames && raw_sink_b.payloads.size() == kFrames;
  }));
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    EXPECT_EQ(raw_sink_a.headers[i].tensor, i);
    EXPECT_EQ(raw_sink_b.headers[i].tensor, i);
    EXPECT_EQ(raw_sink_b.payloads[i], pattern(i * i % 5000, i));
  }
  EXPECT_TRUE(raw_sink_a.all_valid && raw_sink_b.all_valid);
  // What has arrived there may be seen to have left here a moment later.
  EXPECT_TRUE(until([&] { return raw_a->queued_bytes() == 0; }));
  EXPECT_GT(raw_a->received_bytes(), kFrames * wire::kFrameHeaderBytes);
}

TEST_P(TransportConformance, WhatIsFlushedArrivesOnce) {
  connect_raw();
  const auto small = sealed(block_header(1), pattern(100, 1));
  const auto large = sealed(block_header(2), pattern(50'000, 2));
  for (std::size_t round = 1; round <= 20; ++round) {
    raw_a->send({small, {}});
    if (round % 2 == 0) raw_a->send({large, {}});
    transport_a->flush();
    transport_a->flush();
  }
  ASSERT_TRUE(
      until([&] { return raw_sink_b.payloads.size() == 30 && raw_a->queued_bytes() == 0; }));
  EXPECT_TRUE(raw_sink_b.all_valid);
  EXPECT_EQ(raw_sink_b.payloads.back(), pattern(50'000, 2));
  run_for(100'000'000);
  EXPECT_EQ(raw_sink_b.payloads.size(), 30u);
}

TEST_P(TransportConformance, SendsFromHostMemoryThatItRemembersAndForgets) {
  connect_raw();
  const auto frame = sealed(block_header(1), pattern(50'000, 1));
  const Memory memory{frame, MemoryKind::host};
  for (std::size_t round = 1; round <= 2; ++round) {
    const Status remembered = transport_a->remember_memory(memory);
    ASSERT_TRUE(remembered) << remembered.error().text;
    raw_a->send({std::span(frame).first(wire::kFrameHeaderBytes),
                 std::span(frame).subspan(wire::kFrameHeaderBytes)});
    ASSERT_TRUE(
        until([&] { return raw_sink_b.payloads.size() == round && raw_a->queued_bytes() == 0; }));
    EXPECT_EQ(raw_sink_b.payloads.back(), pattern(50'000, 1));
    transport_a->forget_memory(memory);
  }
  EXPECT_TRUE(raw_sink_b.all_valid);
}

TEST_P(TransportConformance, RefusesDeviceMemoryWithASentence) {
  const auto bytes = pattern(5000, 1);
  const Memory memory{bytes, MemoryKind::device};
  const Status remembered = transport_a->remember_memory(memory);
  ASSERT_FALSE(remembered);
  EXPECT_EQ(remembered.error().code, Errc::unsupported);
  for (const char* part : {"device memory", "stage it through host memory", "transport "}) {
    EXPECT_NE(remembered.error().text.find(part), std::string::npos) << remembered.error().text;
  }
  // It is not remembered, so that there is nothing to forget; the transport goes on.
  transport_a->forget_memory(memory);
  connect_raw();
  const auto frame = sealed(block_header(1), pattern(100, 1));
  raw_a->send({frame, {}});
  EXPECT_TRUE(until([&] { return raw_sink_b.payloads.size() == 1; }));
}

TEST_P(TransportConformance, NobodyListeningIsUnreachable) {
  acceptor.reset();
  raw_a = transport_a->connect(target, raw_sink_a);
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  EXPECT_EQ(raw_sink_a.closed_reason, Errc::unreachable) << raw_sink_a.closed_text;
  EXPECT_EQ(raw_sink_a.opened, 0);
}

TEST_P(TransportConformance, WhatWasSentBeforeClosingStillArrives) {
  connect_raw();
  const auto frame = sealed(block_header(1), pattern(100, 1));
  raw_b->send({frame, {}});
  raw_b.reset();
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  EXPECT_EQ(raw_sink_a.closed_reason, Errc::io_error);
  ASSERT_EQ(raw_sink_a.payloads.size(), 1u);
  EXPECT_TRUE(raw_sink_a.all_valid);
}

TEST_P(TransportConformance, AfterClosingNothingIsHeard) {
  connect_raw();
  raw_b.reset();
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  const auto frame = sealed(block_header(1), pattern(100, 1));
  raw_a->send({frame, {}});
  run_for(100'000'000);
  EXPECT_EQ(raw_sink_a.closed, 1);
}

TEST_P(TransportConformance, AConnectionMayBeDestroyedInItsCallbacks) {
  const auto frame = sealed(block_header(1), pattern(100, 1));
  connect_raw();
  raw_sink_b.also_on_header = [&] { raw_b.reset(); };
  raw_a->send({frame, {}});
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  EXPECT_TRUE(raw_sink_b.payloads.empty());
  raw_sink_b = {};
  raw_sink_a = {};
  connect_raw();
  raw_sink_b.also_on_frame = [&] { raw_b.reset(); };
  raw_a->send({frame, {}});
  raw_a->send({frame, {}});
  raw_sink_a.also_on_closed = [&] { raw_a.reset(); };
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  EXPECT_EQ(raw_sink_b.payloads.size(), 1u);
  EXPECT_EQ(raw_sink_b.closed, 0);
}

TEST_P(TransportConformance, ABadHeaderClosesTheConnection) {
  const auto good = sealed(block_header(1), pattern(100, 1));
  auto bad = good;
  bad[40] ^= std::byte{1};
  connect_raw();
  raw_a->send({good, {}});
  raw_a->send({bad, {}});
  raw_a->send({good, {}});
  ASSERT_TRUE(until([&] { return raw_sink_b.closed == 1; }));
  EXPECT_EQ(raw_sink_b.closed_reason, Errc::corrupt_data);
  EXPECT_EQ(raw_sink_b.payloads.size(), 1u);
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
}

TEST_P(TransportConformance, ARefusedHeaderClosesTheConnection) {
  connect_raw();
  raw_sink_b.accept = false;
  const auto frame = sealed(block_header(1), pattern(100, 1));
  raw_a->send({frame, {}});
  ASSERT_TRUE(until([&] { return raw_sink_b.closed == 1; }));
  EXPECT_EQ(raw_sink_b.closed_reason, Errc::corrupt_data);
  EXPECT_TRUE(raw_sink_b.payloads.empty());
}

TEST_P(TransportConformance, ABadPayloadIsReportedAndTheConnectionGoesOn) {
  connect_raw();
  const auto good = sealed(block_header(1), pattern(60'000, 1));
  auto bad = good;
  bad[50'000] ^= std::byte{1};
  raw_a->send({bad, {}});
  ASSERT_TRUE(until([&] { return raw_sink_b.payloads.size() == 1; }));
  EXPECT_FALSE(raw_sink_b.all_valid);
  raw_sink_b.all_valid = true;
  raw_a->send({good, {}});
  ASSERT_TRUE(until([&] { return raw_sink_b.payloads.size() == 2; }));
  EXPECT_TRUE(raw_sink_b.all_valid);
}

TEST_P(TransportConformance, AFrameCutInItsMiddleDoesNotComplete) {
  connect_raw();
  const auto frame = sealed(block_header(1), pattern(50'000, 1));
  raw_a->send({std::span(frame).first(30'000), {}});
  ASSERT_TRUE(until([&] { return raw_sink_b.headers.size() == 1; }));
  raw_a.reset();
  ASSERT_TRUE(until([&] { return raw_sink_b.closed == 1; }));
  EXPECT_TRUE(raw_sink_b.payloads.empty());
}

TEST_P(TransportConformance, GarbageIsRefused) {
  const auto garbage = pattern(200, 1);
  expect_refused_first_bytes(garbage, Errc::protocol_error);
}

TEST_P(TransportConformance, AHelloOfAnotherVersionIsRefusedWithText) {
  const auto hello = hello_frame([](wire::HelloBody& body) {
    body.version_min = wire::kWireProtocol + 1;
    body.version_max = wire::kWireProtocol + 2;
  });
  expect_refused_first_bytes(std::as_bytes(std::span(&hello, 1)), Errc::version_mismatch);
  ASSERT_EQ(raw_sink_a.headers.size(), 1u);
  EXPECT_EQ(raw_sink_a.headers[0].kind, static_cast<std::uint8_t>(wire::FrameKind::refuse));
  wire::RefuseBody body;
  ASSERT_EQ(raw_sink_a.payload.size(), sizeof body);
  std::memcpy(&body, raw_sink_a.payload.data(), sizeof body);
  EXPECT_EQ(body.code, static_cast<std::int32_t>(Errc::version_mismatch));
  EXPECT_NE(std::string(body.text).find("version"), std::string::npos);
}

TEST_P(TransportConformance, AHelloWithAReservedFieldSetIsRefused) {
  const auto hello = hello_frame([](wire::HelloBody& body) { body.reserved = 1; });
  expect_refused_first_bytes(std::as_bytes(std::span(&hello, 1)), Errc::protocol_error);
}

TEST_P(TransportConformance, AnotherFrameThanHelloIsRefused) {
  const auto frame = sealed(block_header(1), pattern(10, 1));
  expect_refused_first_bytes(frame, Errc::protocol_error);
}

TEST_P(TransportConformance, AHelloThatNeverCompletesRunsIntoTheDeadline) {
  const wire::HelloFrame hello = hello_frame();
  raw_a = transport_a->connect(target, raw_sink_a);
  ASSERT_TRUE(until([&] { return raw_sink_a.opened == 1; }));
  raw_a->send({std::as_bytes(std::span(&hello, 1)).first(50), {}});
  run_for(acceptor_settings.hello_timeout_ns - 500'000'000);
  EXPECT_TRUE(accepted.refused.empty());
  ASSERT_TRUE(until([&] {
    clock.advance_ns(1'000'000);
    return accepted.refused.size() == 1;
  }));
  EXPECT_EQ(accepted.refused[0].first, Errc::timeout);
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
}

TEST_P(TransportConformance, TooManyUnfinishedConnectionsCostTheOldest) {
  std::vector<std::unique_ptr<Connection>> idle;
  for (std::uint32_t i = 0; i < acceptor_settings.max_unfinished; ++i) {
    idle.push_back(transport_a->connect(target, raw_sink_a));
    ASSERT_TRUE(until([&] { return raw_sink_a.opened == static_cast<int>(i) + 1; }));
  }
  RawSink sink;
  idle.push_back(transport_a->connect(target, sink));
  ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  ASSERT_EQ(accepted.refused.size(), 1u);
  EXPECT_EQ(accepted.refused[0].first, Errc::quota_exceeded);
  EXPECT_EQ(sink.closed, 0);
}

}  // namespace tern::net
