#pragma once

#include <string>

#include "ctl/session.h"

namespace tern::ctl {

struct TopOptions {
  std::string view = "jobs";
  std::string sort;       // a column's key; empty: the view's
  double interval_s = 1;  // between two looks
  int batch = 0;          // so many frames as plain text, and no keys; 0: until `q`
  bool reversed = false;
};

ExitCode show_top(const Session& session, const TopOptions& options);

}  // namespace tern::ctl
