#pragma once

// What nodes say of an op when all their ranks have submitted it, and the values of ops that travel
// with it: each node sends what it has for every other, and adds or delivers what has come. Of a
// larger op that is what each owner's chunk is made of; the other leg goes on from there.

#include <cstdint>
#include <span>

#include "daemon/lane/block_codec.h"
#include "daemon/lane/block_path.h"
#include "daemon/lane/eager_inputs.h"
#include "daemon/lane/group_clients.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/op_tuning.h"
#include "daemon/lane/state_upkeep.h"
#include "daemon/lane/verifier.h"

namespace tern::daemon {

class Announcements {
 public:
  // Everything given outlives this, and may be made after it.
  struct Partners {
    BlockCodec& codec;
    BlockPath& path;
    OpTuning& tuning;
    StateUpkeep& upkeep;
    GroupClients& clients;
    Verifier& verifier;
  };
  Announcements(GroupCore& core, const Partners& partners, std::span<SlabPool> pools)
      : core_(core),
        partners_(partners),
        values_(core.setup().shape, core.ops().table().slots(), pools) {}
  const EagerInputs& values() const noexcept { return values_; }

  // ---- Actions, and what follows when their blocks are done ----
  void announce(const collective::Action& action);
  // What this node contributes is known.
  void gathered(const BlockRequest& request, const BlockCompletion& completion);
  void reduce(const collective::Action& action);
  void reduced(const BlockRequest& request, const BlockCompletion& completion);

  // ---- Frames ----
  // Where an announcement goes, and the values that come with it. False, here and of accept(): the
  // peer has broken the protocol.
  bool place(std::uint32_t node, const wire::FrameHeader& header, net::PayloadPlace& place);
  bool accept(std::uint32_t node, const wire::FrameHeader& header, const net::PayloadPlace& place);
  void abandoned(std::uint32_t node, const filling::EagerSlab& filled) noexcept {
    values_.give(node, filled.slab);
  }

  // An op of which owners hear their chunks begins when the last node has announced it.
  void begin_if_all_announced(collective::OpId op) noexcept;

  void release(collective::OpId op) noexcept { values_.release(op); }

 private:
  // Of this node to a reduction, all of it.
  struct Contribution {
    std::span<const std::byte> bytes{};
    bool is_block = false;
  };
  OpBlocks& blocks() noexcept { return partners_.codec.blocks(); }
  const NodeValues& inputs() noexcept { return partners_.codec.values(); }
  // By which recipe the contribution is a block; null: by none.
  const codec::Recipe* recipe_of(collective::OpId op);
  void save_state(collective::OpId op, const codec::Recipe& recipe, std::uint32_t number);
  void send(const collective::Action& action, const Contribution& contribution);
  // To the node so many before this one, and all further: one by one, as their blocks are made.
  void announce_chunks(const collective::Action& action, std::uint32_t step);
  void chunk_gathered(const BlockRequest& request, const BlockCompletion& completion);
  wire::AnnounceBody body_of(collective::OpId op);
  // How the others have sent it.
  void compare(collective::OpId op);
  bool is_sound(const wire::AnnounceBody& body, std::size_t bytes) const noexcept;
  // kNoSlot: nobody wants them.
  void accept_values(std::uint32_t node, collective::OpId op, const wire::AnnounceBody& body);

  GroupCore& core_;
  Partners partners_;
  EagerInputs values_;
};

}  // namespace tern::daemon
