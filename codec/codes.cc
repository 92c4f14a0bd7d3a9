#include "codec/codes.h"

#include <cstdint>

#include "codec/quantizer/quantizer.h"
#include "codec/sparsifier/sparsifier.h"

namespace tern::codec {

std::span<const std::byte> block_codes(const wire::BlockHeader& header,
                                       std::span<const std::byte> payload,
                                       Workspace& workspace) noexcept {
  if (wire::check_block_header(header) != wire::BlockError::none ||
      header.codec != static_cast<std::uint8_t>(wire::CodecId::staged) ||
      header.stages.entropy != static_cast<std::uint8_t>(wire::EntropyId::none)) {
    return {};
  }
  sparsifier::Selection selection;
  selection.kept = header.elements;
  const auto kind = static_cast<sparsifier::Kind>(header.stages.sparsifier);
  if (kind != sparsifier::Kind::none &&
      !sparsifier::read_section({kind, payload, header.elements}, workspace.positions().data(),
                                selection)) {
    return {};
  }
  payload = payload.subspan(selection.section_bytes);
  quantizer::Params params;
  params.kind = static_cast<quantizer::Kind>(header.stages.quantizer);
  params.bits = header.stages.bits;
  params.levels = header.stages.levels;
  params.block = header.scale_elements;
  // 3lc has the length of its stream in front; others have a side.
  std::size_t before = sizeof(std::uint32_t);
  if (params.kind != quantizer::Kind::threelc) {
    if (!quantizer::valid(params)) return {};
    before = quantizer::sizes(params, selection.kept).side;
  }
  return payload.size() < before ? std::span<const std::byte>{} : payload.subspan(before);
}

}  // namespace tern::codec
