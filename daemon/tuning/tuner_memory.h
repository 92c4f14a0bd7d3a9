#pragma once

// What the tuner has learnt, in a file across restarts.

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "tuner/tuner.h"

namespace tern::daemon {

class TunerMemory {
 public:
  // `file`: empty, and nothing is remembered. The clock outlives this.
  TunerMemory(std::string file, const Clock& clock);

  // What cannot be read is lost, and the log says why.
  void load(tuner::Tuner& tuner) const;
  // A minute has gone since the last time.
  bool is_due() const noexcept;
  // All or nothing: what cannot be written leaves the file as it was, and the log says why.
  void save(const tuner::Tuner& tuner);

 private:
  std::string file_;
  const Clock& clock_;
  std::uint64_t saved_ns_;
};

}  // namespace tern::daemon
