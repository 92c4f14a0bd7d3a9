// The tuner between real daemons: what it shows, what it may not do, and that its choices can be
// replayed bit for bit.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/choice_directories.h"
#include "tests/e2e/rank_process.h"
#include "tests/rounds.h"

namespace tern::e2e {
namespace {

class Tuner : public ::testing::Test {
 protected:
  // Some chunks for each lane of each node.
  static std::string count() { return tests::abridged() ? "140001" : "200001"; }

  explicit Tuner(const std::string& state_ttl = "0s")
      : cluster(2, {"--chunk-bytes", "64KiB", "--lanes", "2", "--state-ttl", state_ttl},
                logs.options()) {}

  void begin(const std::string& what, const std::vector<int>& ranks_per_node = {2, 1}) {
    ASSERT_TRUE(cluster.running());
    ranks = Ranks(cluster, ranks_per_node);
    ASSERT_EQ(ranks.join("g", "seed=5"), "");
    for (const Reply& reply :
         ranks.ask_all("declare group=g name=t role=gradient count=" + elements + " " + what)) {
      ASSERT_TRUE(reply.ok()) << what << ": " << reply;
    }
  }

  // One average of the inputs of that draw; all ranks must have the same bits. Rank 0's answer.
  Reply step(const std::string& draw, const std::string& more = "") {
    std::string command = "submit op=x group=g tensor=t data=real reduction=average draw=" + draw;
    command += more;
    for (const Reply& reply : ranks.ask_all(command)) {
      EXPECT_TRUE(reply.ok()) << reply;
    }
    const auto replies = ranks.ask_all("wait op=x tolerance=1e30 mean=t");
    EXPECT_EQ(disagreement(replies), "");
    return replies[0];
  }

  std::vector<std::string> steps(int count, int first = 0) {
    std::vector<std::string> sums;
    sums.reserve(static_cast<std::size_t>(count));
    for (int draw = first; draw < first + count; ++draw) {
      sums.push_back(step(std::to_string(draw)).field("crc"));
    }
    return sums;
  }

  ChoiceDirectories logs;
  std::string elements = count();
  Cluster cluster;
  Ranks ranks;
};

TEST_F(Tuner, IsTheDefaultOfGradientsAndSaysWhy) {
  begin("");
  for (int i = 0; i < 30; ++i) step(std::to_string(i));
  const auto rows = cluster[0].ask("tuner");
  ASSERT_TRUE(rows.is_array() && rows.size() == 1) << rows;
  EXPECT_EQ(rows[0].value("name", ""), "t");
  EXPECT_EQ(rows[0].value("level", ""), "balanced");
  EXPECT_GE(rows[0].value("ops", 0), 1);
  EXPECT_NE(rows[0].value("reason", ""), "");
  const Reply stats = ranks[0].ask("stats group=g name=t");
  EXPECT_EQ(stats.field("recipe").rfind("auto", 0), 0u) << stats;
  // Its samples have reached every candidate.
  const std::string explained = cluster[0].ternctl({"explain", "t"});
  for (const char* candidate : {"raw", "lossless", "bf16", "int:bits=8", "int:bits=4", "3lc:s=1"}) {
    EXPECT_NE(explained.find(candidate), std::string::npos) << explained;
  }
  EXPECT_GE(cluster[0].counter("samples") + cluster[1].counter("samples"), 1);
  int exit_code = 0;
  const std::string unknown = cluster[0].ternctl({"explain", "nobody"}, &exit_code);
  EXPECT_EQ(exit_code, 1);
  EXPECT_NE(unknown.find("ternctl tuner"), std::string::npos) << unknown;
}

// On a fast link nothing is gained by loss, and what is chosen has its reason at present.
TEST_F(Tuner, OnAFastLinkItStaysWithWhatLosesNothingAndSaysWhy) {
  begin("recipe=auto level=lossless");
  const auto row = [this] { return cluster[0].ask("tuner")[0]; };
  const auto steady = [&](const std::string& recipe) {
    return recipe == "raw" || recipe == "lossless" || recipe == "lossless -> raw" ||
           recipe == "raw -> lossless";
  };
  steps(60);
  EXPECT_TRUE(steady(row().value("recipe", ""))) << row();
  const int before = row().value("switches", 0);
  steps(120);
  EXPECT_TRUE(eventually([&] {
    if (row().value("reason", "").find("nothing is known yet") == std::string::npos) return true;
    steps(20);
    return false;
  }));
  const auto last = row();
  EXPECT_TRUE(steady(last.value("recipe", ""))) << last;
  EXPECT_NE(last.value("reason", "").find("an operation"), std::string::npos) << last;
  // A machine that others use may look like another one now and then.
  EXPECT_LE(last.value("switches", 0) - before, 6) << last;
}

TEST_F(Tuner, LosslessMeansTheBitsOfRaw) {
  begin("recipe=raw");
  const auto raw = steps(12);
  ranks = Ranks();
  begin("recipe=auto level=lossless");
  EXPECT_EQ(steps(12), raw);
}

TEST_F(Tuner, APolicyHoldsForTensorsThatSayNothing) {
  int exit_code = 1;
  EXPECT_NE(cluster[0].ternctl({"policy", "t lossless"}, &exit_code).find("t lossless"),
            std::string::npos);
  EXPECT_EQ(exit_code, 0);
  cluster[1].ternctl({"policy", "t lossless"});
  begin("");
  steps(3);
  EXPECT_EQ(cluster[0].ask("tuner")[0].value("level", ""), "lossless");
  // At once, for tensors that are there already.
  cluster[0].ternctl({"policy", "* aggressive"});
  EXPECT_EQ(cluster[0].ask("tuner")[0].value("level", ""), "aggressive");
  // What makes no sense changes nothing.
  const std::string refused = cluster[0].ternctl({"policy", "t bold"}, &exit_code);
  EXPECT_EQ(exit_code, 1);
  EXPECT_NE(refused.find("balanced"), std::string::npos) << refused;
  EXPECT_EQ(cluster[0].ask("policy").value("policy", ""), "* aggressive");
  // A hint of the tensor's own goes before it.
  ranks = Ranks();
  begin("recipe=auto level=loss<=0.001");
  steps(2);
  EXPECT_EQ(cluster[0].ask("tuner")[0].value("allowed_loss", 1.0), 0.001);
}

// `auto` for one op: where the tensor has a tuner, that one; where its recipe is fixed, raw, which
// pays nothing back and leaves the residual as it was.
TEST_F(Tuner, AnOpMayAskForIt) {
  begin("recipe=auto");
  for (int i = 0; i < 30; ++i) step(std::to_string(i), " recipe=auto");
  const auto rows = cluster[0].ask("tuner");
  ASSERT_TRUE(rows.is_array() && rows.size() == 1) << rows;
  EXPECT_GE(rows[0].value("ops", 0), 1);
  ranks = Ranks();
  begin("recipe=raw");
  const std::string exact = step("1").field("crc");
  ranks = Ranks();
  begin("recipe=3lc:s=1");
  EXPECT_NE(step("1").field("crc"), exact);
  EXPECT_EQ(step("1", " recipe=auto").field("crc"), exact);
  EXPECT_EQ(cluster[0].ask("tuner").size(), 0u);
}

// A delta may lose what a gradient may, and what it loses comes later.
TEST_F(Tuner, HasDeltasToo) {
  ASSERT_TRUE(cluster.running());
  ranks = Ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join("g", "seed=5"), "");
  for (const Reply& reply : ranks.ask_all("declare group=g name=t role=delta count=" + count())) {
    ASSERT_TRUE(reply.ok()) << reply;
  }
  for (int i = 0; i < 30; ++i) step(std::to_string(i));
  const auto rows = cluster[0].ask("tuner");
  ASSERT_TRUE(rows.is_array() && rows.size() == 1) << rows;
  EXPECT_GE(rows[0].value("ops", 0), 1);
}

TEST_F(Tuner, ItsLogGivesTheSameBitsAgain) {
  begin("recipe=auto");
  const auto first = steps(40);
  const std::string log = logs.only_log();
  ranks = Ranks();
  begin("recipe=replay:" + log);
  EXPECT_EQ(steps(40), first);
}

// What fits in an announcement is sent as the leading node said with the operation before.
TEST_F(Tuner, ALogOfASmallTensorGivesTheSameBitsAgain) {
  elements = "4000";
  begin("recipe=auto level=aggressive");
  const auto reason = [this](std::size_t node) {
    return cluster[node].ask("tuner")[0].value("reason", "");
  };
  const auto follows = [&](std::size_t node) {
    return reason(node).find("the leading node") != std::string::npos;
  };
  // The other node follows once its own samples are there, which other processes may delay.
  auto first = steps(60);
  EXPECT_TRUE(eventually([&] {
    if (follows(1)) return true;
    const auto more = steps(20, static_cast<int>(first.size()));
    first.insert(first.end(), more.begin(), more.end());
    return false;
  })) << reason(1);
  // Who leads goes on choosing, though it sends as it has said before.
  EXPECT_FALSE(follows(0)) << reason(0);
  const std::string log = logs.only_log();
  ranks = Ranks();
  begin("recipe=replay:" + log);
  EXPECT_EQ(steps(static_cast<int>(first.size())), first);
  // Raw at first, then by blocks in announcements.
  ranks = Ranks();
  begin("recipe=raw");
  const auto exact = steps(4);
  std::string records = "eager_form 2\n";
  for (const std::string lane : {"0", "1"}) {
    records.append("op t 0 ").append(lane).append(" 0 raw raw\n");
    records.append("op t 2 ").append(lane).append(" 0 3lc:s=1 3lc:s=1\n");
  }
  logs.write("mixed", records);
  std::vector<std::string> mixed;
  for (int run = 0; run < 2; ++run) {
    ranks = Ranks();
    begin("recipe=replay:mixed");
    const auto sums = steps(4);
    EXPECT_EQ(sums[1], exact[1]);
    EXPECT_NE(sums[2], exact[2]);
    if (run == 0) mixed = sums;
    EXPECT_EQ(sums, mixed);
  }
  // A log of a daemon that did not know of blocks in announcements.
  logs.write("old", "op t 0 0 0 3lc:s=1 3lc:s=1\n");
  const auto replies =
      ranks.ask_all("declare group=g name=u role=gradient count=4000 recipe=replay:old");
  EXPECT_NE(replies[0].text.find("the setting eager_form of a node decides"), std::string::npos)
      << replies[0];
}

// An operation waits for the slowest of its nodes: they send it alike, as the first of them
// chooses.
TEST_F(Tuner, NodesSendAsTheFirstOfThemChooses) {
  cluster[0].ternctl({"policy", "t lossless"});
  begin("");
  const auto last_choice = [this](int node) {
    std::ifstream log(logs.of(node) + "/" + logs.only_log() + "-" + std::to_string(node) + ".log");
    std::string last;
    for (std::string line; std::getline(log, line);) {
      std::istringstream words(line);
      std::string kind, tensor, use, lane, probes, choice;
      words >> kind >> tensor >> use >> lane >> probes;
      if (kind == "op" && lane == "0" && std::getline(words, choice)) last = choice;
    }
    return last;
  };
  // At its own place a line has results, at the other's contributions.
  const auto alike = [&] {
    std::istringstream first(last_choice(0)), second(last_choice(1));
    std::string results, contributions, other_contributions, other_results;
    first >> results >> contributions;
    second >> other_contributions >> other_results;
    return results == other_results && contributions == other_contributions;
  };
  // Until its own samples are there, the other node may send nothing but raw.
  steps(100);
  EXPECT_TRUE(eventually([&] {
    steps(10);
    return alike();
  })) << last_choice(0)
      << ";" << last_choice(1);
  for (const std::string lossy : {"ef", "3lc"}) {
    EXPECT_EQ(last_choice(1).find(lossy), std::string::npos) << last_choice(1);
  }
  EXPECT_EQ(cluster[1].ask("tuner")[0].value("level", ""), "balanced");
}

// Recipes that differ by leg, node and chunk, probes, and a change in the middle of an operation.
TEST_F(Tuner, ReplaysWhateverALogSays) {
  std::string records;
  for (const std::string lane : {"0", "1"}) {
    records.append("op t 0 ").append(lane).append(" 0 raw raw\n");
    records.append("op t 2 ").append(lane).append(" 1 ef(int:bits=4) 3lc:s=1\n");
    records.append("op t 4 ").append(lane).append(" 0 lossless ef(bf16)\n");
    records.append("op t 6 ").append(lane).append(" 0 raw raw\n");
    for (int chunk = 0; chunk < 12; ++chunk) {
      records.append("chunk t 3 ").append(lane).append(" 1 ");
      records.append(std::to_string(chunk)).append(" ef(int:bits=8)\n");
    }
  }
  logs.write("mixed", records);
  begin("recipe=raw");
  const auto raw = steps(9);
  ranks = Ranks();
  begin("recipe=replay:mixed");
  const auto first = steps(9);
  EXPECT_EQ(std::vector(first.begin(), first.begin() + 2),
            std::vector(raw.begin(), raw.begin() + 2));
  EXPECT_NE(first[2], raw[2]);
  // The first raw operation pays back what was left out; after it nothing is owed.
  EXPECT_NE(first[6], raw[6]);
  EXPECT_EQ(std::vector(first.begin() + 7, first.end()), std::vector(raw.begin() + 7, raw.end()));
  ranks = Ranks();
  begin("recipe=replay:mixed");
  EXPECT_EQ(steps(9), first);
}

TEST_F(Tuner, ALossIsPaidBackWhenARecipeWithoutLossFollows) {
  std::string records;
  for (const std::string lane : {"0", "1"}) {
    records.append("op t 0 ").append(lane).append(" 0 3lc:s=1 3lc:s=1\n");
    records.append("op t 5 ").append(lane).append(" 0 raw raw\n");
  }
  logs.write("paid", records);
  begin("recipe=replay:paid");
  for (int i = 0; i < 4; ++i) step("1");
  EXPECT_GT(std::strtod(step("1").field("of_mean").c_str(), nullptr), 1e-3);
  const Reply last = step("1");
  EXPECT_LT(std::strtod(last.field("of_mean").c_str(), nullptr), 1e-5) << last;
}

class TunerAcrossDeclarations : public Tuner {
 protected:
  TunerAcrossDeclarations() : Tuner("10min") {}
};

TEST_F(TunerAcrossDeclarations, AnAdoptedResidualIsPaidBackToo) {
  std::string lossy;
  std::string calm;
  for (const std::string lane : {"0", "1"}) {
    lossy.append("op t 0 ").append(lane).append(" 0 3lc:s=1 3lc:s=1\n");
    calm.append("op t 0 ").append(lane).append(" 0 raw raw\n");
  }
  logs.write("lossy", lossy);
  logs.write("calm", calm);
  begin("recipe=raw");
  const std::string truth = step("1").field("crc");
  ranks = Ranks();
  begin("recipe=replay:lossy");
  step("1");
  ranks = Ranks();
  begin("recipe=replay:calm");
  EXPECT_NE(step("1").field("crc"), truth) << "what was owed is part of it";
  EXPECT_EQ(step("1").field("crc"), truth);
}

TEST_F(Tuner, AnswersALogThatDoesNotFit) {
  logs.write("alien", "op t 0 7 0 raw raw\n");
  logs.write("broken", "op t zero 0 0 raw raw\n");
  logs.write("strange", "op t 0 0 0 raw ef(onebit)\n");
  ASSERT_TRUE(cluster.running());
  ranks = Ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join("g", ""), "");
  const auto refusal = [this](const std::string& log) {
    const Reply reply =
        ranks[0].ask("declare group=g name=t role=gradient count=20000 recipe=replay:" + log);
    EXPECT_FALSE(reply.ok()) << log;
    return reply.text;
  };
  EXPECT_NE(refusal("nothing").find("choice_directory"), std::string::npos);
  EXPECT_NE(refusal("../x").find("name of a log"), std::string::npos);
  EXPECT_NE(refusal("alien").find("other lanes or nodes"), std::string::npos);
  EXPECT_NE(refusal("broken").find("line 3"), std::string::npos);
  EXPECT_NE(refusal("strange").find("none of the candidates"), std::string::npos);
}

}  // namespace
}  // namespace tern::e2e
