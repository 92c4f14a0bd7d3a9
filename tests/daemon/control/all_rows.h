#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/control/row_source.h"

namespace tern::daemon {

// The whole list, as a client gets it.
inline nlohmann::json all_rows(const RowSource& source) {
  nlohmann::json all = nlohmann::json::array();
  for (bool more = true; more;) {
    nlohmann::json rows = nlohmann::json::array();
    more = source(rows);
    EXPECT_LE(rows.size(), kRowsOfCall);
    for (auto& row : rows) all.push_back(std::move(row));
  }
  return all;
}

}  // namespace tern::daemon
