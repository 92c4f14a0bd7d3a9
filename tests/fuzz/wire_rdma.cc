// Any bytes as what a peer says of its queue pair.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "wire/crc32c.h"
#include "wire/rdma.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tern::wire;
  const auto payload = std::as_bytes(std::span(data, size));
  FrameHeader header;
  header.kind =
      static_cast<std::uint8_t>(size % 2 == 0 ? FrameKind::rdma_offer : FrameKind::rdma_accept);
  header.payload_bytes = static_cast<std::uint32_t>(size);
  header.payload_crc = crc32c(payload);
  const ParsedRdma parsed = parse_rdma(header, payload);
  TERN_CHECK(rdma_error_text(parsed.error) != nullptr);
  if (parsed.error != RdmaError::none) return 0;
  TERN_CHECK(size == sizeof(RdmaBody));
  // What a queue pair and its buffers are made from.
  TERN_CHECK(parsed.body.qp_number != 0 && parsed.body.qp_number >> 24 == 0);
  TERN_CHECK(parsed.body.receive_slots <= kMaxRdmaSlots);
  TERN_CHECK(parsed.body.slot_bytes >= kMinRdmaSlotBytes);
  const RdmaFrame again = make_rdma(FrameKind::rdma_offer, parsed.body);
  TERN_CHECK(std::memcmp(&again.body, data, size) == 0);
  return 0;
}
