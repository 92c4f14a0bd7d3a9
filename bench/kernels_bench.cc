// Every kernel of codec/device on the GPU of this machine, as a share of the bandwidth with which
// the same GPU copies its own memory.
#include "bench/kernels_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/codec_options.h"
#include "bench/kernel_speed.h"

namespace tern::bench {
namespace {

#ifdef TERN_KERNEL_FILE
constexpr const char* kBuiltImage = TERN_KERNEL_FILE;
#else
constexpr const char* kBuiltImage = "";
#endif

struct KernelOptions {
  std::string image = kBuiltImage;
  std::size_t mib = 256;  // far more than a cache of the second level
  std::size_t rounds = 21;
  std::uint64_t seed = 1;
  std::vector<std::size_t> chunk_kib = {64, 128};
  std::string json_file;
};

// What was measured before all kernels and after them, so that a drift shows.
struct CopyBandwidth {
  double before = 0;
  double after = 0;

  double middle() const { return (before + after) / 2; }
  double percent(const KernelRow& row) const { return 100 * row.gb_per_s() / middle(); }
};

std::vector<std::size_t> chunk_sizes(const KernelCase& what, const KernelOptions& options) {
  // This kernel is for chunks that the other one has no room for.
  if (what.reads_twice()) return {256};
  return options.chunk_kib;
}

std::string outcome_of(const KernelRow& row) {
  if (!row.failure.empty()) return row.failure;
  if (!row.left_out.empty()) return "left out: " + row.left_out;
  return fmt::format("{:.1f} us", row.times.median_us);
}

// A word on each at once: what comes later may take the driver down.
std::vector<KernelRow> measure_all(const KernelMeter& meter, const KernelOptions& options) {
  std::vector<KernelRow> rows;
  for (const KernelCase& what : kernel_cases()) {
    for (const std::size_t chunk_kib : chunk_sizes(what, options)) {
      rows.push_back(meter.measure(what, chunk_kib));
      fmt::print(stderr, "{}, {}, {} blocks, {} KiB: {}\n", what.name(), what.recipe, what.blocks,
                 chunk_kib, outcome_of(rows.back()));
    }
  }
  return rows;
}

void print_row(const KernelRow& row, const CopyBandwidth& copy) {
  const KernelCase& what = *row.what;
  fmt::print("{:<26} {:<23} {:>6} {:>5} ", what.name(), what.recipe, what.blocks, row.chunk_kib);
  if (row.measured()) {
    const std::string target = what.target_percent == 0 ? "-" : std::to_string(what.target_percent);
    fmt::print("{:>8.1f} {:>8.1f} {:>8.1f} {:>7.3f} {:>7.1f} {:>6.1f} {:>6} {:>8.2f}",
               row.times.median_us, row.times.least_us, row.times.most_us, row.bytes_per_element,
               row.gb_per_s(), copy.percent(row), target, row.gelements_per_s());
  } else {
    fmt::print("{}", row.failure.empty() ? outcome_of(row) : "failed");
  }
  if (row.failure.empty()) {
    fmt::print("\n");
  } else {
    fmt::print("  {}\n", row.failure);
  }
}

void print_table(const std::vector<KernelRow>& rows, const CopyBandwidth& copy) {
  fmt::print("copy: {:.1f} GB/s before, {:.1f} GB/s after; a share is of {:.1f}\n", copy.before,
             copy.after, copy.middle());
  fmt::print("{:<26} {:<23} {:>6} {:>5} {:>8} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>8}\n",
             "kernel", "recipe", "blocks", "KiB", "us", "least", "most", "B/elem", "GB/s", "copy%",
             "target", "Gelem/s");
  for (const KernelRow& row : rows) print_row(row, copy);
}

nlohmann::json row_json(const KernelRow& row, const CopyBandwidth& copy) {
  const KernelCase& what = *row.what;
  nlohmann::json json = {{"kernel", what.name()},
                         {"recipe", what.recipe},
                         {"blocks", what.blocks},
                         {"chunk_kib", row.chunk_kib}};
  if (!row.failure.empty()) json["failure"] = row.failure;
  if (!row.left_out.empty()) json["left_out"] = row.left_out;
  if (!row.measured()) return json;
  json["median_us"] = row.times.median_us;
  json["least_us"] = row.times.least_us;
  json["most_us"] = row.times.most_us;
  json["bytes_per_element"] = row.bytes_per_element;
  json["gb_per_s"] = row.gb_per_s();
  json["copy_percent"] = copy.percent(row);
  if (what.target_percent != 0) json["target_percent"] = what.target_percent;
  json["gelements_per_s"] = row.gelements_per_s();
  return json;
}

nlohmann::json table_json(const std::vector<KernelRow>& rows, const CopyBandwidth& copy) {
  nlohmann::json list = nlohmann::json::array();
  for (const KernelRow& row : rows) list.push_back(row_json(row, copy));
  return {{"copy_gb_per_s",
           {{"before", copy.before}, {"after", copy.after}, {"middle", copy.middle()}}},
          {"rows", list}};
}

void write_report(const KernelOptions& options, const KernelDevice& device, nlohmann::json report) {
  if (options.json_file.empty()) return;
  const gpu::DeviceTraits& traits = device.traits();
  report["device"] = device.name();
  report["compute_capability"] = fmt::format("{}.{}", traits.major, traits.minor);
  report["shared_bytes"] = traits.shared_bytes;
  report["mib"] = options.mib;
  report["rounds"] = options.rounds;
  report["seed"] = options.seed;
  report["input"] = "gaussian";
  write_json(options.json_file, report);
}

void run_kernels(const KernelOptions& options) {
  const auto device = value_or_exit(KernelDevice::open(options.image));
  fmt::print("{}, compute capability {}.{}, {} bytes of shared memory for a block of threads\n",
             device->name(), device->traits().major, device->traits().minor,
             device->traits().shared_bytes);
  const auto values = value_or_exit(KernelValues::create(*device, options.mib << 20, options.seed));
  const KernelMeter meter(*device, *values, options.rounds);
  CopyBandwidth copy;
  copy.before = value_or_exit(meter.copy_gb_per_s());
  const std::vector<KernelRow> rows = measure_all(meter, options);
  // A kernel may have taken the driver down; what was measured before counts all the same.
  const auto after = meter.copy_gb_per_s();
  copy.after = after ? *after : copy.before;
  print_table(rows, copy);
  write_report(options, *device, table_json(rows, copy));
  std::fflush(stdout);
  if (!after) give_up(after.error().text);
  const auto failed =
      std::ranges::count_if(rows, [](const KernelRow& row) { return !row.failure.empty(); });
  if (failed != 0) give_up(fmt::format("{} of {} rows failed", failed, rows.size()));
}

}  // namespace

void add_kernels_command(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  CLI::App* const command = app.add_subcommand(
      "kernels", "Speed of every kernel on this machine's GPU, as a share of its copies");
  command
      ->add_option(
          "--image", options->image,
          "Fat binary or cubin of the kernels (default: that of this build, if it has one)")
      ->required(options->image.empty());
  command->add_option("--mib", options->mib, "Input of a launch")->check(CLI::Range(16, 4096));
  command
      ->add_option("--rounds", options->rounds, "Launches whose time is taken; the median counts")
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", options->seed, "Of the Gaussian input");
  command->add_option("--chunk-kib", options->chunk_kib, "Chunk sizes")->check(CLI::Range(1, 4096));
  command->add_option("--json", options->json_file, "Also write the rows to this file");
  command->callback([options] { run_kernels(*options); });
}

}  // namespace tern::bench
