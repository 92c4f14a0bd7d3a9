// What a client or a tensor leaves is freed by threads of the daemon's. Meanwhile its other threads
// map memory, as who makes an epoch does, and wait for the lock of the process's mappings. Measured
// is the longest of these waits, where all is freed at once and where it is freed in slices.
#include "bench/freeing_bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/quantiles.h"
#include "codec/recipe.h"
#include "daemon/service/disposal.h"
#include "daemon/tensor/codec_state.h"
#include "shm/segment.h"

namespace tern::bench {
namespace {

struct FreeingOptions {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint32_t rounds = 5;
};

// What is to be freed: at once, or a part at each call until it says false.
struct Freed {
  std::function<void()> at_once;
  std::function<bool()> some;
};

Freed filled_arena(std::uint64_t bytes) {
  Result<shm::Segment> made = shm::Segment::create(1, bytes, 0);
  if (!made) throw std::runtime_error(made.error().text);
  const auto held = std::make_shared<shm::Segment>(std::move(*made));
  // Neither its pages nor the file's end with the mapping: the client has them too.
  if (const Status filled = shm::populate(held->arena()); !filled) {
    throw std::runtime_error(filled.error().text);
  }
  return {[held] { shm::Segment gone(std::move(*held)); }, [held] { return held->unmap_some(); }};
}

Freed used_state(std::uint64_t bytes) {
  codec::Recipe recipe;
  if (!codec::parse_recipe_quick("ef(3lc:s=1)", recipe)) throw std::runtime_error("no recipe");
  const auto held = std::make_shared<daemon::CodecState>();
  const std::uint64_t count = bytes / sizeof(float);
  if (!held->allocate(recipe, {.count = count, .chunk_elements = count})) {
    throw std::runtime_error("there is no memory for the codec state");
  }
  std::fill_n(held->sender(0), count, 1.0f);
  return {[held] { *held = daemon::CodecState(); }, [held] { return held->free_some(); }};
}

void map_and_unmap() {
  constexpr std::size_t kBytes = 512 << 10, kPageBytes = 4096;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("there is no memory to map");
  for (std::size_t at = 0; at < kBytes; at += kPageBytes) static_cast<char*>(memory)[at] = 1;
  ::munmap(memory, kBytes);
}

// The longest that mapping took while `work` went on.
std::uint64_t longest_wait_ns(const std::function<void()>& work) {
  const SteadyClock clock;
  std::atomic<bool> goes_on{true};
  std::atomic<std::uint64_t> mapped{0};
  std::uint64_t longest_ns = 0;
  std::thread other([&] {
    for (map_and_unmap(); goes_on; ++mapped) {
      const std::uint64_t begun_ns = clock.now_ns();
      map_and_unmap();
      longest_ns = std::max(longest_ns, clock.now_ns() - begun_ns);
    }
  });
  while (mapped < 10) std::this_thread::yield();
  work();
  goes_on = false;
  other.join();
  return longest_ns;
}

void run_freeing(const FreeingOptions& options) {
  const auto median_ms = [](std::vector<double>& ns) {
    std::ranges::sort(ns);
    return median(ns) / 1e6;
  };
  for (const auto& [name, make] :
       {std::pair("arena", &filled_arena), std::pair("state", &used_state)}) {
    std::vector<double> at_once, in_slices;
    for (std::uint32_t round = 0; round < options.rounds; ++round) {
      const Freed whole = make(options.bytes);
      at_once.push_back(static_cast<double>(longest_wait_ns(whole.at_once)));
      const Freed sliced = make(options.bytes);
      in_slices.push_back(static_cast<double>(longest_wait_ns([&] {
        daemon::Disposal disposal;
        disposal.take(0, sliced.some);
        while (disposal.count() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      })));
    }
    const double whole_ms = median_ms(at_once), slices_ms = median_ms(in_slices);
    fmt::print(
        "{{\"event\": \"freeing\", \"of\": \"{}\", \"bytes\": {}, \"rounds\": {}, "
        "\"at_once_ms\": {:.2f}, \"in_slices_ms\": {:.2f}, \"ratio\": {:.4f}}}\n",
        name, options.bytes, options.rounds, whole_ms, slices_ms, slices_ms / whole_ms);
  }
}

}  // namespace

void add_freeing_command(CLI::App& app) {
  auto options = std::make_shared<FreeingOptions>();
  CLI::App* const command = app.add_subcommand(
      "freeing", "How long a thread that maps memory waits while another frees much");
  command->add_option("--bytes", options->bytes, "What is freed, such as 1GiB")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--rounds", options->rounds, "Of which the median is printed")
      ->check(CLI::Range(1, 1000));
  command->callback([options] {
    try {
      run_freeing(*options);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      throw CLI::RuntimeError(1);
    }
  });
}

}  // namespace tern::bench
