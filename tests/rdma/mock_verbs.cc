#include "tests/rdma/mock/fabric.h"
#include "tests/rdma/verbs_under_test.h"

namespace tern::rdma {
namespace {

class MockVerbs final : public VerbsUnderTest {
 public:
  // The order of things as far from a loopback's as the verbs allow.
  MockVerbs() { fabric_.defers = fabric_.completes_late = true; }
  RdmaSettings settings() const override {
    RdmaSettings settings;
    settings.node_directory = fabric_.nodes().string();
    settings.setup_timeout_ns = kPatienceNs;
    return settings;
  }

 private:
  mock::Fabric fabric_;
};

}  // namespace

std::unique_ptr<VerbsUnderTest> VerbsUnderTest::make() { return std::make_unique<MockVerbs>(); }

}  // namespace tern::rdma
