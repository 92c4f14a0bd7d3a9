// What an operator sees of a program's device: by real daemons, and as ternctl shows it.

#include <fstream>

#include "tests/ctl/trace_schema.h"
#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace operator_test {

using nlohmann::json;
using testing::HasSubstr;

class CudaOperator : public testing::Test {
 protected:
  CudaOperator() {
    Node::join({&node_, &other_});
    node_.declare("3lc", kLarge, true);
    other_.declare("3lc", kLarge, false);
  }

  json client(std::size_t daemon = 0) const {
    for (const json& row : daemons()[daemon].ask("clients")) {
      if (row["job"] == job_) return row;
    }
    return json();
  }
  // What the client has said of its device; null: nothing yet.
  json device() const {
    const json devices = client()["devices"];
    return devices.empty() ? json() : devices[0];
  }
  // Whether that is said, now or soon.
  bool says(const char* field, const json& value) const {
    return e2e::eventually([&] {
      const json row = device();
      return row.is_object() && row[field] == value;
    });
  }
  void run_steps(GpuNode& on_gpu, std::uint64_t count) {
    for (std::uint64_t step = 0; step < count; ++step) {
      auto beside = gaussian(kLarge, step + 10);
      const auto theirs = other_.all_reduce(beside);
      tern_ticket ticket = 0;
      ASSERT_EQ(on_gpu.all_reduce(gaussian(kLarge, step), ticket), TERN_OK);
      ASSERT_EQ(on_gpu.finish(ticket), TERN_OK) << tern_cuda_error_detail();
      other_.wait(theirs);
    }
  }

  FakeGpu gpu_;
  std::string job_ = new_job();
  Node node_{daemons()[0], job_};
  Node other_{daemons()[1], job_};
};

TEST_F(CudaOperator, SeesMemoryTimesAndOperations) {
  {
    GpuNode on_gpu(gpu_, node_, kLarge);
    run_steps(on_gpu, 3);
    ASSERT_TRUE(says("ops", 3)) << client();
    const json row = device();
    const tern_cuda_stats stats = on_gpu.stats();
    EXPECT_EQ(row["device"], 0);
    EXPECT_GT(stats.device_bytes, 0u);
    EXPECT_EQ(row["device_bytes"], stats.device_bytes);
    EXPECT_EQ(row["pinned_bytes"], stats.pinned_bytes);
    EXPECT_EQ(row["pinning_failures"], 0);
    EXPECT_EQ(row["pinning_problem"], "");
    EXPECT_EQ(row["ops_failed"], 0);
    EXPECT_EQ(row["encodes"], 3);
    EXPECT_EQ(row["encode_us"], 500.0) << "by the fake driver's clock";
    EXPECT_EQ(row["last_decode_us"], 500.0);
    EXPECT_GE(daemons()[0].counter("device_bytes"), static_cast<std::int64_t>(stats.device_bytes));
    const std::string shown = daemons()[0].ternctl({"clients"});
    EXPECT_THAT(shown, HasSubstr(" held, "));
    EXPECT_THAT(shown, HasSubstr("3 ops, 0 failed, encode 500 us (last 500 us), decode 500 us"));
    EXPECT_EQ(client(1)["devices"], json::array()) << "it has elements";
  }
  EXPECT_TRUE(says("device_bytes", 0)) << client();
  EXPECT_EQ(device()["pinned_bytes"], 0);
  EXPECT_EQ(device()["ops"], 3) << "what was done stays";
}

TEST_F(CudaOperator, SeesThatMemoryCouldNotBePinnedAndWhatToDo) {
  const std::int64_t before = daemons()[0].counter("clients_not_pinned");
  GpuNode on_gpu(gpu_, node_, kLarge, false);
  gpu_.fake().fail("cuMemHostRegister_v2", gpu::kOutOfMemory, 0);
  ASSERT_EQ(on_gpu.bind(), TERN_ERR_OUT_OF_MEMORY);
  ASSERT_TRUE(says("pinning_failures", 1)) << client();
  EXPECT_THAT(device()["pinning_problem"].get<std::string>(), HasSubstr("cannot pin"));
  EXPECT_EQ(daemons()[0].counter("clients_not_pinned"), before + 1);
  EXPECT_THAT(daemons()[0].ternctl({"clients"}),
              HasSubstr("device 0: memory could not be pinned (failures: 1): cannot pin"));
  const std::string findings = daemons()[0].ternctl({"doctor"});
  EXPECT_THAT(findings, HasSubstr("job " + job_ + ") could not pin memory for its device 0"));
  EXPECT_THAT(findings, HasSubstr("ulimit -l unlimited"));
  EXPECT_TRUE(daemons()[0].logs("could not pin memory for its device 0: cannot pin"));
  // It goes on, and is not counted again.
  ASSERT_EQ(on_gpu.bind(), TERN_OK) << tern_cuda_error_detail();
  run_steps(on_gpu, 1);
  ASSERT_TRUE(says("ops", 1)) << client();
  EXPECT_EQ(daemons()[0].counter("clients_not_pinned"), before + 1);
}

TEST_F(CudaOperator, SeesATrackOfTheDeviceInATrace) {
  GpuNode on_gpu(gpu_, node_, kLarge);
  run_steps(on_gpu, 1);
  ASSERT_TRUE(says("ops", 1)) << client();
  daemons()[0].ternctl({"trace", "start"});
  run_steps(on_gpu, 2);
  ASSERT_TRUE(says("ops", 3)) << client();
  const std::string path = daemons()[0].folder() + "/trace.json";
  daemons()[0].ternctl({"trace", "stop", "--output", path});
  std::ifstream file(path);
  const json trace = json::parse(file, nullptr, false);
  EXPECT_EQ(ctl::trace_fault(trace), "");
  const std::string name = "device 0 of client " + client()["id"].dump() + " (" + job_ + "): ";
  std::vector<json> times, bytes;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == name + "ms") times.push_back(event["args"]);
    if (event["name"] == name + "bytes") bytes.push_back(event["args"]);
  }
  // An encoding and its decoding may be on the two sides of a report.
  json seen = json::object();
  for (const json& time : times) seen.update(time);
  EXPECT_EQ(seen, (json{{"encode", 0.5}, {"decode", 0.5}}));
  ASSERT_FALSE(bytes.empty());
  EXPECT_EQ(bytes.back()["held"], on_gpu.stats().device_bytes);
}

// What failed last is told by who closes at once.
TEST_F(CudaOperator, SeesTheLastWordOfASession) {
  {
    GpuNode on_gpu(gpu_, node_, kLarge, false);
    for (int i = 0; i < 5; ++i) {
      gpu_.fake().fail("cuMemHostRegister_v2", gpu::kOutOfMemory, 0);
      ASSERT_EQ(on_gpu.bind(), TERN_ERR_OUT_OF_MEMORY);
    }
  }
  EXPECT_TRUE(says("pinning_failures", 5)) << client();
}

}  // namespace operator_test
}  // namespace tern::cuda
