#include "net/tcp/sources.h"

#include <algorithm>
#include <map>

namespace tern::net {

using boost::asio::ip::address;
using boost::asio::ip::address_v4;
using boost::asio::ip::address_v6;

address source_of(const address& given) {
  if (given.is_v6() && given.to_v6().is_v4_mapped()) {
    return source_of(boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, given.to_v6()));
  }
  if (given.is_loopback()) return address_v4::loopback();
  if (given.is_v4()) return given;
  constexpr std::size_t kNetworkBytes = 8;
  auto bytes = given.to_v6().to_bytes();
  std::fill(bytes.begin() + kNetworkBytes, bytes.end(), std::uint8_t{0});
  return address_v6(bytes);
}

std::size_t oldest_of_heaviest(const std::vector<address>& sources) {
  std::map<address, std::size_t> counts;
  for (const address& source : sources) ++counts[source];
  // The first of equals is the oldest of all.
  const auto heaviest = std::max_element(
      sources.begin(), sources.end(),
      [&](const address& a, const address& b) { return counts.at(a) < counts.at(b); });
  return static_cast<std::size_t>(heaviest - sources.begin());
}

}  // namespace tern::net
