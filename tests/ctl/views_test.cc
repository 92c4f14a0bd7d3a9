#include "ctl/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ctl/tuner_views.h"

namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string render(std::string_view verb, std::string_view result) {
  return find_verb(verb)->render(json::parse(result));
}

TEST(Views, GroupsSayWhomTheyWaitFor) {
  EXPECT_EQ(
      render("groups", R"([
              {"uid":"1f2e3d4c","job":"resnet","epoch":2,"state":"running","size":8,"nodes":2,
               "local_ranks":[0,1,2,3],"lanes":1,"ops_completed":12345,"ops_in_flight":2,
               "waiting":[{"tensor":"layer1.weight","op":"all_reduce","ranks":[3,7],"seconds":12},
                          {"tensor":"tag 7","op":"send","ranks":[3],"seconds":2,"tag":7},
                          {"tensor":"tag 8","op":"recv","ranks":[],"seconds":3,"tag":8}],
               "error":""},
              {"uid":"aabbccdd","job":"b","epoch":1,"state":"failed","size":2,"nodes":2,
               "local_ranks":[1],"lanes":1,"ops_completed":0,"ops_in_flight":0,"waiting":[],
               "error":"rank 0 was lost"}])"),
      "GROUP     JOB     EPOCH  STATE    RANKS  NODES  LOCAL RANKS  LANES  IN FLIGHT  OPS DONE\n"
      "1f2e3d4c  resnet      2  running      8      2  0-3              1          2    12,345\n"
      "  all_reduce of layer1.weight: waiting for ranks 3,7 for 12 s\n"
      "  send: waits for rank 3, tag 7, for 2 s\n"
      "  recv: waits for any rank, tag 8, for 3 s\n"
      "aabbccdd  b           1  failed       2      2  1                1          0         0\n"
      "  error: rank 0 was lost\n");
}

TEST(Views, StatusIsOneGlance) {
  const std::string text = render("status", R"({"version":"0.1.0","node_id":"n1","pid":4242,
      "uptime_s":7500,"listen":"127.0.0.1:7700","advertise":"10.0.0.1:7700","lanes":2,"clients":3,
      "groups":1,"peers":4,"transport":"tcp","kernel_target":"avx2","plaintext":true,
      "rss_bytes":1610612736})");
  EXPECT_THAT(text, HasSubstr("ternd 0.1.0 on node n1, pid 4242, up 2 h 5 min\n"));
  EXPECT_THAT(text, HasSubstr("  transport     tcp, not encrypted\n"));
  EXPECT_THAT(text, HasSubstr("  memory        1.5 GiB\n"));
}

TEST(Views, StatusNamesSilentLanesAndSettingsThatNeedARestartIfThereAreAny) {
  const std::string text =
      render("status", R"({"silent_lanes":[1,3],"waiting_settings":["lanes","a\nb"]})");
  EXPECT_THAT(text, HasSubstr("  silent lanes  1, 3\n"));
  EXPECT_THAT(text, HasSubstr("  need restart  lanes, a\\x0ab\n"));
  const std::string well = render("status", R"({"silent_lanes":[],"waiting_settings":[]})");
  EXPECT_THAT(well, Not(HasSubstr("silent")));
  EXPECT_THAT(well, Not(HasSubstr("restart")));
}

TEST(Views, TensorsShowRatiosAndTimes) {
  const std::string text = render("tensors", R"json([{"group":"1f2e3d4c","name":"w","dtype":"f32",
      "count":1000000,"role":"gradient","recipe":"ef(3lc:s=1,scale=4096)",
      "operation":"reduce_scatter","ops":10,
      "bytes_raw":40000000,"bytes_sent":860000,"ratio":46.51,"residual_ratio":0.125,
      "encode_ms":12.5,"queue_ms":0,"wire_ms":1500,"decode_ms":0.02,"wait_ms":70000,
      "raw_fallbacks":0,"state_bytes":4194304,"state_of":"all_gather","resets":1}])json");
  for (const char* const cell :
       {"1,000,000", "ef(3lc:s=1,scale=4096)", "38.1 MiB", "46.5x", "0.125", "12.5 ms", "0 s",
        "1.5 s", "20 us", "1 min 10 s", "4 MiB", "STATE OF", "all_gather", "reduce_scatter"}) {
    EXPECT_THAT(text, HasSubstr(cell));
  }
}

TEST(Views, TensorsSayWhoEncodes) {
  const auto shown = [](const char* by_client) {
    return render("tensors", R"([{"recipe":"bf16")" + std::string(by_client) + "}]");
  };
  EXPECT_NE(shown(R"(,"client_blocks":true)").find("bf16 by client"), std::string::npos);
  for (const char* const by_client : {"", R"(,"client_blocks":false)", R"(,"client_blocks":[])"})
    EXPECT_EQ(shown(by_client).find("by client"), std::string::npos) << by_client;
}

TEST(Views, ClientsShowWhatTheySayOfDevices) {
  const std::string text = render("clients", R"json([{"id":3,"job":"resnet","devices":[
      {"device":0,"device_bytes":1610612736,"pinned_bytes":536870912,"pinning_failures":0,
       "pinning_problem":"","ops":1234,"ops_failed":2,"encode_us":1200,"last_encode_us":1100,
       "decode_us":800,"last_decode_us":90},
      {"device":1,"pinning_failures":2,"pinning_problem":"cannot pin\u001b[2J"}]}])json");
  EXPECT_THAT(text, HasSubstr("  device 0: 1.5 GiB held, 512 MiB pinned, 1,234 ops, 2 failed, "
                              "encode 1.2 ms (last 1.1 ms), decode 800 us (last 90 us)\n"));
  EXPECT_THAT(text, HasSubstr("  device 1: memory could not be pinned (failures: 2): "
                              "cannot pin\\x1b[2J\n"));
  EXPECT_THAT(text, Not(HasSubstr("device 0: memory")));
  EXPECT_THAT(render("clients", R"([{"id":3,"job":"of an older daemon"}])"),
              Not(HasSubstr("device")));
}

TEST(Views, EmptyListsAreSentences) {
  EXPECT_EQ(render("clients", "[]"), "No client is connected.\n");
  EXPECT_EQ(render("peers", "[]"), "No peer is linked.\n");
  EXPECT_EQ(render("groups", "[]"), "No group has a rank on this node.\n");
  EXPECT_EQ(render("tensors", "[]"), "No tensor is declared.\n");
  EXPECT_EQ(render("counters", "{}"), "There are no counters.\n");
}

TEST(Views, AnyShapeIsShownWithoutFailing) {
  for (const Verb& verb : verbs()) {
    for (const char* const result :
         {"null", "5", "\"text\"", "[]", "{}", "[null,5,\"x\",[],{}]", R"({"a":{},"b":1})",
          R"([{"uid":5,"waiting":[null,{}],"local_ranks":"x","error":{}, "job":["\u001b[2J"]}])",
          R"({"version":[],"uptime_s":"x","plaintext":"no"})"}) {
      const std::string text = render(verb.name, result);
      EXPECT_FALSE(text.empty()) << verb.name << " of " << result;
      EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << verb.name << " of " << result;
    }
  }
}

TEST(Views, ExplainSaysWhatAutoDoesNotChooseFor) {
  json tensor = {{"name", "w"}, {"job", "j"}, {"group", "g"}, {"operation", ""}};
  EXPECT_NE(render_explain(json::array({tensor}))
                .find("a broadcast loses nothing unless a recipe is written out"),
            std::string::npos)
      << render_explain(json::array({tensor}));
  tensor["operation"] = "all_gather";
  EXPECT_EQ(render_explain(json::array({tensor})).find("a broadcast loses nothing"),
            std::string::npos);
}

TEST(Views, ExplainSaysWhatClientsTakeToEncode) {
  json tensor = {{"name", "w"}, {"job", "j"}, {"group", "g"}, {"operation", "all_reduce"}};
  tensor["candidates"] = {{{"recipe", "raw"}, {"client_us", 0.0}},
                          {{"recipe", "3lc:s=1"}, {"client_us", 1250.0}}};
  const std::string text = render_explain(json::array({tensor}));
  const std::size_t said = text.find("its client encodes before the operation: 1.25 ms");
  EXPECT_NE(said, std::string::npos) << text;
  EXPECT_GT(said, text.find("3lc:s=1")) << text;
  EXPECT_EQ(text.find("its client encodes", said + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace tern::ctl
