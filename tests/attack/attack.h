#pragma once

// An attack is what one user's program does to break one promise of the daemon (docs/security.md).
// It goes on until its time is up, whatever it waits for then, and needs nothing that a user has
// not: it becomes that user before it begins.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern::attack {

// The daemon that is attacked, as everybody on the machine can find it.
struct Target {
  std::string socket, control_socket;
  int port = 0;
  int metrics_port = 0;
  std::string key;  // of a cluster that has one, as text, for a peer that has it too
};

class Assault {
 public:
  Assault(Target at, std::uint64_t seed) : target(std::move(at)), random(seed) {}
  // Counts one more blow. The end comes from outside, by a signal.
  bool goes_on() {
    blows_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  std::uint64_t blows() const noexcept { return blows_.load(std::memory_order_relaxed); }
  // Below `bound`, which is not 0.
  std::uint64_t below(std::uint64_t bound) { return random() % bound; }
  std::vector<std::byte> noise(std::size_t bytes);

  const Target target;
  std::mt19937_64 random;

 private:
  std::atomic<std::uint64_t> blows_{0};
};

// What the attacked daemons are given beside the options of all, and where the attacker begins.
enum class Stage : std::uint8_t {
  plain,
  key,        // the peers' port is behind a cluster key
  full_disk,  // nothing can be written where the daemons write
  kept_state,
  older_kernel,  // that lets anybody pass descriptors
  many_users,    // it is root's, and each of its children another user's, all of one owner
};

// Of Stage::many_users.
inline constexpr uid_t kFirstOwnedUser = 1'100'000'000;

enum class Standing : std::uint8_t {
  held,
  alone,  // takes what Linux gives all users alike: run only where nobody else works
};

struct Attack {
  std::string_view name;
  std::string_view promise;  // that it tries to break
  void (*strike)(Assault&);
  Stage stage = Stage::plain;
  Standing standing = Standing::held;
};

// Burns one processor and attacks nothing: what every attack is compared with.
inline constexpr std::string_view kHog = "hog";

// One list for each family, and all of them.
std::span<const Attack> client_socket_attacks();
std::span<const Attack> request_attacks();
std::span<const Attack> group_attacks();
std::span<const Attack> ring_attacks();
std::span<const Attack> pass_attacks();
std::span<const Attack> split_attacks();
std::span<const Attack> member_attacks();
std::span<const Attack> memory_attacks();
std::span<const Attack> control_attacks();
std::span<const Attack> peer_attacks();
std::span<const Attack> secure_peer_attacks();
std::span<const Attack> metrics_attacks();
std::span<const Attack> namespace_attacks();
std::vector<Attack> all_attacks();
// Null if there is none.
const Attack* find_attack(std::string_view name);

}  // namespace tern::attack
