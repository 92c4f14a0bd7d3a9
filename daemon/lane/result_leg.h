#pragma once

// The way of results: an owner encodes its sum once, or a root its values, delivers it here, and
// sends the same bytes to all; elsewhere it is delivered to the outputs. Where the root sends each
// owner its chunks only, the owner sends them on from there.

#include <cstdint>

#include "daemon/lane/block_path.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/op_tuning.h"
#include "daemon/lane/reduce_leg.h"
#include "daemon/lane/verifier.h"

namespace tern::daemon {

class ResultLeg {
 public:
  struct Partners {
    OpTuning& tuning;
    BlockPath& path;
    ReduceLeg& reduce;  // which has the sums
    Verifier& verifier;
  };
  // Everything given outlives this, and may be made after it.
  ResultLeg(GroupCore& core, const Partners& partners) : core_(core), partners_(partners) {}

  // ---- Actions, and what follows when their blocks are done ----
  void finish(const collective::Action& action);
  void finish_parked(const collective::Action& action);
  void publish(const collective::Action& action);
  void send_on(const collective::Action& action);
  // What it sends, in an output of a rank.
  std::span<const std::byte> held(const collective::Action& action) const;
  void made(const BlockRequest& request, const BlockCompletion& completion);

  // ---- Frames. False: the peer has broken the protocol. ----
  bool place(std::uint32_t node, const wire::FrameHeader& header, net::PayloadPlace& place);
  void accept(std::uint32_t node, const wire::FrameHeader& header, const net::PayloadPlace& place);
  void delivered(const BlockRequest& request, const BlockCompletion& completion);

 private:
  BlockRequest request_for(BlockVerb verb, const collective::Action& action, std::uint32_t number);
  // Of a chunk, as the inputs (outputs) of ranks have them.
  plan::Range sent_elements(collective::OpId op, std::uint32_t number) const;
  plan::Range received_elements(collective::OpId op, std::uint32_t number) const;
  std::uint32_t receivers(collective::OpId op, std::uint32_t number) const;
  void send(collective::OpId op, std::uint32_t number, const BlockFrame& frame);
  // What the frame borrows, and where its body is.
  BorrowedMemory lend(const BlockRequest& request, const BlockCompletion& completion,
                      Operand& body);
  std::span<const std::byte> payload_of(const BlockRequest& request) const;
  void verify(collective::OpId op, std::uint32_t number, std::span<const std::byte> payload);

  GroupCore& core_;
  Partners partners_;
};

}  // namespace tern::daemon
