#include <algorithm>
#include <atomic>

#include "tests/attack/attack.h"

namespace tern::attack {
namespace {

void hog(Assault& assault) {
  while (assault.goes_on()) assault.random();
}

}  // namespace

std::vector<std::byte> Assault::noise(std::size_t bytes) {
  std::vector<std::byte> noise(bytes);
  for (std::byte& one : noise) one = static_cast<std::byte>(random());
  return noise;
}

std::vector<Attack> all_attacks() {
  std::vector<Attack> all{{kHog, "nothing: it burns a processor and attacks nobody", hog}};
  for (const auto family :
       {client_socket_attacks(), request_attacks(), group_attacks(), ring_attacks(), pass_attacks(),
        split_attacks(), memory_attacks(), control_attacks(), peer_attacks(), member_attacks(),
        secure_peer_attacks(), metrics_attacks(), namespace_attacks()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

const Attack* find_attack(std::string_view name) {
  static const std::vector<Attack> kAll = all_attacks();
  const auto found =
      std::find_if(kAll.begin(), kAll.end(), [&](const Attack& one) { return one.name == name; });
  return found == kAll.end() ? nullptr : &*found;
}

}  // namespace tern::attack
