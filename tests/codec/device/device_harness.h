#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "codec/device/chunk.h"
#include "tests/codec/codec_harness.h"
#include "tests/codec/device/target.h"

namespace tern::codec::device {

using emulation::Schedule;

// One of each order; one of them under a sanitizer, and where a GPU has orders of its own.
inline std::vector<Schedule> schedules(std::uint64_t seed) {
  using Order = Schedule::Order;
  std::vector<Schedule> all = {{Order::uniform, seed},
                               {Order::warp_priority, seed},
                               {Order::starved_warp, seed},
                               {Order::reversed, seed}};
  if (tests::abridged() || target().schedules_itself()) return {all[seed % all.size()]};
  return all;
}

// All of them; under a sanitizer every third, and the last.
inline std::vector<std::size_t> some_of(const std::vector<std::size_t>& all) {
  if (!tests::abridged()) return all;
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  if (some.back() != all.back()) some.push_back(all.back());
  return some;
}

// A different one for each number, so that a list of cases goes through all of them.
inline LaunchOptions options_of(std::uint64_t number) {
  LaunchOptions options;
  options.schedule = {static_cast<Schedule::Order>(number % 4), number};
  return options;
}

using EncodeLaunch = std::function<LaunchReport(const Array<EncodeChunk>&, const LaunchOptions&)>;

// A launch of the kernel with its stage.
template <typename Stage>
EncodeLaunch launch_of(const StagedKernel<Stage, EncodeChunk>& kernel, const Stage& stage) {
  return [kernel, stage](const Array<EncodeChunk>& chunks, const LaunchOptions& options) {
    return kernel.launch(stage, chunks, options);
  };
}

// One chunk as the kernel sees it, and what became of it.
struct DeviceEncoded {
  EncodedBlock block;
  std::vector<float> residual;
  LaunchReport report;
};

inline DeviceEncoded encode_on_device(const EncodeLaunch& launch, const EncodeRequest& request,
                                      std::size_t bound, const LaunchOptions& options) {
  const std::size_t count = request.input.size();
  const Array<float> input(request.input);
  const Array<float> residual(std::span<const float>(request.state, request.state ? count : 0));
  const Array<std::byte> out(wire::kBlockHeaderBytes + bound);
  const Array<EncodeOutcome> outcome(1);
  EncodeChunk chunk{};
  chunk.input = input.data();
  chunk.residual = request.state != nullptr ? residual.data() : nullptr;
  chunk.block = out.data();
  chunk.outcome = outcome.data();
  chunk.stream_step = request.stream_step;
  chunk.elements = static_cast<std::uint32_t>(count);
  chunk.state_scale = request.state_scale;
  chunk.fixed_scale_max = request.fixed_scale_max;
  chunk.delivered = request.delivered;
  const Array<EncodeChunk> chunks(std::span<const EncodeChunk>(&chunk, 1));
  DeviceEncoded made;
  made.report = launch(chunks, options);
  made.residual = residual.values();
  if (!made.report.finding.empty()) return made;
  const EncodeOutcome said = outcome.values()[0];
  made.block.result = {said.payload_bytes, said.nonfinite != 0, said.input_energy,
                       said.residual_energy};
  const std::vector<std::byte> block = out.values();
  std::memcpy(&made.block.header, block.data(), sizeof(made.block.header));
  const std::byte* const payload = block.data() + wire::kBlockHeaderBytes;
  made.block.payload.assign(payload, payload + std::min<std::size_t>(said.payload_bytes, bound));
  return made;
}

// Asks for the same bytes, residuals and energies as the processor's codec makes of the request.
inline LaunchReport expect_same(const Recipe& recipe, const EncodeLaunch& launch,
                                EncodeRequest request, const LaunchOptions& options) {
  std::vector<float> residual;
  if (request.state != nullptr)
    residual.assign(request.state, request.state + request.input.size());
  std::vector<float> expected_residual = residual;
  request.state = expected_residual.empty() ? nullptr : expected_residual.data();
  EncodedBlock expected;
  const std::size_t bound = encode_bound(recipe, request.input.size());
  expected.payload.resize(bound);
  expected.result = encode(recipe, request, {expected.payload, expected.header}, workspace());
  expected.payload.resize(expected.result.payload_bytes);
  request.state = residual.empty() ? nullptr : residual.data();
  const DeviceEncoded made = encode_on_device(launch, request, bound, options);
  EXPECT_EQ(made.report.finding, "");
  EXPECT_EQ(made.block.result.nonfinite, expected.result.nonfinite);
  EXPECT_EQ(made.block.header, expected.header);
  EXPECT_EQ(made.block.payload, expected.payload);
  EXPECT_EQ(bits_of(made.residual), bits_of(expected_residual));
  EXPECT_EQ(made.block.result.input_energy, expected.result.input_energy);
  EXPECT_EQ(made.block.result.residual_energy, expected.result.residual_energy);
  return made.report;
}

inline std::string schedule_text(const LaunchOptions& options) {
  return "order " + std::to_string(static_cast<int>(options.schedule.order)) + ", seed " +
         std::to_string(options.schedule.seed);
}

}  // namespace tern::codec::device
