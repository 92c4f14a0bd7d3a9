#include "tests/e2e/hostile_member.h"

#include <cstdio>
#include <cstring>

#include "daemon/membership/control_frames.h"
#include "daemon/membership/group_proofs.h"
#include "daemon/membership/group_split.h"
#include "daemon/membership/hmac.h"
#include "shm/sharding.h"

namespace tern::e2e {
namespace {

using daemon::number_of;
using daemon::text_of;
using nlohmann::json;
using wire::FrameKind;

// Nobody listens at the ports of the first ranks.
constexpr int kPortsOfNobody = 64;

int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

}  // namespace

// No other member's.
std::string HostileMember::nonce() const {
  char digits[33];
  std::snprintf(digits, sizeof digits, "%032llx", static_cast<unsigned long long>(number_));
  return digits;
}

json HostileMember::join_message(const std::string& uid, std::uint32_t size) const {
  return {{"t", "join"},
          {"uid", uid},
          {"rank", rank_},
          {"size", size},
          {"nonce", nonce()},
          {"node", daemon::node_text(HostilePeer::hello_body(0, number_).node)},
          // Nobody connects there: its node id is lower. Two nodes of one address would be one that
          // has begun again.
          {"address", "127.0.0.1:" + std::to_string(1 + rank_ % kPortsOfNobody)},
          {"lanes", 1},
          {"chunk_bytes", kChunkBytes},
          {"eager_bytes", eager_bytes_},
          {"cut", eager_bytes_ > 0 ? 3 : 1},
          {"eager_form", eager_bytes_ > 0 ? 3 : 1},
          {"max_ops", 64},
          {"lossy_min", 0},
          {"op_timeout_ms", 30'000},
          {"verify", false},
          {"seed", 0},
          {"completed", 0}};
}

wire::FrameHeader HostileMember::header() const {
  wire::FrameHeader header;
  header.group = token_;
  header.epoch = epoch_;
  header.source_node = static_cast<std::uint16_t>(node_);
  return header;
}

bool HostileMember::split(std::int64_t sequence) {
  const daemon::GroupId gathering = daemon::gathering_id(id_, {epoch_, incarnation_, sequence});
  json message = join_message(daemon::to_hex(gathering.uid), size_);
  message["split"] = {{"parent", daemon::to_hex(id_.uid)},
                      {"epoch", epoch_},
                      {"sequence", sequence},
                      {"color", 0},
                      {"key", 0}};
  return conductor_->send(conductor_->control(message.dump())) && conductor_->drain();
}

std::string HostileMember::join(const std::string& group_id, std::uint64_t node, std::uint32_t rank,
                                std::uint32_t size) {
  const auto id = daemon::parse_group_id(group_id);
  if (!id) return id.error().text;
  id_ = *id;
  number_ = node;
  rank_ = rank;
  conductor_ = std::make_unique<HostilePeer>(id_.port);
  const wire::HelloBody hello = HostilePeer::hello_body(wire::kConductorLane, number_);
  if (!conductor_->hello(hello)) return "the conductor did not answer the hello";
  const std::string uid = daemon::to_hex(id_.uid), self = daemon::node_text(hello.node);
  size_ = size;
  conductor_->send(conductor_->control(join_message(uid, size).dump()));
  const auto challenge = wait_for("challenge");
  if (!challenge) return "no challenge";
  const std::string proof = daemon::join_proof(
      id_.secret, {uid, nonce(), text_of(*challenge, "challenge"), self, rank, std::int64_t{size}});
  const json proves = {
      {"t", "proof"}, {"uid", uid}, {"rank", rank}, {"nonce", nonce()}, {"hmac", proof}};
  conductor_->send(conductor_->control(proves.dump()));
  const auto members = wait_for("members");
  if (!members) return "no list of members";
  const auto body = json::parse(text_of(*members, "body"), nullptr, false);
  if (!body.is_object()) return "the list of members cannot be read";
  if (std::string problem = open_lanes(body); !problem.empty()) return problem;
  const json ready = {{"t", "ready"}, {"uid", uid}, {"epoch", epoch_}};
  conductor_->send(conductor_->control(ready.dump()));
  return wait_for("start") ? "" : "the epoch did not begin";
}

std::string HostileMember::open_lanes(const json& members) {
  epoch_ = static_cast<std::uint32_t>(number_of(members, "epoch"));
  incarnation_ = text_of(members, "incarnation");
  token_ = daemon::group_token(id_.secret, daemon::to_hex(id_.uid), epoch_, incarnation_);
  wire::HelloBody hello = HostilePeer::hello_body(0, number_);
  hello.features = features_;
  hello.group = daemon::link_number(id_);
  for (const json& node : members["nodes"]) {
    lanes_.emplace_back();
    if (text_of(node, "id") == daemon::node_text(hello.node)) {
      node_ = static_cast<std::uint32_t>(lanes_.size()) - 1;
      continue;
    }
    const std::string address = text_of(node, "address");
    if (port_of(address) <= kPortsOfNobody) continue;
    lanes_.back() = std::make_unique<HostilePeer>(port_of(address));
    if (!lanes_.back()->hello(hello)) return "no link to " + address;
  }
  return "";
}

std::optional<json> HostileMember::wait_for(const std::string& type) {
  while (auto frame = conductor_->receive_frame()) {
    if (frame->header.kind != static_cast<std::uint8_t>(FrameKind::control)) continue;
    const std::string text(static_cast<const char*>(static_cast<void*>(frame->payload.data())),
                           frame->payload.size());
    auto message = json::parse(text, nullptr, false);
    if (message.is_object() && text_of(message, "t") == type) return message;
  }
  return std::nullopt;
}

std::optional<HostilePeer::Received> HostileMember::wait_for(std::uint32_t node, FrameKind kind) {
  while (auto frame = lanes_[node]->receive_frame()) {
    if (frame->header.kind == static_cast<std::uint8_t>(kind)) return frame;
  }
  return std::nullopt;
}

std::optional<HostileMember::Op> HostileMember::wait_for_announcements() {
  std::optional<Op> op;
  for (std::uint32_t other = 0; other < nodes(); ++other) {
    if (lanes_[other] == nullptr) continue;
    const auto frame = wait_for(other, FrameKind::announce);
    if (!frame || frame->payload.size() < sizeof(wire::AnnounceBody)) return std::nullopt;
    op.emplace();
    std::memcpy(&op->said, frame->payload.data(), sizeof(op->said));
    op->said.rank = rank_;
    op->said.eager_bytes = 0;
    op->said.flags &= static_cast<std::uint8_t>(~wire::kAnnounceBlock);
    op->said.lead = 0;
    op->header.group = token_;
    op->header.epoch = epoch_;
    op->header.tensor = frame->header.tensor;
    op->header.op_seq = frame->header.op_seq;
    op->header.source_node = static_cast<std::uint16_t>(node_);
  }
  return op;
}

bool HostileMember::announce(const Op& op) {
  bool sent = true;
  for (auto& lane : lanes_) {
    if (!lane) continue;
    sent = lane->send(
               lane->next(FrameKind::announce, op.header, std::as_bytes(std::span(&op.said, 1)))) &&
           sent;
  }
  return sent;
}

std::vector<std::uint32_t> HostileMember::Op::chunks_of(std::uint32_t owner,
                                                        std::uint32_t nodes) const {
  const shm::Sharding sharding = shm::make_sharding({.tensor = header.tensor,
                                                     .sequence = header.op_seq,
                                                     .count = said.count,
                                                     .dtype = static_cast<DType>(said.dtype),
                                                     .chunk_bytes = kChunkBytes,
                                                     .nodes = nodes});
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t chunk = 0; chunk < sharding.chunk_count; ++chunk) {
    if (sharding.owner(chunk) == owner) chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace tern::e2e
