#include "daemon/membership/group_proofs.h"

#include <cstring>
#include <initializer_list>

#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

std::string joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const auto& part : parts) {
    all += std::to_string(part.size());
    all += ':';
    all += part;
  }
  return all;
}

}  // namespace

std::string join_proof(std::span<const std::byte> secret, const JoinProof& join) {
  std::string text = joined({"tern join", join.uid, join.member_nonce, join.challenge, join.node,
                             std::to_string(join.rank), std::to_string(join.size)});
  if (!join.split.empty()) text += joined({join.split});
  return to_hex(hmac_sha256(secret, {bytes_of(text)}));
}

std::string members_proof(std::span<const std::byte> secret, const std::string& body) {
  const std::string text = joined({"tern members", body});
  return to_hex(hmac_sha256(secret, {bytes_of(text)}));
}

std::uint64_t group_token(std::span<const std::byte> secret, const std::string& uid,
                          std::int64_t epoch, const std::string& incarnation) {
  const std::string text = joined({"tern token", uid, std::to_string(epoch), incarnation});
  const Digest digest = hmac_sha256(secret, {bytes_of(text)});
  std::uint64_t token = 0;
  std::memcpy(&token, digest.data(), sizeof(token));
  return token;
}

}  // namespace tern::daemon
