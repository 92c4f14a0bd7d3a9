#pragma once

// The operator's word on tensors that say nothing of their own: a list of rules, the first whose
// pattern fits holds. The text form, in the configuration and in `ternctl policy`:
//
//   PATTERN what ...; PATTERN what ...
//
// PATTERN is a shell pattern (fnmatch(3)) for the tensor's name or, with a slash in it, for
// job/name. `what` is a level (lossless, conservative, balanced, aggressive), `loss<=NUMBER`,
// `residual<=NUMBER`, or `recipe=TEXT`.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tuner/level.h"

namespace tern::daemon {

struct TuningAdvice {
  std::string recipe;  // empty: no word on it
  std::optional<tuner::Level> level;
  std::optional<double> loss, residual;

  tuner::Bounds bounds(tuner::Level fallback) const noexcept;
};

class TuningPolicy {
 public:
  static Result<TuningPolicy> parse(std::string_view text);

  // Of the first rule that fits; else nothing.
  TuningAdvice advice(const std::string& job, const std::string& name) const;
  const std::string& text() const noexcept { return text_; }

 private:
  struct Rule {
    std::string pattern;
    TuningAdvice advice;
  };
  std::string text_;
  std::vector<Rule> rules_;
};

// One `what`, as a tensor's declaration may have it too. The error says what is allowed.
Status read_advice(std::string_view word, TuningAdvice& advice);

}  // namespace tern::daemon
