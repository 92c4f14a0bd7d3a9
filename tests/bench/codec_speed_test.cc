#include "bench/codec_speed.h"

#include <gtest/gtest.h>

namespace tern::bench {
namespace {

TEST(SpeedSamples, AreSummedUpByTheirMediansWhichAreMeasuredTimes) {
  SpeedSamples samples;
  samples.pass = {3.0, 1.0, 2.0};
  samples.encode = {4.0, 9.0, 5.0, 6.0};
  samples.decode = {7.0};
  const Speed speed = samples.medians();
  EXPECT_EQ(speed.pass_seconds, 2.0);
  EXPECT_EQ(speed.encode_seconds, 5.0);
  EXPECT_EQ(speed.decode_seconds, 7.0);
  EXPECT_EQ(speed.encode_ratio(), 0.4);
}

TEST(SpeedSamples, SayWhereBlocksCannotBeAdded) {
  SpeedSamples samples;
  samples.pass = samples.encode = samples.decode = {1.0};
  EXPECT_FALSE(samples.medians().added());
  EXPECT_EQ(samples.medians().decode_add_ratio(), 0.0);
  samples.decode_add = {0.5};
  EXPECT_TRUE(samples.medians().added());
  EXPECT_EQ(samples.medians().decode_add_ratio(), 2.0);
}

TEST(SpeedMeter, TakesATimeForEachPassOfAStep) {
  StreamOptions options;
  options.recipe = *codec::parse_recipe("ef(3lc:s=1)");
  options.elements = 4096;
  options.chunk_elements = 1024;
  CodecStream stream(options);
  SpeedMeter meter(options.elements);
  const std::vector<float> values(options.elements, 1.0f);
  SpeedSamples samples;
  for (int step = 0; step < 3; ++step) {
    meter.once(stream, {std::as_bytes(std::span(values)), values}, values, samples);
  }
  EXPECT_EQ(samples.pass.size(), 3u);
  EXPECT_EQ(samples.encode.size(), 3u);
  EXPECT_EQ(samples.decode.size(), 3u);
  EXPECT_EQ(samples.decode_add.size(), 3u);
}

}  // namespace
}  // namespace tern::bench
