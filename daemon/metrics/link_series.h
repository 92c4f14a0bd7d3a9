#pragma once

// What Prometheus sees of links: one series for each node, address and lane, of however many
// groups' links it is made.

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace tern::daemon {

class LinkSeries {
 public:
  // `peers`, as it is reported now. A row for each series, in the order of their first links: what
  // is counted is added up, else the largest is shown. A counter does not fall when one of several
  // links ends: what that has counted stays until the series has no link.
  nlohmann::json rows(const nlohmann::json& peers);

 private:
  using Key = std::array<std::string, 3>;  // node, address, lane
  using Numbers = std::map<std::string, double>;
  struct Series {
    std::map<std::string, Numbers> links;  // of each group, when last seen
    Numbers totals;
  };

  std::map<Key, Series> series_;
};

}  // namespace tern::daemon
