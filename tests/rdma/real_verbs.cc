#include "tests/rdma/verbs_under_test.h"

namespace tern::rdma {
namespace {

class RealVerbs final : public VerbsUnderTest {
 public:
  RdmaSettings settings() const override {
    RdmaSettings settings;
    settings.setup_timeout_ns = kPatienceNs;
    return settings;
  }
};

}  // namespace

std::unique_ptr<VerbsUnderTest> VerbsUnderTest::make() { return std::make_unique<RealVerbs>(); }

}  // namespace tern::rdma
