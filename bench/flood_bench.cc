// A job that always has operations in flight. It ends when it is terminated; every second rank 0
// prints how many operations have ended.
#include "bench/flood_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/inputs.h"
#include "bench/tern_contestant.h"

namespace tern::bench {
namespace {

struct FloodOptions {
  std::string folder;
  std::string socket;
  std::string job = "flood";
  std::string recipe = "raw";
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::uint64_t bytes = std::uint64_t{64} << 20;
  std::uint32_t in_flight = 2;
};

void run_flood(const FloodOptions& options) {
  using Clock = std::chrono::steady_clock;
  TernNode node({.socket = options.socket,
                 .group_id_file = options.folder + "/group",
                 .job = options.job,
                 .rank = options.rank,
                 .size = options.size,
                 .max_bytes = options.bytes * options.in_flight});
  const std::size_t count = options.bytes / sizeof(float);
  struct Place {
    Tensor tensor;
    std::span<float> values;
    std::optional<Ticket> ticket;
  };
  Inputs inputs(count, 1, static_cast<std::uint64_t>(options.rank));
  std::vector<Place> places;
  for (std::uint32_t i = 0; i < options.in_flight; ++i) {
    const auto values = node.memory().subspan(i * count, count);
    std::ranges::copy(inputs.next(count), values.begin());
    places.push_back({node.group().declare<float>("flood" + std::to_string(i), count, TERN_GRADIENT,
                                                  options.recipe),
                      values, std::nullopt});
  }
  // An average of equal values stays what it is, so that nothing has to be filled anew.
  const auto submit = [&](Place& place) {
    place.ticket.emplace(node.group().all_reduce(place.tensor, place.values, TERN_AVERAGE));
  };
  for (Place& place : places) submit(place);
  std::uint64_t ops = 0, said = 0;
  auto begin = Clock::now();
  for (;;) {
    Place& oldest = places[ops % places.size()];
    oldest.ticket->wait();
    submit(oldest);
    ++ops;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (options.rank != 0 || (seconds < 1.0 && ops > 1)) continue;
    fmt::print("{{\"event\": \"flood\", \"bytes_per_s\": {:.0f}}}\n",
               static_cast<double>((ops - said) * options.bytes) / seconds);
    std::fflush(stdout);
    said = ops;
    begin = Clock::now();
  }
}

}  // namespace

void add_flood_command(CLI::App& app) {
  auto options = std::make_shared<FloodOptions>();
  CLI::App* const command = app.add_subcommand(
      "flood", "One rank of a job that keeps its nodes busy until it is stopped");
  command->add_option("--folder", options->folder, "A new folder that all ranks have in common")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--rank", options->rank, "0 .. size-1")->required();
  command->add_option("--size", options->size, "Number of ranks")->required();
  command->add_option("--socket", options->socket, "Socket of the node's ternd");
  command->add_option("--job", options->job, "Label of the job");
  command->add_option("--recipe", options->recipe, "How its tensors travel");
  command->add_option("--bytes", options->bytes, "Size of a tensor, such as 64MiB")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--in-flight", options->in_flight, "Operations under way at a time")
      ->check(CLI::Range(1, 64));
  command->callback([options] {
    try {
      run_flood(*options);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", options->rank, error.what());
      throw CLI::RuntimeError(1);
    }
  });
}

}  // namespace tern::bench
