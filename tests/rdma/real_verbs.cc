#include "tests/rdma/verbs_under_test.h"

namespace tern::rdma {
namespace {

class RealVerbs final : public VerbsUnderTest {
 public:
  RdmaSettings settings() const override { return {}; }
};

}  // namespace

std::unique_ptr<VerbsUnderTest> VerbsUnderTest::make() { return std::make_unique<RealVerbs>(); }

}  // namespace tern::rdma
