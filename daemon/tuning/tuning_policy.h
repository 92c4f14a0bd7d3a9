#pragma once

// The operator's word on tensors that say nothing of their own: a list of rules, the first whose
// pattern fits holds. The text form, in the configuration and in `ternctl policy`:
//
//   PATTERN what ...; PATTERN what ...
//
// PATTERN is a shell pattern (fnmatch(3)) for the tensor's name or, with a slash in it, for
// job/name. `what` is a level (lossless, conservative, balanced, aggressive), `loss<=NUMBER`,
// `residual<=NUMBER`, or `recipe=TEXT`. Of a job, `JOB/* weight=NUMBER` says what share of a node
// it has against other jobs; the first such rule that fits holds, whatever other rules say. Jobs
// choose their labels: with `user=NAME` after it a weight is for jobs of this user alone.

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
  // Of the user's job: 1 if no rule says.
  std::uint32_t weight(const std::string& job, std::uint32_t user) const;
  const std::string& text() const noexcept { return text_; }

 private:
  struct Rule {
    std::string pattern;
    TuningAdvice advice;
    bool advises = false;               // of tensors
    std::uint32_t weight = 0;           // of jobs; 0: no word on it
    std::optional<std::uint32_t> user;  // whose jobs; none: everybody's
  };
  static Status read_rule(std::string_view text, Rule& rule);

  std::string text_;
  std::vector<Rule> rules_;
};

// One `what`, as a tensor's declaration may have it too. The error says what is allowed.
Status read_advice(std::string_view word, TuningAdvice& advice);

}  // namespace tern::daemon
