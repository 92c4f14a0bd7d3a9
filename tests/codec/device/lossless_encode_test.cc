#include "codec/device/lossless_encode.cuh"

#include "base/half.h"
#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace lossless_encode_test {

struct Encoded {
  wire::BlockHeader header;
  std::vector<std::byte> payload;
  LaunchReport report;
};

Encoded on_device(std::span<const std::uint16_t> values, DType dtype,
                  const LaunchOptions& options) {
  const Array<std::uint16_t> input(values);
  const Array<std::byte> out(wire::kBlockHeaderBytes + 2 * values.size());
  const Array<std::uint32_t> bytes(1);
  LosslessChunk chunk{};
  chunk.input = input.data();
  chunk.block = out.data();
  chunk.payload_bytes = bytes.data();
  chunk.stream_step = 42;
  chunk.elements = static_cast<std::uint32_t>(values.size());
  chunk.dtype = dtype;
  const Array<LosslessChunk> chunks(std::span<const LosslessChunk>(&chunk, 1));
  Encoded made;
  made.report = launch_lossless_encode(chunks, options);
  if (!made.report.finding.empty()) return made;
  const std::vector<std::byte> block = out.values();
  std::memcpy(&made.header, block.data(), sizeof(made.header));
  const std::byte* const payload = block.data() + wire::kBlockHeaderBytes;
  made.payload.assign(payload, payload + bytes.values()[0]);
  return made;
}

LaunchReport expect_same(std::span<const std::uint16_t> values, DType dtype,
                         const LaunchOptions& options) {
  const Recipe recipe = recipe_of("none(lossless)");
  LosslessRequest request;
  request.dtype = dtype;
  request.input = std::as_bytes(values);
  request.stream_step = 42;
  Encoded expected;
  expected.payload.resize(2 * values.size());
  const std::uint32_t bytes =
      encode_lossless(recipe, request, {expected.payload, expected.header}, workspace());
  expected.payload.resize(bytes);
  const Encoded made = on_device(values, dtype, options);
  EXPECT_EQ(made.report.finding, "");
  EXPECT_EQ(made.header, expected.header);
  EXPECT_EQ(made.payload, expected.payload);
  return made.report;
}

std::vector<std::uint16_t> halves(std::size_t count, DType dtype, float sigma = 1.0f) {
  std::vector<std::uint16_t> values;
  for (const float value : gaussian(count, count, sigma)) {
    values.push_back(dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value));
  }
  return values;
}

TEST(LosslessEncode, TheBytesOfTheProcessorAtEveryLength) {
  std::uint64_t number = 0;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::size_t count :
         some_of({0,  1,   2,   3,    4,    7,    8,    9,    31,    63,   64,
                  65, 100, 511, 1000, 1001, 1002, 1003, 8192, 16385, 40001})) {
      const LaunchOptions options = options_of(++number);
      SCOPED_TRACE(std::to_string(count) + " elements, " + schedule_text(options));
      expect_same(halves(count, dtype), dtype, options);
    }
  }
}

TEST(LosslessEncode, TheSameBytesOnEverySchedule) {
  const auto values = halves(5003, DType::bf16);
  for (const Schedule& schedule : schedules(4)) {
    LaunchOptions options;
    options.schedule = schedule;
    SCOPED_TRACE(schedule_text(options));
    expect_same(values, DType::bf16, options);
  }
}

// One symbol, two, all equally often, and counts that double, whose best codes are too long.
TEST(LosslessEncode, HistogramsOfEveryKind) {
  std::vector<std::uint16_t> values(6000, f32_to_bf16(1.0f));
  expect_same(values, DType::bf16, options_of(1));
  values[5999] = f32_to_bf16(-3.0f);
  expect_same(values, DType::bf16, options_of(2));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 11);
  expect_same(values, DType::bf16, options_of(3));
  std::size_t at = 0;
  for (unsigned symbol = 0; symbol < 16; ++symbol) {
    for (std::size_t i = 0; i < (std::size_t{1} << symbol) && at < values.size(); ++i) {
      values[at++] = static_cast<std::uint16_t>(symbol << 7);
    }
  }
  expect_same(values, DType::bf16, options_of(4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint16_t>((i % 200) << 7 | (i % 2) << 15);
  }
  expect_same(values, DType::bf16, options_of(5));
}

TEST(LosslessEncode, SpecialValues) {
  std::vector<std::uint16_t> values = halves(3000, DType::bf16);
  const std::uint16_t special[] = {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x0001, 0x8001, 0x0000, 0x8000};
  for (std::size_t i = 0; i < values.size(); i += 7) values[i] = special[i % 8];
  expect_same(values, DType::bf16, options_of(1));
}

TEST(LosslessEncode, MovesTheBytesOfTheDesign) {
  constexpr std::size_t kCount = 65536;  // a chunk of 128 KiB
  LaunchOptions options = options_of(1);
  options.meter_traffic = true;
  const LaunchReport report = expect_same(halves(kCount, DType::bf16), DType::bf16, options);
  const double each =
      static_cast<double>(report.traffic.global_bytes()) / static_cast<double>(kCount);
  std::printf("[ counted  ] %.3f bytes an element, %.3f passes a shared access, %zu shared bytes\n",
              each, report.traffic.passes_per_access(), report.shared_bytes);
  EXPECT_NEAR(each, 3.3, 0.05 * 3.3);
  EXPECT_LE(report.shared_bytes, 163u * 1024u);
}

TEST(LosslessEncode, EveryRemovedBarrierIsFound) {
  // So many that a sample is counted, which misses a symbol.
  auto values = halves(40000, DType::bf16);
  values[64 + 5] = f32_to_bf16(0x1p100f);
  const LaunchReport whole = expect_same(values, DType::bf16, options_of(1));
  ASSERT_GE(whole.barriers.size(), 6u);
  for (const emulation::Site& site : whole.barriers) {
    for (const Schedule& schedule : schedules(7)) {
      LaunchOptions options;
      options.schedule = schedule;
      options.without_barrier = site;
      EXPECT_NE(on_device(values, DType::bf16, options).report.finding, "")
          << site.file << ':' << site.line << ' ' << schedule_text(options);
    }
  }
}

}  // namespace lossless_encode_test
}  // namespace tern::codec::device
