// Time of an all-reduce, contestants side by side. For every size the ranks go through rounds; in a
// round every contestant has one operation, so that what else the machine does meets them all
// alike.
//
// A measured operation: each rank puts its input in place, all ranks align, each takes its time.
// The time of the operation is that of the rank that took longest. Inputs are the same for all
// contestants of a round and are never repeated.
#include "bench/allreduce_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/contestant.h"
#include "bench/gloo_contestant.h"
#include "bench/inputs.h"
#include "bench/library_node.h"
#include "bench/meeting.h"
#include "bench/quantiles.h"
#include "bench/tensor_file.h"
#include "bench/tern_contestant.h"
#include "codec/recipe.h"
#include "codec/target/target.h"

namespace tern::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct AllreduceOptions {
  std::string folder;
  std::vector<std::string> sockets;
  std::vector<std::string> libraries;  // none, or one for each socket
  std::string gloo_address;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::vector<std::uint64_t> bytes = {4096, 65536, 1 << 20, 16 << 20, 64 << 20};
  std::vector<Memory> memory = {Memory::arena};
  std::vector<std::string> recipes = {"raw", "bf16", "3lc:s=1", "3lc:s=1,scale=16384"};
  double seconds = 3;
  std::uint32_t warm_up = 2;
  // A residual starts at zero and grows for some twenty steps; the ratio falls meanwhile.
  std::uint32_t settle = 24;
  std::uint32_t min_rounds = 3;
  std::uint32_t max_rounds = 400;
  std::uint32_t pause_us = 0;
  double idle_seconds = 0;
  bool all_times = false;
  std::size_t pools = 3;
  std::uint64_t seed = 1;
  std::vector<std::string> input_files;
};

// One contestant's share of a size.
struct Row {
  std::unique_ptr<Contestant> contestant;
  std::size_t daemon = 0;           // the place of its socket among the options
  std::vector<double> seconds{};    // of rank 0 only: the slowest rank's, a round each
  std::vector<double> at{};         // when it began, in Unix time
  std::optional<Traffic> before{};  // what it had sent before the clock ran
};

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One rank of the measurement.
class AllreduceBench {
 public:
  AllreduceBench(const AllreduceOptions& options, std::span<const std::vector<float>> recorded)
      : options_(options),
        meeting_(options.folder + "/meeting", options.rank, options.size),
        order_(options.seed),
        inputs_(inputs(options, recorded)) {}

  void run() {
    try {
      connect();
      idle();
      for (const std::uint64_t bytes : options_.bytes) measure(bytes / sizeof(float));
      meeting_.meet();  // before anyone leaves a group in which another one still works
    } catch (...) {
      meeting_.give_up();
      throw;
    }
  }

 private:
  std::uint64_t max_bytes() const { return std::ranges::max(options_.bytes); }

  static Inputs inputs(const AllreduceOptions& options,
                       std::span<const std::vector<float>> recorded) {
    const std::size_t count = std::ranges::max(options.bytes) / sizeof(float);
    const std::uint64_t seed = options.seed + options.rank;
    return recorded.empty() ? Inputs(count, options.pools, seed) : Inputs(count, recorded, seed);
  }

  void connect() {
    const auto rank = static_cast<std::int32_t>(options_.rank);
    const auto size = static_cast<std::int32_t>(options_.size);
    for (std::size_t daemon = 0; daemon < options_.sockets.size(); ++daemon) {
      if (options_.recipes.empty()) break;
      const TernNode::Options node{
          .socket = options_.sockets[daemon],
          .group_id_file = fmt::format("{}/group{}", options_.folder, daemon),
          .rank = rank,
          .size = size,
          .max_bytes = max_bytes(),
          .copies = std::ranges::count(options_.memory, Memory::outside) != 0,
          .block_tensors = options_.recipes.size() * static_cast<std::size_t>(std::ranges::count(
                                                         options_.memory, Memory::blocks))};
      if (options_.libraries.empty()) {
        terns_.push_back(std::make_unique<TernNode>(node));
      } else {
        libraries_.push_back(std::make_unique<LibraryNode>(options_.libraries[daemon], node));
      }
    }
    if (!options_.gloo_address.empty()) {
      gloo_ = std::make_unique<GlooNode>(GlooNode::Options{.address = options_.gloo_address,
                                                           .folder = options_.folder,
                                                           .rank = rank,
                                                           .size = size,
                                                           .max_bytes = max_bytes()});
    }
    meeting_.meet();
  }

  // For whoever wants to look at the daemons while a group is joined and nothing happens.
  void idle() {
    if (options_.idle_seconds <= 0) return;
    if (options_.rank == 0) print({{"event", "idle"}});
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.idle_seconds));
    meeting_.meet();
    if (options_.rank == 0) print({{"event", "busy"}});
  }

  void measure(std::size_t count) {
    std::vector<Row> rows;
    if (gloo_) rows.push_back({.contestant = gloo_->contestant(count)});
    for (const std::string& recipe : options_.recipes) {
      for (std::size_t daemon = 0; daemon < terns_.size(); ++daemon) {
        for (const Memory memory : options_.memory) {
          rows.push_back(
              {.contestant = terns_[daemon]->contestant(recipe, count, memory), .daemon = daemon});
        }
      }
      for (std::size_t daemon = 0; daemon < libraries_.size(); ++daemon) {
        rows.push_back(
            {.contestant = libraries_[daemon]->contestant(recipe, count), .daemon = daemon});
      }
    }
    turns_.resize(rows.size());
    std::iota(turns_.begin(), turns_.end(), std::size_t{0});
    for (std::uint32_t i = 0; i < options_.warm_up; ++i) run_round(rows, count, true);
    for (Row& row : rows) {
      if (!row.contestant->tolerance()) settle(*row.contestant, count);
      row.before = row.contestant->traffic();
    }
    const auto begin = Clock::now();
    for (std::uint32_t rounds = 0; another_round(rounds, seconds_since(begin)); ++rounds) {
      run_round(rows, count, false);
    }
    if (options_.rank == 0) {
      for (Row& row : rows) print(report(row, count));
    }
  }

  bool another_round(std::uint32_t rounds, double seconds) {
    if (options_.rank == 0) {
      meeting_.set_verdict(rounds < options_.min_rounds ||
                           (rounds < options_.max_rounds && seconds < options_.seconds));
    }
    meeting_.meet();
    return meeting_.verdict();
  }

  void run_round(std::vector<Row>& rows, std::size_t count, bool warm_up) {
    const std::span<const float> input = inputs_.next(count);
    // In a new order each time, the same on all ranks: the one before leaves its traces in the
    // caches.
    std::ranges::shuffle(turns_, order_);
    for (const std::size_t turn : turns_) {
      Row& row = rows[turn];
      Contestant& contestant = *row.contestant;
      std::ranges::copy(input, contestant.values().begin());
      Meeting::Slot& slot = meeting_.mine();
      const std::size_t samples = std::min(count, Meeting::kSamples);
      std::copy_n(input.begin(), samples, slot.samples);
      // A token bucket that the one before has emptied is to be full again.
      if (options_.pause_us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(options_.pause_us));
      }
      meeting_.align();
      const double at = unix_seconds();
      const auto begin = Clock::now();
      contestant.all_reduce();
      slot.seconds = seconds_since(begin);
      meeting_.meet();
      if (warm_up) {
        check(contestant, samples);
        meeting_.meet();  // before a rank that is ahead shows its next samples
      } else if (options_.rank == 0) {
        row.at.push_back(at);
        row.seconds.push_back(
            std::ranges::max(meeting_.slots(), {}, &Meeting::Slot::seconds).seconds);
      }
    }
  }

  void settle(Contestant& contestant, std::size_t count) {
    for (std::uint32_t i = 0; i < options_.settle; ++i) {
      std::ranges::copy(inputs_.next(count), contestant.values().begin());
      contestant.all_reduce();
    }
  }

  // A contestant that is fast because it adds up nothing is not to win.
  void check(Contestant& contestant, std::size_t samples) {
    const std::optional<double> tolerance = contestant.tolerance();
    if (!tolerance) return;
    for (std::size_t i = 0; i < samples; ++i) {
      double sum = 0;
      double largest = 0;
      for (const Meeting::Slot& slot : meeting_.slots()) {
        sum += static_cast<double>(slot.samples[i]);
        largest = std::max(largest, std::abs(static_cast<double>(slot.samples[i])));
      }
      const double result = static_cast<double>(contestant.values()[i]);
      if (!(std::abs(result - sum) <= *tolerance * largest * options_.size)) {
        throw std::runtime_error(fmt::format("{}: element {} of the sum is {} instead of {}",
                                             contestant.name(), i, result, sum));
      }
    }
  }

  nlohmann::json report(Row& row, std::size_t count) const {
    std::vector<double> seconds = row.seconds;
    std::ranges::sort(seconds);
    const double middle = median(seconds);
    const auto bytes = static_cast<double>(count * sizeof(float));
    nlohmann::json line = {{"event", "row"},
                           {"nodes", options_.size},
                           {"bytes", count * sizeof(float)},
                           {"contestant", row.contestant->name()},
                           {"daemon", row.daemon},
                           {"rounds", seconds.size()},
                           {"median_us", 1e6 * middle},
                           {"p99_us", 1e6 * quantile(seconds, 0.99)},
                           {"min_us", 1e6 * seconds.front()},
                           {"algorithm_gb_per_s", 1e-9 * bytes / middle}};
    // In the order of the rounds, which all contestants have in common.
    if (options_.all_times) {
      line["seconds"] = row.seconds;
      line["at"] = row.at;
    }
    const std::optional<Traffic> traffic = row.contestant->traffic();
    if (traffic) line.update(traffic_json(since(*traffic, *row.before)));
    return line;
  }

  static Traffic since(Traffic now, const Traffic& before) {
    now.ops -= before.ops;
    now.bytes_raw -= before.bytes_raw;
    now.bytes_sent -= before.bytes_sent;
    now.encode_ns -= before.encode_ns;
    now.queue_ns -= before.queue_ns;
    now.wire_ns -= before.wire_ns;
    now.decode_ns -= before.decode_ns;
    now.wait_ns -= before.wait_ns;
    return now;
  }

  static nlohmann::json traffic_json(const Traffic& traffic) {
    const auto per_op = [&](std::uint64_t total) {
      return static_cast<double>(total) /
             static_cast<double>(std::max<std::uint64_t>(traffic.ops, 1));
    };
    const Result<codec::Recipe> recipe = codec::parse_recipe(traffic.recipe);
    const bool scaled = recipe && recipe->compressor == codec::Compressor::threelc;
    return {{"recipe", traffic.recipe},
            {"scale", scaled ? nlohmann::json(recipe->scale_elements) : nlohmann::json()},
            {"target", codec::target::name()},
            {"ratio", traffic.bytes_sent == 0 ? 1.0
                                              : static_cast<double>(traffic.bytes_raw) /
                                                    static_cast<double>(traffic.bytes_sent)},
            {"residual_ratio", traffic.residual_ratio},
            {"bytes_raw_per_op", per_op(traffic.bytes_raw)},
            {"bytes_sent_per_op", per_op(traffic.bytes_sent)},
            {"state_bytes", traffic.state_bytes},
            {"encode_us", per_op(traffic.encode_ns) / 1e3},
            {"queue_us", per_op(traffic.queue_ns) / 1e3},
            {"wire_us", per_op(traffic.wire_ns) / 1e3},
            {"decode_us", per_op(traffic.decode_ns) / 1e3},
            {"wait_us", per_op(traffic.wait_ns) / 1e3}};
  }

  static void print(const nlohmann::json& line) {
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }

  const AllreduceOptions& options_;
  Meeting meeting_;
  std::mt19937_64 order_;
  Inputs inputs_;
  std::vector<std::size_t> turns_;                // the order of the contestants in the next round
  std::vector<std::unique_ptr<TernNode>> terns_;  // one for each socket, or of these:
  std::vector<std::unique_ptr<LibraryNode>> libraries_;
  std::unique_ptr<GlooNode> gloo_;
};

void run_allreduce(const AllreduceOptions& options) {
  try {
    if (!options.input_files.empty() && options.input_files.size() < options.size) {
      throw std::runtime_error(fmt::format("--input has {} files for {} ranks: give one for each",
                                           options.input_files.size(), options.size));
    }
    std::vector<std::vector<float>> recorded;
    for (const std::string& file : options.input_files) {
      const Result<Tensor> tensor = read_tensor(file, std::nullopt);
      if (!tensor) throw std::runtime_error(tensor.error().text);
      if (tensor->count() == 0) throw std::runtime_error(file + " has no elements");
      recorded.push_back(to_f32(*tensor));
    }
    AllreduceBench(options, recorded).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", options.rank, error.what());
    throw CLI::RuntimeError(1);
  }
}

}  // namespace

void add_allreduce_command(CLI::App& app) {
  auto options = std::make_shared<AllreduceOptions>();
  CLI::App* const command = app.add_subcommand(
      "allreduce", "One rank of an all-reduce measurement; all ranks on one machine");
  command->add_option("--folder", options->folder, "A new folder that all ranks have in common")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--rank", options->rank, "0 .. size-1")->required();
  command->add_option("--size", options->size, "Number of ranks")
      ->required()
      ->check(CLI::Range(std::uint32_t{1}, Meeting::kMaxRanks));
  command->add_option("--socket", options->sockets,
                      "Socket of the node's ternd; several: all are measured in the same rounds");
  command->add_option("--library", options->libraries,
                      "Instead of the libtern of this program, for each socket one's file");
  command->add_option("--gloo-address", options->gloo_address,
                      "Also measure Gloo, with this address of the node");
  command->add_option("--bytes", options->bytes, "Tensor sizes, such as 64KiB")
      ->transform(CLI::AsSizeValue(false))
      ->delimiter(',');
  command->add_option("--recipe", options->recipes, "Recipes to measure; \"none\": Gloo alone");
  static const std::map<std::string, Memory> kMemories = {{"arena", Memory::arena},
                                                          {"outside", Memory::outside},
                                                          {"region", Memory::region},
                                                          {"blocks", Memory::blocks}};
  command
      ->add_option("--memory", options->memory,
                   "Where the values lie, each one measured: arena, outside, region; blocks: "
                   "outside, and encoded and decoded by the rank")
      ->transform(CLI::CheckedTransformer(kMemories))
      ->delimiter(',');
  command->add_option("--seconds", options->seconds,
                      "Time for each size, all contestants together");
  command->add_option("--warm-up", options->warm_up, "Rounds before the clock runs");
  command->add_option("--settle", options->settle, "Steps more for recipes with a residual");
  command->add_option("--min-rounds", options->min_rounds, "However long they take")
      ->check(CLI::PositiveNumber);
  command->add_option("--max-rounds", options->max_rounds, "However short they are");
  command->add_option("--pause-us", options->pause_us, "Between operations, for a shaped link");
  command->add_flag("--all-times", options->all_times,
                    "Print the time of every round, and when it was");
  command->add_option("--idle", options->idle_seconds, "Seconds to stay idle after the join");
  command->add_option("--pools", options->pools, "Pools of Gaussian inputs")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "Of the inputs and of the contestants' order");
  command->add_option(
      "--input", options->input_files,
      "Instead of Gaussians one tensor at successive steps, as many as ranks or more: "
      ".npy of f32, f16 or bf16");
  command->callback([options] {
    std::erase(options->recipes, "none");
    if (options->sockets.empty()) options->sockets.emplace_back();  // the default of libtern
    if (!options->libraries.empty() && options->libraries.size() != options->sockets.size()) {
      throw CLI::ValidationError("--library", "as many as sockets");
    }
    run_allreduce(*options);
  });
}

}  // namespace tern::bench
