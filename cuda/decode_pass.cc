#include "cuda/decode_pass.h"

#include <algorithm>
#include <string>

#include "codec/codec.h"

namespace tern::cuda {
namespace {

Status corrupt(const ChunkPlace& chunk, std::string_view why) {
  return fail(Errc::corrupt_data, "the result block of the elements from " +
                                      std::to_string(chunk.begin) +
                                      " on cannot be decoded: " + std::string(why));
}

std::uint32_t scale_count(const wire::BlockHeader& header) noexcept {
  return wire::block_scale_count(header.elements, header.scale_elements);
}

bool is(const wire::BlockHeader& header, wire::CodecId codec) noexcept {
  return header.codec == static_cast<std::uint8_t>(codec);
}

}  // namespace

Result<std::unique_ptr<DecodePass>> DecodePass::create(const Device& device, const ChunkMap& map,
                                                       const TensorSlots& slots) {
  std::unique_ptr<DecodePass> pass(new DecodePass(device, map, slots));
  const std::size_t count = map.chunks().size();
  auto chunks = Orders<DecodeChunk>::create(device.driver, count);
  if (!chunks) return tl::unexpected(chunks.error());
  pass->chunks_.emplace(std::move(*chunks));
  auto views = Orders<PayloadView>::create(device.driver, count);
  if (!views) return tl::unexpected(views.error());
  pass->views_.emplace(std::move(*views));
  auto statuses = Answers<std::uint32_t>::create(device.driver, count);
  if (!statuses) return tl::unexpected(statuses.error());
  pass->statuses_.emplace(std::move(*statuses));
  return pass;
}

Status DecodePass::enqueue(gpu::DeviceAddress output, codec::Workspace& workspace,
                           gpu::Stream stream) {
  output_ = output;
  stream_ = stream;
  workspace_ = &workspace;
  work_.clear();
  decoded_.clear();
  decoded_.reserve(map_.chunks().size());
  for (const ChunkPlace& chunk : map_.chunks()) {
    if (auto sorted = sort_out(chunk); !sorted) return sorted;
  }
  return launch();
}

Status DecodePass::sort_out(const ChunkPlace& chunk) {
  wire::BlockHeader header;
  const auto error = wire::parse_block_header(
      {slots_.block(chunk), static_cast<std::size_t>(map_.slot_bytes())}, header);
  if (error != wire::BlockError::none) return corrupt(chunk, wire::block_error_text(error));
  if (header.elements != chunk.elements ||
      header.payload_bytes > map_.slot_bytes() - wire::kBlockHeaderBytes) {
    return corrupt(chunk, "its sizes are not the chunk's");
  }
  if (is(header, wire::CodecId::raw) && header.dtype == static_cast<std::uint8_t>(DType::f32)) {
    return copy_elements(chunk);
  }
  if (const auto kernel = decoder_of(header)) {
    const Work work{&chunk, *kernel, header};
    if (fits(work)) {
      work_.push_back(work);
      return {};
    }
  }
  return decode_here(chunk, header);
}

bool DecodePass::fits(const Work& work) const noexcept {
  return decoder_shared_bytes(work.kernel, map_.most_elements(), scale_count(work.header)) <=
         static_cast<std::uint32_t>(device_.driver.device().shared_bytes);
}

Status DecodePass::copy_elements(const ChunkPlace& chunk) {
  return gpu::copy_up(device_.driver, output_of(chunk), slots_.elements(chunk), stream_);
}

Status DecodePass::decode_here(const ChunkPlace& chunk, const wire::BlockHeader& header) {
  std::vector<float>& out = decoded_.emplace_back(chunk.elements);
  const codec::BlockView block{
      header, {slots_.block(chunk) + wire::kBlockHeaderBytes, header.payload_bytes}};
  const codec::DecodeStatus status =
      is(header, wire::CodecId::lossless)
          ? codec::decode_lossless(block, {}, std::as_writable_bytes(std::span(out)), *workspace_)
          : codec::decode(block, out, *workspace_);
  if (status != codec::DecodeStatus::ok) return corrupt(chunk, codec::decode_status_name(status));
  return gpu::copy_up(device_.driver, output_of(chunk), std::as_bytes(std::span(out)), stream_);
}

Status DecodePass::launch() {
  if (work_.empty()) return {};
  std::stable_sort(work_.begin(), work_.end(),
                   [](const Work& a, const Work& b) { return a.kernel < b.kernel; });
  for (std::size_t i = 0; i < work_.size(); ++i) {
    const Work& work = work_[i];
    views_->host()[i] = {slots_.block_on_device(*work.chunk) + wire::kBlockHeaderBytes,
                         work.header.payload_bytes, work.header.scale_elements, work.header.flags};
    chunks_->host()[i] = {views_->device(i), gpu::as_pointer<float>(output_of(*work.chunk)),
                          statuses_->device(i), 1, work.chunk->elements};
    statuses_->host()[i] = 0;
  }
  if (auto uploaded = views_->upload(work_.size(), stream_); !uploaded) return uploaded;
  if (auto uploaded = chunks_->upload(work_.size(), stream_); !uploaded) return uploaded;
  for (std::size_t first = 0; first < work_.size();) {
    std::size_t end = first + 1;
    while (end < work_.size() && work_[end].kernel == work_[first].kernel) ++end;
    if (auto launched = launch_kernel(first, end - first); !launched) return launched;
    first = end;
  }
  return {};
}

Status DecodePass::launch_kernel(std::size_t first, std::size_t count) {
  codec::device::DecodeRoom room{1, 0};
  for (std::size_t i = first; i < first + count; ++i) {
    room.scale_count = std::max(room.scale_count, scale_count(work_[i].header));
  }
  const gpu::Kernel kernel = work_[first].kernel;
  const DecodeChunk* orders = chunks_->device(first);
  void* parameters[] = {static_cast<void*>(&room), static_cast<void*>(&orders)};
  return device_.kernels.launch(
      {kernel, static_cast<std::uint32_t>(count),
       decoder_shared_bytes(kernel, map_.most_elements(), room.scale_count), parameters},
      stream_);
}

Status DecodePass::verdict() const {
  for (std::size_t i = 0; i < work_.size(); ++i) {
    const auto status = static_cast<codec::DecodeStatus>(statuses_->host()[i]);
    if (status != codec::DecodeStatus::ok) {
      return corrupt(*work_[i].chunk, codec::decode_status_name(status));
    }
  }
  return {};
}

HeldBytes DecodePass::held() const noexcept {
  HeldBytes held = chunks_->held();
  held += views_->held();
  held += statuses_->held();
  return held;
}

}  // namespace tern::cuda
