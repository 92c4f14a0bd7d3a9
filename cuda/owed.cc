#include "cuda/owed.h"

#include <algorithm>

#include "codec/codec.h"

namespace tern::cuda {
namespace {

// 4 MiB, or one chunk.
constexpr std::size_t kMostFloats = std::size_t{1} << 20;

std::span<float> floats_in(std::span<std::byte> bytes) noexcept {
  return {static_cast<float*>(static_cast<void*>(bytes.data())), bytes.size() / sizeof(float)};
}

// Also after an error what is enqueued has to be done before its memory is used again.
Status finish(const Status& enqueued, const gpu::OwnStream& stream) {
  Status finished = stream.finish();
  return enqueued ? finished : enqueued;
}

}  // namespace

Owed::Owed(const Device& device, const ChunkMap& map, const TensorSlots& slots,
           const Residual& residual)
    : device_(device),
      slots_(slots),
      residual_(residual),
      now_(map.chunks().size()),
      next_(map.chunks().size()),
      floats_(std::max<std::size_t>(
          map.most_elements(), std::min<std::size_t>(map.contributed_elements(), kMostFloats))) {}

void Owed::begin() noexcept { std::copy(now_.begin(), now_.end(), next_.begin()); }

std::size_t Owed::fit(Chunks chunks) const noexcept {
  std::size_t floats = 0;
  std::size_t count = 0;
  while (count < chunks.size() && floats + chunks[count]->elements <= floats_.size()) {
    floats += chunks[count++]->elements;
  }
  return count;
}

Status Owed::pay_back(Chunks chunks, float state_scale, const gpu::OwnStream& stream) {
  while (!chunks.empty()) {
    const Chunks some = chunks.first(fit(chunks));
    chunks = chunks.subspan(some.size());
    if (auto fetched = finish(fetch(some, stream), stream); !fetched) return fetched;
    add(some, state_scale);
    if (auto put = finish(put_back(some, stream), stream); !put) return put;
  }
  return {};
}

Status Owed::fetch(Chunks chunks, const gpu::OwnStream& stream) {
  float* to = floats_.data();
  for (const ChunkPlace* const chunk : chunks) {
    const auto bytes = std::as_writable_bytes(std::span(to, chunk->elements));
    Status copied =
        gpu::copy_down(device_.driver, bytes, residual_.now_on_device(*chunk), stream.get());
    if (!copied) return copied;
    to += chunk->elements;
  }
  return {};
}

void Owed::add(Chunks chunks, float state_scale) {
  float* owed = floats_.data();
  for (const ChunkPlace* const chunk : chunks) {
    const auto elements = floats_in(slots_.elements(*chunk));
    if (!codec::scan_max(elements, owed, state_scale).nonfinite) {
      for (std::size_t i = 0; i < elements.size(); ++i) elements[i] += state_scale * owed[i];
      std::fill_n(owed, elements.size(), 0.0f);
      next_[chunk->number] = 0;
    }
    owed += elements.size();
  }
}

Status Owed::put_back(Chunks chunks, const gpu::OwnStream& stream) const {
  const float* from = floats_.data();
  for (const ChunkPlace* const chunk : chunks) {
    const auto bytes = std::as_bytes(std::span(from, chunk->elements));
    Status copied =
        gpu::copy_up(device_.driver, residual_.next_on_device(*chunk), bytes, stream.get());
    if (!copied) return copied;
    from += chunk->elements;
  }
  return {};
}

}  // namespace tern::cuda
