#include "daemon/membership/join_terms.h"

#include "daemon/membership/control_frames.h"
#include "daemon/membership/member_list.h"

namespace tern::daemon {

std::optional<JoinTerms> parse_join_terms(const nlohmann::json& message) {
  JoinTerms join;
  join.node = text_of(message, "node");
  join.address = text_of(message, "address");
  join.nonce = text_of(message, "nonce");
  if (!parse_node(join.node) || !parse_address(join.address) || join.nonce.size() != kNonceDigits) {
    return std::nullopt;
  }
  join.rank = number_of(message, "rank", -1);
  join.size = number_of(message, "size", -1);
  join.lanes = number_of(message, "lanes", 1);
  join.chunk_bytes = number_of(message, "chunk_bytes");
  join.eager_bytes = number_of(message, "eager_bytes");
  join.max_ops = number_of(message, "max_ops");
  join.cut = number_of(message, "cut", 1);
  join.eager_form = number_of(message, "eager_form", 1);
  join.rooted_form = number_of(message, "rooted_form", 1);
  join.lossy_min = number_of(message, "lossy_min");
  join.op_timeout_ms = number_of(message, "op_timeout_ms");
  join.verify = flag_of(message, "verify");
  join.seed = number_of(message, "seed");
  join.completed = number_of(message, "completed");
  if (const auto split = message.find("split"); split != message.end()) {
    if (!split->is_object() || text_of(*split, "parent").size() != 32) return std::nullopt;
    join.split = {text_of(*split, "parent"), number_of(*split, "epoch"),
                  number_of(*split, "sequence", -1), number_of(*split, "color", -1),
                  number_of(*split, "key")};
  }
  return join;
}

}  // namespace tern::daemon
