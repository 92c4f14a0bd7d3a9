#include "base/errc.h"

#include <array>

namespace tern {
namespace {

struct Row {
  std::string_view name;
  std::string_view text;
};

constexpr std::array<Row, kErrcCount> kRows{{
    {"ok", "success"},
    {"invalid_argument", "an argument is out of its range; see the detail text"},
    {"out_of_memory", "memory is exhausted; free tensors or raise the arena size"},
    {"would_block", "the queue is full; wait for a ticket and submit again"},
    {"timeout", "the time given to the call has passed; the operation goes on"},
    {"daemon_absent", "no ternd listens on the socket; start it or check TERN_SOCKET"},
    {"daemon_lost", "ternd ended; connect again when it is back"},
    {"peer_lost", "the daemon of another node was lost; leave the group and join again"},
    {"rank_lost", "the process of another rank was lost; leave the group and join again"},
    {"mismatch", "ranks disagree on this operation; see the detail text for who said what"},
    {"cancelled", "the operation was cancelled by a rank"},
    {"op_timeout", "not all ranks submitted the operation within the group's op_timeout"},
    {"bad_secret", "the group id's secret is wrong; pass the id exactly as it was minted"},
    {"rank_taken", "another process joined the group with this rank"},
    {"wrong_size", "the ranks of the group give different group sizes"},
    {"quota_exceeded", "a quota of the daemon's configuration is reached"},
    {"unknown_group", "the group is not known; mint an id and let every rank join with it"},
    {"unknown_tensor", "the tensor is not declared in this group"},
    {"unknown_ticket", "the ticket is not in use; a ticket ends with the wait that returns it"},
    {"version_mismatch", "the two sides speak different versions; upgrade the older one"},
    {"permission_denied", "the daemon's access policy refuses this user"},
    {"forked", "the handle belongs to the parent process; connect again in the child"},
    {"corrupt_data",
     "a payload did not match its checksum; was the tensor written during the operation?"},
    {"protocol_error", "the other side broke the protocol and was disconnected"},
    {"epoch_ended", "the group's epoch has ended; leave the group and join again"},
    {"unsupported", "this version does not support the request"},
    {"io_error", "a system call failed; see the detail text"},
    {"shutting_down", "the daemon is stopping"},
    {"group_left", "this rank or another has left the group"},
    {"state_mismatch", "codec state does not fit this layout"},
    {"result_mismatch", "verification found different results on different ranks"},
    {"bad_recipe", "the recipe cannot be read; see the detail text"},
    {"already_exists", "the name is already in use"},
    {"unreachable", "the other node does not answer; check its address and port"},
    {"internal", "a defect of Tern; please report it"},
}};

}  // namespace

std::string_view errc_name(Errc code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < kRows.size() ? kRows[index].name : "unknown";
}

std::string_view errc_text(Errc code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < kRows.size() ? kRows[index].text : "unknown error";
}

}  // namespace tern
