#include "base/errc.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tern {
namespace {

TEST(Errc, EveryCodeHasItsOwnNameAndARemedy) {
  std::set<std::string_view> names;
  for (int i = 0; i < kErrcCount; ++i) {
    const auto code = static_cast<Errc>(i);
    EXPECT_TRUE(names.insert(errc_name(code)).second) << errc_name(code);
    EXPECT_FALSE(errc_text(code).empty());
  }
  EXPECT_EQ(errc_name(Errc::internal), "internal");
  EXPECT_EQ(errc_name(Errc::peer_lost), "peer_lost");
}

TEST(Errc, AForeignNumberIsUnknownAndNotRead) {
  EXPECT_EQ(errc_name(static_cast<Errc>(kErrcCount)), "unknown");
  EXPECT_EQ(errc_name(static_cast<Errc>(-1)), "unknown");
}

}  // namespace
}  // namespace tern
