#pragma once

#include <memory>
#include <vector>

#include "tests/codec/device/device_harness.h"

namespace tern::codec::device {

struct DecodeKernel {
  StagedKernel<DecodeRoom, DecodeChunk> kernel;
  bool adds;
};

struct Decoded {
  std::vector<float> out;
  DecodeStatus status = DecodeStatus::ok;
  LaunchReport report;
};

// The blocks of one chunk, in the device's memory.
class DecodeLaunch {
 public:
  explicit DecodeLaunch(const std::vector<EncodedBlock>& blocks) {
    for (const EncodedBlock& block : blocks) add(block);
  }

  std::uint32_t at_once = 16;

  Decoded run(const DecodeKernel& kernel, const std::vector<float>& before,
              const LaunchOptions& options) {
    const Array<float> out =
        kernel.adds ? Array<float>(std::span<const float>(before)) : Array<float>(before.size());
    const Array<PayloadView> views{std::span<const PayloadView>(views_)};
    const Array<std::uint32_t> status(1);
    DecodeChunk chunk{};
    chunk.blocks = views.data();
    chunk.out = out.data();
    chunk.status = status.data();
    chunk.block_count = static_cast<std::uint32_t>(views_.size());
    chunk.elements = static_cast<std::uint32_t>(before.size());
    const Array<DecodeChunk> chunks(std::span<const DecodeChunk>(&chunk, 1));
    const DecodeRoom room{at_once, scale_count_};
    Decoded made;
    made.report = kernel.kernel.launch(room, chunks, options);
    made.out = out.values();
    if (made.report.finding.empty()) made.status = static_cast<DecodeStatus>(status.values()[0]);
    return made;
  }

 private:
  void add(const EncodedBlock& block) {
    payloads_.push_back(
        std::make_unique<Array<std::byte>>(std::span<const std::byte>(block.payload)));
    views_.push_back({payloads_.back()->data(), block.header.payload_bytes,
                      block.header.scale_elements, block.header.flags});
    const std::uint32_t scales =
        wire::block_scale_count(block.header.elements, block.header.scale_elements);
    scale_count_ = std::max(scale_count_, scales);
  }

  std::vector<std::unique_ptr<Array<std::byte>>> payloads_;
  std::vector<PayloadView> views_;
  std::uint32_t scale_count_ = 0;
};

}  // namespace tern::codec::device
