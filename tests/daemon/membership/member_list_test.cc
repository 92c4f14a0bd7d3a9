#include "daemon/membership/member_list.h"

#include <gtest/gtest.h>

#include "collective/group_ops.h"
#include "daemon/membership/control_frames.h"

namespace tern::daemon {
namespace {

using nlohmann::json;

const wire::NodeId kFirst{0xabc, 1}, kSecond{0xdef, 2};

json node(const wire::NodeId& id, const std::string& address,
          const std::vector<std::uint32_t>& ranks) {
  json nonces = json::array();
  for (const auto rank : ranks) nonces.push_back(std::string(31, 'a') + std::to_string(rank % 10));
  return {{"id", node_text(id)}, {"address", address}, {"ranks", ranks}, {"nonces", nonces}};
}

json list_of_two() {
  return {{"epoch", 3},
          {"size", 3},
          {"incarnation", "f00d"},
          {"last_common_op", 17},
          {"lanes", 2},
          {"chunk_bytes", 65536},
          {"eager_bytes", 1024},
          {"lossy_min", 4096},
          {"max_ops", 16},
          {"op_timeout_ms", 1000},
          {"seed", 5},
          {"verify", true},
          {"nodes", {node(kFirst, "host1:7000", {0, 2}), node(kSecond, "[fe80::1]:7001", {1})}}};
}

void expect_malformed(const json& body, const std::string& why) {
  const auto list = parse_member_list(body);
  ASSERT_FALSE(list.has_value()) << body;
  EXPECT_EQ(list.error().code, Errc::protocol_error);
  EXPECT_NE(list.error().text.find(why), std::string::npos) << list.error().text;
}

TEST(MemberList, SaysWhoIsWhereAndWhatWasAgreed) {
  const auto list = parse_member_list(list_of_two());
  ASSERT_TRUE(list.has_value()) << list.error().text;
  EXPECT_EQ(list->epoch, 3u);
  EXPECT_EQ(list->size, 3u);
  EXPECT_EQ(list->incarnation, "f00d");
  EXPECT_EQ(list->last_common_op, 17u);
  EXPECT_EQ(list->lanes, 2u);
  EXPECT_EQ(list->chunk_bytes, 65536u);
  EXPECT_EQ(list->eager_bytes, 1024u);
  EXPECT_EQ(list->lossy_min_bytes, 4096u);
  EXPECT_EQ(list->max_ops, 16u);
  EXPECT_EQ(list->cut, 1u) << "where nothing is said of it";
  EXPECT_EQ(list->op_timeout_ms, 1000u);
  EXPECT_EQ(list->seed, 5u);
  EXPECT_TRUE(list->verify);
  ASSERT_EQ(list->nodes.size(), 2u);
  EXPECT_EQ(list->nodes[0].ranks, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(list->nodes[0].nonces[1], std::string(31, 'a') + "2");
  EXPECT_EQ(list->nodes[1].endpoint, (net::Endpoint{"fe80::1", 7001}));
  EXPECT_EQ(list->find(kSecond), &list->nodes[1]);
  EXPECT_EQ(list->find({1, 1}), nullptr);
}

TEST(MemberList, ANodeOrARankIsThereOnce) {
  json body = list_of_two();
  body["nodes"][1]["id"] = node_text(kFirst);
  expect_malformed(body, "a node is there twice");
  body = list_of_two();
  body["nodes"][1]["ranks"] = json::array({2u});
  expect_malformed(body, "a rank is there twice");
  body = list_of_two();
  body["nodes"][0] = node(kFirst, "host1:7000", {0, 0});
  expect_malformed(body, "a rank is there twice");
  body = list_of_two();
  body["size"] = 4;
  expect_malformed(body, "a rank is missing");
}

// Else one node would have several names.
TEST(MemberList, AnIdHasOneForm) {
  for (const char* id :
       {"0000000000000ABC0000000000000001", "0x0000000000abc00000000000000001",
        "0000000000000abc000000000000001", " 000000000000abc0000000000000001", ""}) {
    json body = list_of_two();
    body["nodes"][0]["id"] = id;
    expect_malformed(body, "no id");
  }
}

TEST(MemberList, AddressesCanBeConnectedTo) {
  for (const char* address : {"host1", "host1:0", "host1:70000", "host1:7000x", ":7000", "[]:7000",
                              "fe80::1:7000", "a b:7000"}) {
    json body = list_of_two();
    body["nodes"][0]["address"] = address;
    expect_malformed(body, "no address");
  }
  EXPECT_FALSE(parse_address(std::string(400, 'a') + ":1").has_value());
}

TEST(MemberList, NothingIsMoreThanAGroupMayHave) {
  json body = list_of_two();
  std::vector<std::uint32_t> ranks(collective::kMaxLocalRanks + 1);
  for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
  body["size"] = ranks.size() + 1;
  body["nodes"] = json::array({node(kFirst, "host1:7000", ranks)});
  expect_malformed(body, "1 to 64 ranks");
  body = list_of_two();
  body["nodes"] = json::array();
  expect_malformed(body, "1 to 64 nodes");
  body["size"] = collective::kMaxNodes + 1;
  for (std::uint32_t i = 0; i <= collective::kMaxNodes; ++i) {
    body["nodes"].push_back(node({i, i}, "host1:7000", {i}));
  }
  expect_malformed(body, "1 to 64 nodes");
  for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{{"size", 0},
                                                                            {"cut", 0},
                                                                            {"cut", -1},
                                                                            {"eager_form", 0},
                                                                            {"rooted_form", 0},
                                                                            {"size", 1025},
                                                                            {"size", -1},
                                                                            {"epoch", 0},
                                                                            {"epoch", 1LL << 40},
                                                                            {"lanes", 0},
                                                                            {"lanes", -3},
                                                                            {"max_ops", 0},
                                                                            {"max_ops", "many"}}) {
    body = list_of_two();
    body[key] = value;
    expect_malformed(body, "");
  }
}

TEST(MemberList, NonsenseIsNoList) {
  expect_malformed(json(), "no object");
  expect_malformed(json::array(), "no object");
  expect_malformed(json::object(), "size");
  for (const json& nodes : {json(), json(3), json::array({3}), json::object()}) {
    json body = list_of_two();
    body["nodes"] = nodes;
    expect_malformed(body, "node");
  }
  for (const char* key : {"ranks", "nonces"}) {
    for (const json& value : {json(), json(3), json::array(), json::array({-1, "x"}),
                              json::array({1.5, 2.5}), json::array({1})}) {
      json body = list_of_two();
      body["nodes"][0][key] = value;
      expect_malformed(body, "");
    }
  }
}

}  // namespace
}  // namespace tern::daemon
