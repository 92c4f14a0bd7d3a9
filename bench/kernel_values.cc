#include "bench/kernel_values.h"

#include <algorithm>
#include <span>

#include "base/half.h"
#include "bench/inputs.h"

namespace tern::bench {
namespace {

// More would take the host longer, and no kernel sees more than a chunk of it.
constexpr std::size_t kMostPoolBytes = std::size_t{16} << 20;

}  // namespace

KernelValues::KernelValues(std::size_t bytes, std::uint64_t seed) : bytes_(bytes) {
  const std::size_t count = std::min(bytes, kMostPoolBytes) / sizeof(float);
  Inputs inputs(count, 1, seed);
  const std::span<const float> values = inputs.next(count);
  pool_.assign(values.begin(), values.end());
}

Result<std::unique_ptr<KernelValues>> KernelValues::create(const KernelDevice& device,
                                                           std::size_t bytes, std::uint64_t seed) {
  std::unique_ptr<KernelValues> made(new KernelValues(bytes, seed));
  for (auto* const array : {&made->floats_, &made->halves_, &made->scratch_}) {
    auto allocated = device.allocate(bytes);
    if (!allocated) return tl::unexpected(allocated.error());
    *array = std::move(*allocated);
  }
  const std::span<const float> floats(made->pool_);
  const std::vector<std::uint16_t> halves = made->halves(0, floats.size());
  const std::span<const std::uint16_t> two_bytes(halves);
  Status done = device.upload(made->floats(), std::as_bytes(floats));
  if (done) done = device.tile(made->floats(), floats.size_bytes(), bytes);
  if (done) done = device.upload(made->halves(), std::as_bytes(two_bytes));
  if (done) done = device.tile(made->halves(), two_bytes.size_bytes(), bytes);
  // Written once, so that no series of launches is the first to touch it.
  if (done) done = device.fill(made->scratch(), 0, bytes);
  if (done) done = device.finish();
  if (!done) return tl::unexpected(done.error());
  return made;
}

std::vector<float> KernelValues::floats(std::size_t begin, std::size_t count) const {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = pool_[(begin + i) % pool_.size()];
  return values;
}

std::vector<std::uint16_t> KernelValues::halves(std::size_t begin, std::size_t count) const {
  std::vector<std::uint16_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = f32_to_bf16(pool_[(begin + i) % pool_.size()]);
  }
  return values;
}

}  // namespace tern::bench
