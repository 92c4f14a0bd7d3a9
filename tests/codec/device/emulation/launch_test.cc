#include "codec/device/emulation/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "codec/device/block_scan.h"
#include "codec/device/emulation/memory.h"
#include "codec/device/simt.h"

namespace tern::codec::device::emulation {
namespace launch_test {

using testing::HasSubstr;
using Order = Schedule::Order;

constexpr Order kOrders[] = {Order::uniform, Order::warp_priority, Order::starved_warp,
                             Order::reversed};

LaunchOptions with(Order order, std::uint64_t seed = 1) {
  LaunchOptions options;
  options.schedule = {order, seed};
  return options;
}

TEST(Launch, EveryThreadOfEveryBlockRunsOnce) {
  for (const Order order : kOrders) {
    Buffer<std::uint32_t> out(std::size_t{3} * 64);
    const auto report = launch({3, 64}, with(order), [&] {
      simt::Global<std::uint32_t>(out.data())
          .store(simt::block() * simt::threads() + simt::thread(), simt::thread());
    });
    EXPECT_EQ(report.finding, "");
    for (std::uint32_t i = 0; i < out.size(); ++i) EXPECT_EQ(out.data()[i], i % 64);
  }
}

TEST(Launch, ExchangesGiveWhatTheyPromise) {
  for (const Order order : kOrders) {
    unsigned right = 0;
    const auto report = launch({1, 64}, with(order), [&] {
      const unsigned lane = simt::lane();
      const unsigned mask = lane < 16 ? 0xffffu : 0xffff0000u;
      right += simt::ballot(lane % 2 == 1) == 0xaaaaaaaau ? 1 : 0;
      right += simt::shuffle(lane + 7, 3) == 10 ? 1 : 0;
      right += simt::shuffle_up(lane, 4) == (lane < 4 ? lane : lane - 4) ? 1 : 0;
      right += simt::largest_of(mask, lane) == (lane < 16 ? 15u : 31u) ? 1 : 0;
    });
    EXPECT_EQ(report.finding, "");
    EXPECT_EQ(right, 4u * 64u);
  }
}

TEST(Launch, ScansOverABlock) {
  for (const Order order : kOrders) {
    Buffer<std::uint32_t> out(256);
    const auto report = launch({1, 128}, with(order), [&] {
      simt::Arena arena;
      const auto totals = arena.take<std::uint32_t>(simt::warps());
      const Scanned sum = block_scan<Sum>(simt::thread(), totals);
      const Scanned most = block_scan<Largest>(simt::thread() ^ 5u, totals);
      const simt::Global<std::uint32_t> to(out.data());
      to.store(simt::thread(), sum.before);
      to.store(128 + simt::thread(), most.before);
    });
    EXPECT_EQ(report.finding, "");
    std::uint32_t sum = 0;
    std::uint32_t most = 0;
    for (std::uint32_t i = 0; i < 128; ++i) {
      EXPECT_EQ(out.data()[i], sum);
      EXPECT_EQ(out.data()[128 + i], most);
      sum += i;
      most = std::max(most, i ^ 5u);
    }
  }
}

// Each thread writes its own number and reads its neighbour's.
void rotate(bool with_barrier) {
  simt::Arena arena;
  const auto array = arena.take<std::uint32_t>(simt::threads());
  array.store(simt::thread(), simt::thread());
  if (with_barrier) simt::barrier();
  array.load((simt::thread() + 1) % simt::threads());
}

TEST(Launch, ARaceIsFoundOnAnySchedule) {
  for (const Order order : kOrders) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(launch({1, 64}, with(order, seed), [] { rotate(true); }).finding, "");
      // Whichever comes first: a race, or a read of what nobody has written so far.
      EXPECT_NE(launch({1, 64}, with(order, seed), [] { rotate(false); }).finding, "");
    }
  }
}

TEST(Launch, AWriteAfterAReadIsARace) {
  for (const Order order : kOrders) {
    const auto report = launch({1, 96}, with(order), [] {
      simt::Arena arena;
      const auto array = arena.take<float>(1);
      if (simt::thread() == 0) array.store(0, 1.0f);
      simt::barrier();
      array.load(0);
      if (simt::thread() == 70) array.store(0, 2.0f);
    });
    EXPECT_THAT(report.finding, HasSubstr("race"));
  }
}

TEST(Launch, AWarpBarrierOrdersOneWarpAlone) {
  const auto exchange = [](unsigned distance, bool with_barrier) {
    simt::Arena arena;
    const auto array = arena.take<unsigned>(simt::threads());
    array.store(simt::thread(), 1);
    if (with_barrier) simt::warp_barrier();
    array.load((simt::thread() + distance) % simt::threads());
  };
  // Within a warp: 32 threads are one.
  EXPECT_EQ(launch({1, 32}, with(Order::uniform), [&] { exchange(1, true); }).finding, "");
  EXPECT_NE(launch({1, 32}, with(Order::uniform), [&] { exchange(1, false); }).finding, "");
  EXPECT_NE(launch({1, 64}, with(Order::uniform), [&] { exchange(32, true); }).finding, "");
}

TEST(Launch, NothingOrdersTwoBlocks) {
  Buffer<unsigned> shared_word(1);
  const auto report = launch({2, 32}, with(Order::uniform), [&] {
    if (simt::thread() == 0) simt::Global<unsigned>(shared_word.data()).store(0, simt::block());
  });
  EXPECT_THAT(report.finding, HasSubstr("race"));
  // Two launches are ordered.
  for (int i = 0; i < 2; ++i) {
    const auto alone = launch({1, 32}, with(Order::uniform), [&] {
      if (simt::thread() == 0) simt::Global<unsigned>(shared_word.data()).store(0, 1);
    });
    EXPECT_EQ(alone.finding, "");
  }
}

TEST(Launch, AtomicsDoNotRace) {
  Buffer<unsigned> out(1);
  const auto report = launch({1, 128}, with(Order::uniform), [&] {
    simt::Arena arena;
    const auto count = arena.take<unsigned>(1);
    if (simt::thread() == 0) count.store(0, 0);
    simt::barrier();
    count.add(0, 2);
    simt::barrier();
    if (simt::thread() == 5) simt::Global<unsigned>(out.data()).store(0, count.load(0));
  });
  EXPECT_EQ(report.finding, "");
  EXPECT_EQ(*out.data(), 256u);
}

TEST(Launch, ABarrierThatSomeMissIsFound) {
  const auto some = launch({1, 64}, with(Order::uniform), [] {
    if (simt::thread() != 3) simt::barrier();
  });
  EXPECT_THAT(some.finding, HasSubstr("waits for threads that do not come"));
  const auto two = launch({1, 64}, with(Order::uniform), [] {
    // NOLINTNEXTLINE(bugprone-branch-clone): barriers at two places of the source are two
    if (simt::thread() < 32) {
      simt::barrier();
    } else {
      simt::barrier();
    }
  });
  EXPECT_THAT(two.finding, HasSubstr("different barriers"));
}

TEST(Launch, BoundsAndUnwrittenMemoryAreFound) {
  Buffer<float> array(8);
  const auto beyond = launch({1, 32}, with(Order::uniform), [&] {
    simt::Global<float>(array.data()).store(simt::thread(), 1.0f);
  });
  EXPECT_THAT(beyond.finding, HasSubstr("out of bounds"));
  Buffer<float> fresh(32);
  const auto unwritten = launch({1, 32}, with(Order::uniform),
                                [&] { simt::Global<float>(fresh.data()).load(simt::thread()); });
  EXPECT_THAT(unwritten.finding, HasSubstr("nobody wrote"));
  const auto shared = launch({1, 32}, with(Order::uniform), [] {
    simt::Arena arena;
    arena.take<float>(31).store(simt::thread(), 1.0f);
  });
  EXPECT_THAT(shared.finding, HasSubstr("out of bounds"));
}

TEST(Launch, ASeedReplays) {
  const auto order_of = [](std::uint64_t seed) {
    std::vector<unsigned> order;
    launch({1, 64}, with(Order::uniform, seed), [&] {
      simt::barrier();
      order.push_back(simt::thread());
    });
    return order;
  };
  EXPECT_EQ(order_of(3), order_of(3));
  EXPECT_NE(order_of(3), order_of(4));
}

Traffic metered(const std::function<void()>& kernel) {
  LaunchOptions options = with(Order::uniform);
  options.meter_traffic = true;
  const LaunchReport report = launch({1, 32}, options, kernel);
  EXPECT_EQ(report.finding, "");
  return report.traffic;
}

TEST(Launch, CountsSectors) {
  const std::vector<float> values(std::size_t{32} * 32, 1.0f);
  Buffer<float> array{std::span<const float>(values)};
  const simt::Global<float> global(array.data());
  EXPECT_EQ(metered([&] { global.load(simt::thread()); }).global_bytes_read, 128u);
  EXPECT_EQ(metered([&] { global.load(0); }).global_bytes_read, 32u);
  EXPECT_EQ(metered([&] { global.load(std::size_t{32} * simt::thread()); }).global_bytes_read,
            32u * 32u);
  EXPECT_EQ(metered([&] { global.load(simt::thread() + 1); }).global_bytes_read, 160u);
  EXPECT_EQ(metered([&] { global.load_wide(std::size_t{4} * simt::thread()); }).global_bytes_read,
            512u);
  EXPECT_EQ(metered([&] { global.store(simt::thread(), 0.0f); }).global_bytes_written, 128u);
}

TEST(Launch, CountsBankConflicts) {
  const auto passes = [](unsigned stride) {
    const Traffic traffic = metered([&] {
      simt::Arena arena;
      const auto array = arena.take<float>(std::size_t{32} * 33);
      array.store(std::size_t{stride} * simt::thread(), 1.0f);
    });
    EXPECT_EQ(traffic.shared_accesses, 1u);
    return traffic.shared_passes;
  };
  EXPECT_EQ(passes(1), 1u);
  EXPECT_EQ(passes(2), 2u);
  EXPECT_EQ(passes(32), 32u);
  EXPECT_EQ(passes(33), 1u);
}

}  // namespace launch_test
}  // namespace tern::codec::device::emulation
