#include "bench/kernel_device.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "bench/quantiles.h"

namespace tern::bench {
namespace {

// The first launch of a kernel loads it, and the next ones find pages that were never touched.
constexpr std::size_t kWarmUps = 3;

Result<std::vector<char>> read_image(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || bytes.empty()) {
    return fail(Errc::unsupported, path + ": cannot be read, or there are no kernels in it");
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<KernelDevice>> KernelDevice::open(const std::string& image_file,
                                                         const std::string& driver_library) {
  std::unique_ptr<KernelDevice> made(new KernelDevice);
  auto context = gpu::PrimaryContext::make_current(driver_library);
  if (!context) return tl::unexpected(context.error());
  made->context_ = std::move(*context);
  auto driver = gpu::Driver::open(driver_library);
  if (!driver) return tl::unexpected(driver.error());
  made->driver_ = std::move(*driver);
  auto image = read_image(image_file);
  if (!image) return tl::unexpected(image.error());
  made->image_ = std::move(*image);
  auto kernels = gpu::Kernels::load(*made->driver_, made->image_.data());
  if (!kernels) return tl::unexpected(kernels.error());
  made->kernels_ = std::move(*kernels);
  auto stream = gpu::OwnStream::create(*made->driver_);
  if (!stream) return tl::unexpected(stream.error());
  made->stream_ = std::move(*stream);
  return made;
}

Status KernelDevice::upload(gpu::DeviceAddress to, std::span<const std::byte> from) const {
  const auto copied = gpu::copy_up(*driver_, to, from, stream_->get());
  // Also after an error, since a part may be under way.
  const auto finished = finish();
  return copied ? finished : copied;
}

Status KernelDevice::download(std::span<std::byte> to, gpu::DeviceAddress from) const {
  const auto copied = gpu::copy_down(*driver_, to, from, stream_->get());
  const auto finished = finish();
  return copied ? finished : copied;
}

Status KernelDevice::copy(gpu::DeviceAddress to, gpu::DeviceAddress from, std::size_t bytes) const {
  return driver_->check(driver_->api().copy_across(to, from, bytes, stream_->get()),
                        "copy within the device");
}

Status KernelDevice::fill(gpu::DeviceAddress to, unsigned char value, std::size_t bytes) const {
  return driver_->check(driver_->api().fill(to, value, bytes, stream_->get()),
                        "fill device memory");
}

Status KernelDevice::launch(const gpu::KernelLaunch& launch) const {
  return kernels_->launch(launch, stream_->get());
}

Status KernelDevice::tile(gpu::DeviceAddress array, std::size_t unit, std::size_t bytes) const {
  for (std::size_t done = unit; done < bytes;) {
    const std::size_t more = std::min(done, bytes - done);
    if (auto copied = copy(array + done, array, more); !copied) return copied;
    done += more;
  }
  return {};
}

Result<LaunchTimes> KernelDevice::time(std::size_t rounds,
                                       const std::function<Status()>& enqueue) const {
  std::vector<std::unique_ptr<gpu::Stopwatch>> watches;
  for (std::size_t i = 0; i < rounds; ++i) {
    auto watch = gpu::Stopwatch::create(*driver_);
    if (!watch) return tl::unexpected(watch.error());
    watches.push_back(std::move(*watch));
  }
  Status done;
  for (std::size_t i = 0; i < kWarmUps && done; ++i) done = enqueue();
  // All are enqueued before the first is over: the device waits for no launch of the host, whose
  // time would count.
  for (std::size_t i = 0; i < rounds && done; ++i) {
    done = watches[i]->begin(stream_->get());
    if (done) done = enqueue();
    if (done) done = watches[i]->end(stream_->get());
  }
  const Status finished = finish();
  if (!done) return tl::unexpected(done.error());
  if (!finished) return tl::unexpected(finished.error());
  std::vector<double> times;
  times.reserve(watches.size());
  for (const auto& watch : watches) {
    times.push_back(static_cast<double>(watch->elapsed_ns()) * 1e-3);
  }
  std::ranges::sort(times);
  if (times.front() <= 0) return fail(Errc::internal, "the CUDA driver does not know a time");
  return LaunchTimes{median(times), times.front(), times.back()};
}

}  // namespace tern::bench
