// The daemon dies while a stream waits for it.

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace daemon_lost_test {

TEST(CudaDaemonLost, TheStreamGoesOnAndTheTicketSaysWhy) {
  e2e::Cluster cluster(2, daemon_options());
  ASSERT_TRUE(cluster.running());
  const auto gpu = make_gpu();
  Node node(cluster[0], "job"), other(cluster[1], "job");
  Node::join({&node, &other});
  node.declare("3lc", kLarge, true);
  GpuNode on_gpu(*gpu, node, kLarge);
  on_gpu.release_status = TERN_ERR_DAEMON_LOST;
  const std::vector<float> before(kLarge, 7.0f);
  on_gpu.put_output(before);
  tern_ticket ticket = 0;
  ASSERT_EQ(on_gpu.all_reduce(gaussian(kLarge, 1), ticket), TERN_OK);
  gpu->run_all();
  const gpu::Stream stream = gpu->program_stream();
  EXPECT_EQ(gpu->driver().api().query_stream(stream), gpu::kNotReady);
  cluster[0].process().kill();
  EXPECT_EQ(on_gpu.finish(ticket), TERN_ERR_DAEMON_LOST);
  EXPECT_TRUE(on_gpu.stream_is_free());
  EXPECT_EQ(bits_of(on_gpu.seen()), bits_of(before));
  // So do those that come later.
  ASSERT_EQ(on_gpu.all_reduce(gaussian(kLarge, 1), ticket), TERN_OK);
  EXPECT_EQ(on_gpu.finish(ticket), TERN_ERR_DAEMON_LOST);
  EXPECT_TRUE(on_gpu.stream_is_free());
}

}  // namespace daemon_lost_test
}  // namespace tern::cuda
