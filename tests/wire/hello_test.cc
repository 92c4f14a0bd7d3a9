#include "wire/hello.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

namespace tern::wire {
namespace hello_test {

HelloBody sample() {
  HelloBody body;
  body.lane = 1;
  body.node = {1, 2};
  body.session = 3;
  return body;
}

HelloError error_of(const HelloFrame& frame) {
  return parse_hello(frame.header, std::as_bytes(std::span(&frame.body, 1))).error;
}

HelloError error_with(const std::function<void(HelloBody&)>& change) {
  HelloBody body = sample();
  change(body);
  return error_of(make_hello(FrameKind::hello, body));
}

TEST(Hello, AGoodOneIsReadBack) {
  for (const auto kind : {FrameKind::hello, FrameKind::hello_reply}) {
    const HelloFrame frame = make_hello(kind, sample());
    EXPECT_EQ(parse_frame_header(std::as_bytes(std::span(&frame, 1))).error, ParseError::none);
    const ParsedHello parsed = parse_hello(frame.header, std::as_bytes(std::span(&frame.body, 1)));
    EXPECT_EQ(parsed.error, HelloError::none);
    EXPECT_EQ(parsed.version, kWireProtocol);
    EXPECT_EQ(std::memcmp(&parsed.body, &frame.body, sizeof frame.body), 0);
  }
}

TEST(Hello, TheVersionIsTheHighestCommonOne) {
  EXPECT_EQ(error_with([](HelloBody& b) { b.version_max = 9; }), HelloError::none);
  EXPECT_EQ(error_with([](HelloBody& b) { b.version_min = kWireProtocol + 1, b.version_max = 9; }),
            HelloError::no_common_version);
  EXPECT_EQ(error_with([](HelloBody& b) { b.version_min = 2, b.version_max = 1; }),
            HelloError::bad_value);
  EXPECT_EQ(error_with([](HelloBody& b) { b.version_min = 0; }), HelloError::bad_value);
  EXPECT_EQ(hello_error_code(HelloError::no_common_version), Errc::version_mismatch);
}

TEST(Hello, RefusesReservedAndSenselessValues) {
  EXPECT_EQ(error_with([](HelloBody& b) { b.reserved = 1; }), HelloError::reserved_not_zero);
  EXPECT_EQ(error_with([](HelloBody& b) { b.node = {}; }), HelloError::bad_value);
  EXPECT_EQ(error_with([](HelloBody& b) { b.session = 0; }), HelloError::bad_value);
  EXPECT_EQ(error_with([](HelloBody& b) { b.next_receive = 0; }), HelloError::bad_value);
  EXPECT_EQ(error_with([](HelloBody& b) { b.resume = 2; }), HelloError::bad_value);
}

TEST(Hello, UnknownFeaturesAreNoError) {
  EXPECT_EQ(error_with([](HelloBody& b) { b.features = ~std::uint64_t{0}; }), HelloError::none);
}

TEST(Hello, RefusesOtherKindsSizesAndCrcs) {
  HelloFrame frame = make_hello(FrameKind::hello, sample());
  frame.header.kind = static_cast<std::uint8_t>(FrameKind::ack);
  EXPECT_EQ(error_of(frame), HelloError::wrong_kind);
  frame = make_hello(FrameKind::hello, sample());
  ++frame.header.payload_bytes;
  EXPECT_EQ(error_of(frame), HelloError::wrong_size);
  frame = make_hello(FrameKind::hello, sample());
  EXPECT_EQ(parse_hello(frame.header, {}).error, HelloError::wrong_size);
  ++frame.body.session;
  EXPECT_EQ(error_of(frame), HelloError::bad_payload_crc);
}

TEST(Hello, ARefusalCarriesItsReasonAndCutsLongText) {
  const std::string longest(300, 'x');
  const RefuseFrame frame = make_refuse(Errc::peer_lost, longest.c_str());
  EXPECT_EQ(parse_frame_header(std::as_bytes(std::span(&frame, 1))).error, ParseError::none);
  EXPECT_EQ(frame.body.code, static_cast<std::int32_t>(Errc::peer_lost));
  EXPECT_EQ(std::string(frame.body.text), longest.substr(0, 247));
}

}  // namespace hello_test
}  // namespace tern::wire
