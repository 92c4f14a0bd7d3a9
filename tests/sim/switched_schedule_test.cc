// What an all_reduce of many nodes does to the ports of a switch, and how near it comes to what its
// busiest port must carry. Each test prints its rows; docs/benchmarks.md has them.
//
// The floor of an op is the time in which the slowest line carries what it must: raw elements with
// the headers of full segments, and no acknowledgement. A port of the switch holds 256 KiB where a
// test says nothing else, and all ports together as much for each.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "switched_jobs.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kSlow = 12'500'000;  // 100 Mbit/s
constexpr std::uint64_t kGigabit = 125'000'000;
constexpr std::uint64_t kPortBytes = 256 << 10;
constexpr std::uint64_t kLateNs = 20'000'000;

struct Case {
  std::uint32_t nodes = 4;
  std::uint64_t bytes_per_s = kSlow;
  std::uint32_t jobs = 1;
  std::uint64_t late_ns = 0;  // of the last node
  double last_share = 1.0;    // the last node's cable by the others'
  std::uint32_t slabs = 64;
  std::uint64_t chunk_bytes = 256 << 10;
  bool told = true;  // daemons know kPortBytes
  int ops = 3;       // measured, after the first
};

struct Row {
  double first = 0.0;  // times the floor, in the op that knows nothing of the network
  double median = 0.0;
  double slowest = 0.0;
  NetworkCounts counts;  // of all ops, the first among them
};

double last_rate(const Case& c) { return c.last_share * static_cast<double>(c.bytes_per_s); }

double floor_ns(const Case& c, std::uint64_t bytes) {
  const double carried =
      2.0 * static_cast<double>(c.jobs) * static_cast<double>(bytes) * (c.nodes - 1) / c.nodes *
      (RenoSender::kSegmentBytes + Packet::kHeaderBytes) / RenoSender::kSegmentBytes;
  return carried * 1e9 / last_rate(c) + static_cast<double>(c.late_ns);
}

void add(NetworkCounts& all, const NetworkCounts& one) {
  all.dropped += one.dropped;
  all.resent += one.resent;
  all.timeouts += one.timeouts;
  all.longest_port_bytes = std::max(all.longest_port_bytes, one.longest_port_bytes);
  all.most_buffer_bytes = std::max(all.most_buffer_bytes, one.most_buffer_bytes);
}

void print_head() {
  std::printf(
      "| nodes | Mbit/s | MiB | floor, ms | first | median | slowest | longest port, KiB |"
      " all ports, KiB | dropped | sent again | timeouts |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
}

Row run(const Case& c) {
  SwitchedJobs::Shape shape;
  shape.nodes = c.nodes;
  shape.jobs = c.jobs;
  shape.rounds = c.nodes <= 16 ? 4 : 2;
  shape.network.cable.up_bytes_per_s = shape.network.cable.down_bytes_per_s = c.bytes_per_s;
  shape.network.port_bytes = kPortBytes;
  shape.network.buffer_bytes = c.nodes * kPortBytes;
  shape.slabs = c.slabs;
  shape.chunk_bytes = c.chunk_bytes;
  if (!c.told) shape.switch_port_bytes = 0;
  if (c.last_share != 1.0) {
    shape.last_cable = shape.network.cable;
    shape.last_cable->up_bytes_per_s = shape.last_cable->down_bytes_per_s =
        static_cast<std::uint64_t>(last_rate(c));
  }
  SwitchedJobs jobs(shape);
  const double floor = floor_ns(c, jobs.bytes());
  Row row;
  std::vector<double> ratios;
  for (int op = 0; op <= c.ops; ++op) {
    const SwitchedJobs::Measured measured = jobs.all_reduce(c.late_ns);
    const double ratio = static_cast<double>(measured.ns) / floor;
    if (op == 0) {
      row.first = ratio;
    } else {
      ratios.push_back(ratio);
    }
    add(row.counts, measured.counts);
  }
  std::sort(ratios.begin(), ratios.end());
  row.median = ratios[ratios.size() / 2];
  row.slowest = ratios.back();
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "| %u | %llu | %llu | %.1f | %.3f | %.3f | %.3f | %llu | %llu | %llu | %llu | %llu |\n",
      c.nodes, number(c.bytes_per_s / 125'000), number(jobs.bytes() >> 20), floor / 1e6, row.first,
      row.median, row.slowest, number(row.counts.longest_port_bytes >> 10),
      number(row.counts.most_buffer_bytes >> 10), number(row.counts.dropped),
      number(row.counts.resent), number(row.counts.timeouts));
  std::fflush(stdout);
  return row;
}

void expect_no_loss(const Row& row) {
  EXPECT_EQ(row.counts.dropped, 0u);
  EXPECT_EQ(row.counts.resent, 0u);
  EXPECT_EQ(row.counts.timeouts, 0u);
}

testing::Message named(const Case& c) {
  return testing::Message() << c.nodes << " nodes, " << c.bytes_per_s << " bytes/s";
}

const std::vector<std::uint32_t> kNodes{4, 8, 10, 16, 32};

// Runs the case at both rates for each number of nodes, and calls check(case, row).
template <typename Check>
void run_all(const std::vector<std::uint32_t>& all_nodes, Case c, Check check) {
  print_head();
  for (const std::uint64_t bytes_per_s : {kSlow, kGigabit}) {
    for (const std::uint32_t nodes : all_nodes) {
      c.nodes = nodes;
      c.bytes_per_s = bytes_per_s;
      SCOPED_TRACE(named(c));
      check(c, run(c));
    }
  }
}

TEST(SwitchedSchedule, FillsThePortsAndLosesNothing) {
  run_all(kNodes, {}, [](const Case&, const Row& row) {
    expect_no_loss(row);
    EXPECT_LE(row.median, 1.05);
  });
}

// Losses are made good, at the cost of time.
TEST(SwitchedSchedule, DaemonsThatAreToldNothingLoseAndFinish) {
  Case untold;
  untold.told = false;
  run_all({8, 16}, untold, [](const Case&, const Row& row) {
    EXPECT_GT(row.counts.dropped, 0u);
    EXPECT_GT(row.first, 1.05);
  });
}

// Two chunks of each owner are under way at once only if there is room for those of all others.
// Chunks are small, or so many nodes would need the memory of several machines under a sanitizer.
TEST(SwitchedSchedule, SixtyFourNodesNeedMoreSlabs) {
  Case large;
  large.slabs = 128;
  large.chunk_bytes = 64 << 10;
  large.ops = 1;
  run_all({64}, large, [](const Case&, const Row& row) {
    expect_no_loss(row);
    EXPECT_LE(row.median, 1.05);
  });
}

TEST(SwitchedSchedule, ALateNodeDelaysTheOthersByLittleMore) {
  Case late;
  late.late_ns = kLateNs;
  run_all(kNodes, late, [](const Case&, const Row& row) {
    expect_no_loss(row);
    EXPECT_LE(row.median, 1.12);
  });
}

// The floor is that of both.
TEST(SwitchedSchedule, TwoJobsFillThePortsTogether) {
  Case two;
  two.jobs = 2;
  run_all({4, 8, 10, 16}, two, [](const Case&, const Row& row) {
    expect_no_loss(row);
    EXPECT_LE(row.median, 1.05);
  });
}

TEST(SwitchedSchedule, ANodeWithHalfTheRateIsTheOnlyOneThatIsWaitedFor) {
  Case slower;
  slower.last_share = 0.5;
  run_all(kNodes, slower, [](const Case&, const Row& row) {
    expect_no_loss(row);
    EXPECT_LE(row.median, 1.05);
  });
}

TEST(SwitchedSchedule, OneSeedIsOneRun) {
  std::vector<SwitchedJobs::Measured> runs;
  for (int i = 0; i < 2; ++i) {
    SwitchedJobs::Shape shape;
    shape.network.cable.up_bytes_per_s = shape.network.cable.down_bytes_per_s = kGigabit;
    runs.push_back(SwitchedJobs(shape).all_reduce());
  }
  EXPECT_EQ(runs[0].ns, runs[1].ns);
  EXPECT_TRUE(runs[0].counts == runs[1].counts);
}

}  // namespace
}  // namespace tern::sim
