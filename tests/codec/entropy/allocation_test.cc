// The coders run on lanes, which must not allocate once they run.
#include <malloc.h>

#include "entropy_harness.h"

// glibc's own names behind malloc, so that the libraries' calls are counted as well.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): glibc named them.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {
thread_local std::size_t allocations = 0;
}

extern "C" {
void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++allocations;
  return __libc_realloc(memory, size);
}
}

namespace tern::codec::entropy {
namespace {

TEST(EntropyAllocation, NothingIsAllocatedAfterScratchWasMade) {
  install_test_books();
  const std::size_t size = std::size_t{4} << 20;
  const ByteVector in = draw("gaussian", size);
  ByteVector out(size);
  ByteVector back(size);
  Scratch scratch;
  for (const Kind kind : kKinds) {
    Params params = static_params("gaussian");
    params.kind = kind;
    const std::size_t before = allocations;
    const std::size_t coded = encode(params, in, out, scratch);
    const Status status = decode(kind, std::span(out).first(coded), back, scratch);
    const std::size_t after = allocations;
    EXPECT_EQ(status, Status::ok);
    EXPECT_EQ(after, before) << static_cast<int>(kind);
  }
  ASSERT_TRUE(install_codebooks({}).has_value());
}

}  // namespace
}  // namespace tern::codec::entropy
