#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace tern {
namespace {

TEST(UsableCores, AreThoseOfTheAffinityMask) {
  std::uint32_t before = 0, fenced = 0;
  std::thread([&] {
    before = usable_cores();
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    std::size_t first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    fenced = usable_cores();
  }).join();
  EXPECT_GE(before, 1u);
  EXPECT_EQ(fenced, 1u);
  EXPECT_EQ(usable_cores(), before);  // another thread's
}

}  // namespace
}  // namespace tern
