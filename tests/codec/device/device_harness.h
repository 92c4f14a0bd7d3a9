#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "codec/device/chunk.h"
#include "codec/device/emulation/launch.h"
#include "codec/device/emulation/memory.h"
#include "tests/codec/codec_harness.h"

namespace tern::codec::device {

using emulation::Buffer;
using emulation::LaunchOptions;
using emulation::LaunchReport;
using emulation::Schedule;

inline constexpr std::uint32_t kThreads = 512;

inline std::vector<Schedule> schedules(std::uint64_t seed) {
  using Order = Schedule::Order;
  return {{Order::uniform, seed},
          {Order::warp_priority, seed},
          {Order::starved_warp, seed},
          {Order::reversed, seed}};
}

// A different one for each number, so that a list of cases goes through all of them.
inline LaunchOptions options_of(std::uint64_t number) {
  LaunchOptions options;
  options.schedule = schedules(number)[number % 4];
  return options;
}

using EncodeKernel = std::function<void(const EncodeChunk*)>;

// One chunk as the kernel sees it, and what became of it.
struct DeviceEncoded {
  EncodedBlock block;
  std::vector<float> residual;
  LaunchReport report;
};

inline DeviceEncoded encode_on_device(const EncodeKernel& kernel, const EncodeRequest& request,
                                      std::size_t bound, const LaunchOptions& options) {
  const std::size_t count = request.input.size();
  Buffer<float> input(request.input);
  Buffer<float> residual(std::span<const float>(request.state, request.state ? count : 0));
  Buffer<std::byte> out(wire::kBlockHeaderBytes + bound);
  Buffer<EncodeOutcome> outcome(1);
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
  Buffer<EncodeChunk> chunks(std::span<const EncodeChunk>(&chunk, 1));
  DeviceEncoded made;
  made.report = emulation::launch({1, kThreads}, options, [&] { kernel(chunks.data()); });
  made.residual = residual.values();
  if (!made.report.finding.empty()) return made;
  const EncodeOutcome& said = outcome.data()[0];
  made.block.result = {said.payload_bytes, said.nonfinite != 0, said.input_energy,
                       said.residual_energy};
  std::memcpy(&made.block.header, out.data(), sizeof(made.block.header));
  const std::byte* const payload = out.data() + wire::kBlockHeaderBytes;
  made.block.payload.assign(payload, payload + std::min<std::size_t>(said.payload_bytes, bound));
  return made;
}

// Asks for the same bytes, residuals and energies as the processor's codec makes of the request.
inline LaunchReport expect_same(const Recipe& recipe, const EncodeKernel& kernel,
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
  const DeviceEncoded made = encode_on_device(kernel, request, bound, options);
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
