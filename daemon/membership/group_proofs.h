#pragma once

// What proves that somebody knows the secret of a group, without showing it: HMAC-SHA256 of texts
// whose parts have their lengths before them (docs/wire-format.md, "Control messages").

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tern::daemon {

// What a join is proven by.
struct JoinProof {
  std::string uid, member_nonce, challenge, node;
  std::int64_t rank = 0, size = 0;
  std::string split = {};  // text_of() its terms; empty: none
};
// What a member computes and the coordinator compares.
std::string join_proof(std::span<const std::byte> secret, const JoinProof& join);
// The body names the joins by their nonces, which prevents replay.
std::string members_proof(std::span<const std::byte> secret, const std::string& body);
// The `group` in the header of every frame of an epoch: the first 8 bytes of one.
std::uint64_t group_token(std::span<const std::byte> secret, const std::string& uid,
                          std::int64_t epoch, const std::string& incarnation);

}  // namespace tern::daemon
