#include "daemon/membership/group_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tern::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kUid = "000102030405060708090a0b0c0d0e0f";
const std::string kSecret = std::string(62, '7') + "fe";

std::string error_of(const std::string& text) {
  const auto id = parse_group_id(text);
  return id ? "" : id.error().text;
}

TEST(GroupId, HasTheDocumentedTextForm) {
  const std::string text = "tern1:node-1.rack:7700:" + kUid + ":" + kSecret;
  const auto id = parse_group_id(text);
  ASSERT_TRUE(id) << id.error().text;
  EXPECT_EQ(id->host, "node-1.rack");
  EXPECT_EQ(id->port, 7700);
  EXPECT_EQ(id->uid[15], std::byte{0x0f});
  EXPECT_EQ(id->secret[31], std::byte{0xfe});
  EXPECT_EQ(format_group_id(*id), text);
  EXPECT_EQ(short_group_uid(*id), "00010203");
}

TEST(GroupId, MintedIdsDifferAndReadBack) {
  const auto a = mint_group_id("fe80::1%eth0", 65'535);
  const auto b = mint_group_id("fe80::1%eth0", 65'535);
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->uid, b->uid);
  EXPECT_NE(a->secret, b->secret);
  EXPECT_THAT(format_group_id(*a), HasSubstr("tern1:[fe80::1%eth0]:65535:"));
  EXPECT_EQ(parse_group_id(format_group_id(*a)).value(), *a);
}

TEST(GroupId, TheLongestHostFits) {
  const auto id = mint_group_id(std::string(kMaxGroupHostBytes, 'h'), 65'535);
  ASSERT_TRUE(id);
  EXPECT_LE(format_group_id(*id).size(), kMaxGroupIdBytes);
  EXPECT_EQ(parse_group_id(format_group_id(*id)).value(), *id);
  EXPECT_FALSE(mint_group_id(std::string(kMaxGroupHostBytes + 1, 'h'), 1));
  EXPECT_FALSE(mint_group_id("", 1));
  EXPECT_FALSE(mint_group_id("host", 0));
  EXPECT_FALSE(mint_group_id("ho st", 1));
}

TEST(GroupId, SaysWhatIsWrongButNotTheSecret) {
  const std::string tail = ":" + kUid + ":" + kSecret;
  EXPECT_THAT(error_of(""), HasSubstr("tern1:"));
  EXPECT_THAT(error_of("tern2:h:1" + tail), HasSubstr("does not begin"));
  EXPECT_THAT(error_of(" tern1:h:1" + tail), HasSubstr("does not begin"));
  EXPECT_THAT(error_of("tern1:h"), HasSubstr("ends after its host"));
  EXPECT_THAT(error_of("tern1:h:1"), HasSubstr("ends after its port"));
  EXPECT_THAT(error_of("tern1:h:1:" + kUid), HasSubstr("ends after its uid"));
  EXPECT_THAT(error_of("tern1::1" + tail), HasSubstr("host"));
  EXPECT_THAT(error_of("tern1:h/:1" + tail), HasSubstr("host"));
  EXPECT_THAT(error_of("tern1:[::1:1" + tail), HasSubstr("bracket"));
  EXPECT_THAT(error_of("tern1:[h]:1" + tail), HasSubstr("without an IPv6"));
  for (const char* const port : {"0", "65536", "01", "+1", "-1", "1x", ""}) {
    EXPECT_THAT(error_of(std::string("tern1:h:") + port + tail), HasSubstr("port")) << port;
  }
  EXPECT_THAT(error_of("tern1:h:1:00:" + kSecret), HasSubstr("uid"));
  const std::string error = error_of("tern1:h:1:" + kUid + ":" + kSecret + "\n");
  EXPECT_THAT(error, HasSubstr("65 characters"));
  EXPECT_THAT(error, Not(HasSubstr("7777")));
  EXPECT_THAT(error_of("tern1:" + std::string(300, 'h')), HasSubstr("at most 255"));
}

TEST(GroupId, NoCutOrChangedTextIsRead) {
  const std::string text = format_group_id(mint_group_id("10.0.0.1", 7700).value());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_group_id(std::string_view(text).substr(0, size))) << size;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = '\xff';
    EXPECT_FALSE(parse_group_id(changed)) << i;
  }
}

}  // namespace
}  // namespace tern::daemon
