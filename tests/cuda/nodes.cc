#include "tests/cuda/nodes.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <random>
#include <thread>

namespace tern::cuda {
namespace {

// They end before the program's statics do.
class Daemons final : public testing::Environment {
 public:
  void TearDown() override { cluster.reset(); }

  std::unique_ptr<e2e::Cluster> cluster;
};

Daemons& environment() {
  static auto* const kMade =
      static_cast<Daemons*>(testing::AddGlobalTestEnvironment(new Daemons()));
  return *kMade;
}
const Daemons& registered = environment();

}  // namespace

std::vector<std::string> daemon_options() {
  return {"--chunk-bytes", "16KiB", "--eager-bytes", "8KiB", "--lossy-min-bytes", "1KiB",
          "--lanes",       "2",     "--state-ttl",   "60s"};
}

std::vector<float> gaussian(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

e2e::Cluster& daemons() {
  auto& cluster = environment().cluster;
  if (cluster == nullptr) cluster = std::make_unique<e2e::Cluster>(2, daemon_options());
  EXPECT_TRUE(cluster->running());
  return *cluster;
}

std::string new_job() {
  static std::atomic<int> number{0};
  return "cuda" + std::to_string(++number);
}

Node::Node(const e2e::DaemonProcess& daemon, const std::string& job) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  const std::string socket = daemon.socket();
  options.socket_path = socket.c_str();
  options.job = job.c_str();
  options.arena_bytes = 16 << 20;
  EXPECT_EQ(tern_connect(&options, &client_), TERN_OK) << tern_error_detail();
}

void Node::join(const std::vector<Node*>& nodes, bool verify) {
  tern_group_id id;
  ASSERT_EQ(tern_group_mint(nodes[0]->client_, &id), TERN_OK) << tern_error_detail();
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      tern_join_options options = TERN_JOIN_OPTIONS_INIT;
      options.rank = static_cast<std::int32_t>(rank);
      options.size = static_cast<std::int32_t>(nodes.size());
      options.verify = verify ? 1 : 0;
      EXPECT_EQ(tern_group_join(nodes[rank]->client_, &id, &options, &nodes[rank]->group_), TERN_OK)
          << tern_error_detail();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

namespace {

tern_tensor_options gradient(const char* recipe, std::uint64_t count, bool client_blocks) {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = "weights.grad";
  options.count = count;
  options.role = TERN_GRADIENT;
  options.recipe = recipe;
  options.client_blocks = client_blocks ? 1 : 0;
  return options;
}

}  // namespace

void Node::declare(const char* recipe, std::uint64_t count, bool client_blocks, tern_dtype dtype) {
  tern_tensor_options options = gradient(recipe, count, client_blocks);
  options.dtype = dtype;
  declare(options);
}

void Node::declare_weights(const char* recipe, std::uint64_t count, bool client_blocks) {
  tern_tensor_options options = gradient(recipe, count, client_blocks);
  options.role = TERN_WEIGHTS;
  declare(options);
}

void Node::declare(const tern_tensor_options& options) {
  ASSERT_EQ(tern_tensor_declare(group_, &options, &tensor_), TERN_OK) << tern_error_detail();
}

tern_ticket Node::all_reduce(std::vector<float>& values, tern_reduction reduction,
                             float state_scale, const char* recipe) {
  tern_op op = TERN_OP_INIT;
  op.tensor = tensor_;
  op.input = values.data();
  op.output = values.data();
  op.reduction = reduction;
  op.state_scale = state_scale;
  op.recipe = recipe;
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(group_, &op, &ticket), TERN_OK) << tern_error_detail();
  return ticket;
}

void Node::wait(tern_ticket ticket) {
  EXPECT_EQ(tern_wait(client_, ticket, 60000), TERN_OK) << tern_error_detail();
}

GpuNode::GpuNode(TestGpu& gpu, Node& node, std::uint64_t count, bool bound)
    : gpu_(gpu), node_(node), count_(count) {
  const tern_cuda_options options = gpu.options();
  EXPECT_EQ(tern_cuda_open(node.client(), &options, &cuda_), TERN_OK) << tern_cuda_error_detail();
  const std::size_t bytes = count * sizeof(float);
  for (auto* const array : {&input_, &output_}) {
    auto made = gpu::DeviceArray::allocate(gpu.driver(), bytes, gpu.program_stream());
    EXPECT_TRUE(made.has_value());
    *array = std::move(*made);
  }
  for (auto* const pages : {&given_, &seen_}) {
    auto made = gpu::PinnedPages::create(gpu.driver(), bytes);
    EXPECT_TRUE(made.has_value());
    *pages = std::move(*made);
  }
  gpu_.run(gpu.program_stream());
  if (!bound) return;
  EXPECT_EQ(bind(), TERN_OK) << tern_cuda_error_detail();
}

GpuNode::~GpuNode() {
  EXPECT_EQ(tern_cuda_tensor_release(tensor_), release_status) << tern_cuda_error_detail();
  EXPECT_EQ(tern_cuda_close(cuda_), TERN_OK) << tern_cuda_error_detail();
}

tern_status GpuNode::bind() {
  return tern_cuda_tensor_bind(cuda_, node_.group(), node_.tensor(), &tensor_);
}

tern_cuda_op GpuNode::op() const {
  tern_cuda_op op = TERN_CUDA_OP_INIT;
  op.input = input_->address();
  op.output = output_->address();
  op.reduction = reduction;
  op.state_scale = state_scale;
  return op;
}

tern_cuda_stats GpuNode::stats() const {
  tern_cuda_stats stats = TERN_CUDA_STATS_INIT;
  EXPECT_EQ(tern_cuda_get_stats(cuda_, &stats), TERN_OK);
  return stats;
}

tern_status GpuNode::all_reduce(const std::vector<float>& input, tern_ticket& ticket,
                                const tern_cuda_op* op) {
  const tern_cuda_op usual = this->op();
  const gpu::Stream stream = gpu_.program_stream();
  std::memcpy(given_->data(), input.data(), count_ * sizeof(float));
  EXPECT_TRUE(gpu::copy_up(gpu_.driver(), input_->address(),
                           std::span(given_->data(), count_ * sizeof(float)), stream));
  const tern_status status =
      tern_cuda_all_reduce(tensor_, op != nullptr ? op : &usual, stream, &ticket);
  EXPECT_TRUE(gpu::copy_down(gpu_.driver(), std::span(seen_->data(), count_ * sizeof(float)),
                             output_->address(), stream));
  return status;
}

tern_status GpuNode::finish(tern_ticket ticket) {
  for (int i = 0; i < 60000; ++i) {
    gpu_.run_all();
    const tern_status status = tern_cuda_wait(cuda_, ticket, 1);
    if (status != TERN_ERR_TIMEOUT) return status;
  }
  return TERN_ERR_TIMEOUT;
}

std::vector<float> GpuNode::seen() const {
  std::vector<float> values(count_);
  std::memcpy(values.data(), seen_->data(), count_ * sizeof(float));
  return values;
}

std::vector<float> GpuNode::output() {
  EXPECT_TRUE(gpu::copy_down(gpu_.driver(), std::span(seen_->data(), count_ * sizeof(float)),
                             output_->address(), gpu_.program_stream()));
  EXPECT_TRUE(gpu_.run(gpu_.program_stream()));
  return seen();
}

void GpuNode::put_output(const std::vector<float>& values) {
  EXPECT_TRUE(gpu::copy_up(gpu_.driver(), output_->address(), std::as_bytes(std::span(values)),
                           gpu_.program_stream()));
  EXPECT_TRUE(gpu_.run(gpu_.program_stream()));
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

}  // namespace tern::cuda
