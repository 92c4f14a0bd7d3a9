// Time of every collective, Tern beside Gloo and Open MPI. For every size and kind the ranks go
// through rounds; in a round each contestant has one operation, in a new order each time. So what
// else the machine does meets all alike. The time of an operation is that of the rank that took
// longest.
#include "bench/collectives_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/collective_runner.h"
#include "bench/gloo_contestant.h"
#include "bench/meeting.h"
#include "bench/mpi_contestant.h"
#include "bench/processor_clock.h"
#include "bench/quantiles.h"
#include "bench/tern_contestant.h"

namespace tern::bench {
namespace {

using RoundClock = std::chrono::steady_clock;

struct CollectivesOptions {
  std::string folder;
  std::string socket;
  std::string gloo_address;
  pid_t daemon = 0;  // its processor time is Tern's too
  bool mpi = false;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::vector<std::uint64_t> bytes = {4096, 1 << 20, 64 << 20};
  std::vector<std::string> kinds{kCollectives.begin(), kCollectives.end()};
  double seconds = 2;
  std::uint32_t warm_up = 2;
  std::uint32_t min_rounds = 5;
  std::uint32_t max_rounds = 2000;
  std::uint32_t pause_us = 0;
  std::uint64_t seed = 1;
};

// Of all that a rank has, one number for each other rank: whole, so that sums are exact.
float value_of(std::uint32_t rank, std::uint32_t round, std::size_t share) {
  return static_cast<float>(1 + rank * 7 + (round + share) % 5);
}

// What this namespace has sent since it was made.
struct TcpSegments {
  std::uint64_t sent = 0, sent_again = 0;
};

// The kernel has a line of names, and one of numbers.
TcpSegments tcp_segments() {
  TcpSegments segments;
  std::ifstream file("/proc/self/net/snmp");
  std::string line, names;
  while (std::getline(file, line)) {
    if (!line.starts_with("Tcp:")) continue;
    if (names.empty()) {
      names = line;
      continue;
    }
    std::istringstream keys(names), values(line);
    for (std::string key, value; keys >> key && values >> value;) {
      if (key == "OutSegs") segments.sent = std::stoull(value);
      if (key == "RetransSegs") segments.sent_again = std::stoull(value);
    }
    break;
  }
  return segments;
}

class CollectivesBench {
 public:
  explicit CollectivesBench(const CollectivesOptions& options)
      : options_(options),
        meeting_(options.folder + "/meeting", options.rank, options.size),
        order_(options.seed),
        daemon_(options.daemon) {}

  void run() {
    try {
      connect();
      for (const std::uint64_t bytes : options_.bytes) {
        for (const std::string& kind : options_.kinds) measure(kind, bytes / sizeof(float));
      }
      meeting_.meet();  // before anyone leaves the group in which another one still works
    } catch (const std::exception& error) {
      meeting_.give_up();
      throw std::runtime_error(fmt::format("{} ({})", error.what(), doing_));
    }
  }

 private:
  struct Row {
    std::unique_ptr<CollectiveRunner> runner;
    // Of rank 0 only: the slowest rank's, a round each, and what all nodes sent.
    std::vector<double> seconds{};
    TcpSegments segments{};
    std::uint64_t processor_ns = 0;  // of the ranks, and of Tern's daemons
  };

  void connect() {
    const auto rank = static_cast<std::int32_t>(options_.rank);
    const auto size = static_cast<std::int32_t>(options_.size);
    const std::uint64_t memory = 2 * std::ranges::max(options_.bytes) + 4096;
    tern_ =
        std::make_unique<TernNode>(TernNode::Options{.socket = options_.socket,
                                                     .group_id_file = options_.folder + "/group",
                                                     .rank = rank,
                                                     .size = size,
                                                     .max_bytes = memory});
    if (!options_.gloo_address.empty()) {
      gloo_ = std::make_unique<GlooNode>(GlooNode::Options{.address = options_.gloo_address,
                                                           .folder = options_.folder,
                                                           .rank = rank,
                                                           .size = size,
                                                           .max_bytes = memory});
    }
    if (options_.mpi) {
      mpi_ = std::make_unique<MpiNode>(
          MpiNode::Options{.rank = rank, .size = size, .max_bytes = memory});
    }
    meeting_.meet();
  }

  void measure(const std::string& kind, std::size_t elements) {
    const auto place = std::ranges::find(kCollectives, kind) - kCollectives.begin();
    const CollectiveShape shape{static_cast<Collective>(place),
                                elements / options_.size * options_.size, options_.rank,
                                options_.size};
    std::vector<Row> rows;
    rows.push_back({tern_->runner(shape)});
    if (gloo_) {
      if (auto runner = gloo_->runner(shape)) rows.push_back({std::move(runner)});
      if (shape.kind == Collective::all_reduce) {
        rows.push_back({gloo_->runner(shape, GlooAllReduce::bcube)});
        rows.push_back({gloo_->runner(shape, GlooAllReduce::halving_doubling)});
      }
    }
    if (mpi_) rows.push_back({mpi_->runner(shape)});
    for (std::uint32_t i = 0; i < options_.warm_up; ++i) run_round(rows, shape, i, true);
    const auto begin = RoundClock::now();
    for (std::uint32_t round = 0; another_round(round, begin); ++round) {
      run_round(rows, shape, round, false);
    }
    if (options_.rank == 0) {
      for (Row& row : rows) report(kind, shape, row);
    }
  }

  bool another_round(std::uint32_t rounds, RoundClock::time_point begin) {
    const std::chrono::duration<double> passed = RoundClock::now() - begin;
    if (options_.rank == 0) {
      meeting_.set_verdict(rounds < options_.min_rounds ||
                           (rounds < options_.max_rounds && passed.count() < options_.seconds));
    }
    meeting_.meet();
    return meeting_.verdict();
  }

  void run_round(std::vector<Row>& rows, const CollectiveShape& shape, std::uint32_t round,
                 bool warm_up) {
    std::vector<std::size_t> turns(rows.size());
    for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = i;
    std::ranges::shuffle(turns, order_);
    for (const std::size_t turn : turns) {
      Row& row = rows[turn];
      fill(*row.runner, shape, round);
      doing_ = fmt::format("{}: {} of {} elements, round {}", row.runner->name(),
                           kCollectives[static_cast<std::size_t>(shape.kind)], shape.count, round);
      if (options_.pause_us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(options_.pause_us));
      }
      const TcpSegments before = tcp_segments();
      meeting_.align();
      const std::uint64_t used = processor_ns(row);
      const auto begin = RoundClock::now();
      row.runner->run();
      Meeting::Slot& mine = meeting_.mine();
      mine.seconds = std::chrono::duration<double>(RoundClock::now() - begin).count();
      mine.processor_ns = processor_ns(row) - used;
      const TcpSegments after = tcp_segments();
      mine.segments = after.sent - before.sent;
      mine.sent_again = after.sent_again - before.sent_again;
      meeting_.meet();
      if (warm_up) {
        check(*row.runner, shape, round);
      } else if (options_.rank == 0) {
        row.seconds.push_back(
            std::ranges::max(meeting_.slots(), {}, &Meeting::Slot::seconds).seconds);
        for (const Meeting::Slot& slot : meeting_.slots()) {
          row.segments.sent += slot.segments;
          row.segments.sent_again += slot.sent_again;
          row.processor_ns += slot.processor_ns;
        }
      }
      meeting_.meet();  // before a rank that is ahead shows its next time
    }
  }

  // What serves the contestant on this node: the rank, and of Tern the daemon.
  std::uint64_t processor_ns(const Row& row) const {
    const bool has_daemon = options_.daemon != 0 && row.runner->name() == "tern";
    return rank_.now_ns() + (has_daemon ? daemon_.now_ns() : 0);
  }

  // The share for each rank, or a rank's own, has one number throughout.
  void fill(CollectiveRunner& runner, const CollectiveShape& shape, std::uint32_t round) const {
    const std::span<float> input = runner.input();
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = value_of(shape.rank, round, i / shape.share());
    }
  }

  // A contestant that is fast because it delivers nothing is not to win.
  void check(CollectiveRunner& runner, const CollectiveShape& shape, std::uint32_t round) const {
    const std::span<const float> output = runner.output();
    for (std::size_t i = 0; i < output.size(); ++i) {
      const float wanted = expected(shape, round, i / shape.share());
      if (output[i] == wanted) continue;
      throw std::runtime_error(fmt::format(
          "{}: {} of rank {} has {} at {} instead of {}", runner.name(),
          kCollectives[static_cast<std::size_t>(shape.kind)], shape.rank, output[i], i, wanted));
    }
  }

  static float expected(const CollectiveShape& shape, std::uint32_t round, std::size_t share) {
    const auto other = static_cast<std::uint32_t>(share);
    switch (shape.kind) {
      case Collective::broadcast:
      case Collective::ping_pong:
        return value_of(0, round, share);
      case Collective::scatter:
        return value_of(0, round, shape.rank);
      case Collective::all_gather:
      case Collective::gather:
        return value_of(other, round, 0);
      case Collective::all_to_all:
        return value_of(other, round, shape.rank);
      default:
        break;
    }
    const std::size_t place = shape.kind == Collective::reduce_scatter ? shape.rank : share;
    float sum = 0;
    for (std::uint32_t rank = 0; rank < shape.size; ++rank) sum += value_of(rank, round, place);
    return sum;
  }

  void report(const std::string& kind, const CollectiveShape& shape, Row& row) const {
    std::ranges::sort(row.seconds);
    const nlohmann::json line = {{"event", "row"},
                                 {"kind", kind},
                                 {"nodes", shape.size},
                                 {"bytes", shape.count * sizeof(float)},
                                 {"contestant", row.runner->name()},
                                 {"rounds", row.seconds.size()},
                                 {"segments", row.segments.sent},
                                 {"sent_again", row.segments.sent_again},
                                 {"processor_us", 1e-3 * static_cast<double>(row.processor_ns) /
                                                      static_cast<double>(row.seconds.size())},
                                 {"median_us", 1e6 * median(row.seconds)},
                                 {"p99_us", 1e6 * quantile(row.seconds, 0.99)}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }

  const CollectivesOptions& options_;
  Meeting meeting_;
  std::mt19937_64 order_;
  std::string doing_ = "before the first operation";  // for who reads why a run failed
  ProcessorClock rank_{0}, daemon_;
  std::unique_ptr<TernNode> tern_;
  std::unique_ptr<GlooNode> gloo_;
  std::unique_ptr<MpiNode> mpi_;
};

void run_collectives(const CollectivesOptions& options) {
  try {
    CollectivesBench(options).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", options.rank, error.what());
    throw CLI::RuntimeError(1);
  }
}

}  // namespace

void add_collectives_command(CLI::App& app) {
  auto options = std::make_shared<CollectivesOptions>();
  CLI::App* const command =
      app.add_subcommand("collectives", "One rank of a measurement of every collective");
  command->add_option("--folder", options->folder, "A new folder that all ranks have in common")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--rank", options->rank, "0 .. size-1")->required();
  command->add_option("--size", options->size, "Number of ranks")
      ->required()
      ->check(CLI::Range(std::uint32_t{1}, Meeting::kMaxRanks));
  command->add_option("--socket", options->socket, "Socket of the node's ternd");
  command->add_option("--gloo-address", options->gloo_address,
                      "Also measure Gloo, with this address of the node");
  command->add_option("--daemon", options->daemon,
                      "The ternd of the node, by its process: its processor time counts as Tern's");
  command->add_flag("--mpi", options->mpi,
                    "Also measure Open MPI, whose mpirun has started this program");
  command->add_option("--bytes", options->bytes, "Sizes of the whole operation, such as 64KiB")
      ->transform(CLI::AsSizeValue(false))
      ->delimiter(',');
  command->add_option("--kind", options->kinds, "Kinds to measure; all of them if none is given")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>{kCollectives.begin(), kCollectives.end()}));
  command->add_option("--seconds", options->seconds, "Time for each size and kind");
  command->add_option("--warm-up", options->warm_up, "Rounds before the clock runs");
  command->add_option("--min-rounds", options->min_rounds, "However long they take")
      ->check(CLI::PositiveNumber);
  command->add_option("--max-rounds", options->max_rounds, "However short they are");
  command->add_option("--pause-us", options->pause_us, "Between operations, for a shaped link");
  command->add_option("--seed", options->seed, "Of the contestants' order");
  command->callback([options] { run_collectives(*options); });
}

}  // namespace tern::bench
