#include "tuner/candidate.h"

namespace tern::tuner {

std::vector<Candidate> usual_candidates() {
  return {{"raw", true},
          {"lossless", true},
          {"ef(bf16)", false},
          {"ef(int:bits=8)", false},
          {"ef(int:bits=4)", false},
          {"3lc:s=1", false},
          {"3lc:s=1.75", false}};
}

}  // namespace tern::tuner
