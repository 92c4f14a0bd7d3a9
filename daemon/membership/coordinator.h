#pragma once

// The groups whose id names this daemon: gathers their ranks, says who is where, and spreads the
// news of their end. Messages in, messages out; no I/O, no clock. A rank joins by proving that it
// knows the group's secret, which never crosses the wire (challenge and HMAC).

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/membership/control_frames.h"
#include "daemon/membership/group_id.h"

namespace tern::daemon {

class Coordinator {
 public:
  explicit Coordinator(ControlSender& sender) : sender_(sender) {}

  // Beyond, the user's own oldest group goes in which nobody is, as after a mint.
  static constexpr std::size_t kGroupsPerUser = 1024;

  // Minted here, or learnt from a rank of this node that joins (after a restart), by this user.
  void learn(const GroupId& id, std::uint32_t user);
  // False: not a message for a coordinator.
  bool on_message(LinkRef from, const nlohmann::json& message);
  void on_link_lost(LinkRef link, const std::string& why);
  std::size_t groups() const { return groups_.size(); }

 private:
  enum class Phase : std::uint8_t { gathering, starting, active };

  struct Joiner {
    LinkRef link = 0;
    std::string node;   // node id, text
    std::string nonce;  // the member's; it names the join in all that is said of it
    std::string challenge;
    bool proven = false;
    nlohmann::json says;  // its join message
  };
  struct Node {
    LinkRef link = 0;
    std::string id;
    std::string address;
    std::vector<std::uint32_t> ranks;
    bool ready = false;
  };
  struct Group {
    bool known = false;
    std::array<std::byte, 32> secret{};
    std::uint32_t epoch = 0;
    Phase phase = Phase::gathering;
    std::map<std::uint32_t, Joiner> joiners;  // for the next epoch
    std::uint32_t size = 0;                   // what the first of them said
    std::vector<Node> nodes;                  // of the current epoch
    std::set<std::uint32_t> left;
    std::uint32_t ranks = 0;
    std::uint32_t user = 0;       // who is charged with it, if it is known
    std::uint64_t last_used = 0;  // order of the last mint or join on this node, if it is known

    bool idle() const { return phase == Phase::gathering && joiners.empty(); }
  };
  using ByUse = std::map<std::uint64_t, std::string>;  // uids in the order of their last use

  // A rank of a group.
  struct Place {
    const std::string& uid;
    std::uint32_t rank;
  };

  void on_join(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_proof(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_withdraw(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void challenge(const std::string& uid, std::uint32_t rank, Joiner& joiner);
  void refuse(const Place& place, const Joiner& joiner, Errc code, const std::string& text);
  // Refuses one that has been taken in.
  void drop(const Place& place, Errc code, const std::string& text);
  void tell_waiting(const std::string& uid, Group& group);
  void start_epoch(const std::string& uid, Group& group);
  void end_epoch(const std::string& uid, Group& group, Errc code, const std::string& text);
  bool make_room();
  bool forget_oldest_idle(std::uint32_t user);
  void forget_strangers();

  ControlSender& sender_;
  std::map<std::string, Group> groups_;      // by uid, hex
  std::map<std::uint32_t, ByUse> of_users_;  // the known ones
  std::uint64_t uses_ = 0;
};

// What a join is proven by.
struct JoinProof {
  std::string uid, member_nonce, challenge, node;
  std::int64_t rank = 0, size = 0;
};
// What a member computes and the coordinator compares.
std::string join_proof(std::span<const std::byte> secret, const JoinProof& join);
// The body names the joins by their nonces, which prevents replay.
std::string members_proof(std::span<const std::byte> secret, const std::string& body);
std::uint64_t group_token(std::span<const std::byte> secret, const std::string& uid,
                          std::int64_t epoch, const std::string& incarnation);

}  // namespace tern::daemon
