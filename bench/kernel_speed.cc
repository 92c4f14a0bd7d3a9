#include "bench/kernel_speed.h"

#include "bench/kernel_run.h"

namespace tern::bench {
namespace {

// A GPU that was idle may first have to raise its clocks.
constexpr std::size_t kCopiesBefore = 200;

Result<std::unique_ptr<KernelRun>> make_run(const RunSetting& setting) {
  switch (setting.what.task) {
    case KernelTask::encode:
      return make_encode_run(setting);
    case KernelTask::encode_lossless:
      return make_lossless_run(setting);
    default:
      return make_decode_run(setting);
  }
}

}  // namespace

Result<double> KernelMeter::copy_gb_per_s() const {
  const auto copy = [this] {
    return device_.copy(values_.scratch(), values_.floats(), values_.bytes());
  };
  for (std::size_t i = 0; i < kCopiesBefore; ++i) {
    if (auto done = copy(); !done) return tl::unexpected(done.error());
  }
  const auto times = device_.time(rounds_, copy);
  if (!times) return tl::unexpected(times.error());
  return 2 * static_cast<double>(values_.bytes()) / times->median_us * 1e-3;
}

KernelRow KernelMeter::measure(const KernelCase& what, std::size_t chunk_kib) const {
  KernelRow row{&what, chunk_kib, {}, 0, 0, {}, {}};
  if (auto done = run(row); !done) row.failure = done.error().text;
  return row;
}

Status KernelMeter::run(KernelRow& row) const {
  const KernelCase& what = *row.what;
  const auto recipe = codec::parse_recipe(what.recipe);
  if (!recipe) return tl::unexpected(recipe.error());
  const RunSetting setting{device_, values_, what, *recipe, what.chunk_elements(row.chunk_kib)};
  const std::size_t shared = shared_bytes(what, *recipe, setting.elements);
  if (shared > static_cast<std::size_t>(device_.traits().shared_bytes)) {
    row.left_out = "a chunk takes " + std::to_string(shared) +
                   " bytes of shared memory and the GPU has " +
                   std::to_string(device_.traits().shared_bytes);
    return {};
  }
  auto run = make_run(setting);
  if (!run) return tl::unexpected(run.error());
  const auto times = device_.time(rounds_, [&] { return (*run)->launch(); });
  if (!times) return tl::unexpected(times.error());
  const auto bytes = (*run)->bytes_per_element();
  if (!bytes) return tl::unexpected(bytes.error());
  row.times = *times;
  row.elements = static_cast<double>(setting.begin(setting.chunks()));
  row.bytes_per_element = *bytes;
  auto difference = (*run)->difference();
  if (!difference) return tl::unexpected(difference.error());
  row.failure = std::move(*difference);
  return {};
}

}  // namespace tern::bench
