#include "seed_plan.h"

#include <algorithm>
#include <limits>

#include "codec/recipe.h"
#include "reference.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kChunkBytes = 16 << 10;

const std::vector<DType> kTypes = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                   DType::i64, DType::i32, DType::u8};
const std::vector<Reduction> kReductions = {Reduction::sum, Reduction::average, Reduction::min,
                                            Reduction::max, Reduction::product};
const std::vector<std::string> kRecipes = {"raw",
                                           "bf16",
                                           "ef(bf16)",
                                           "3lc:s=1",
                                           "3lc:s=1.75",
                                           "none(3lc:s=1.5)",
                                           "ef(3lc:s=1,scale=256)",
                                           "3lc:s=1,scale=tensor",
                                           "3lc:s=1.25,layout=paper",
                                           "ef(int:bits=4)",
                                           "ef(topk:p=0.05+int:bits=8)",
                                           "ef(lloyd:bits=3+huffman)",
                                           "diana(qsgd:levels=4)",
                                           "ef21(topk:p=0.1)",
                                           "none(blocksparse:p=0.25,block=64)",
                                           "lossless",
                                           "xordelta"};

std::uint64_t random_count(Random& random, DType dtype) {
  const std::uint64_t chunk = kChunkBytes / dtype_bytes(dtype);
  switch (random.below(6)) {
    case 0:
      return random.between(1, 8);
    case 1:
      return random.between(1, 512 / dtype_bytes(dtype));
    case 2:
      return chunk;
    case 3:
      return chunk + random.between(1, chunk - 1);
    default:
      return random.between(1, 5 * chunk);
  }
}

DaemonShape random_daemon(Random& random, std::size_t nodes) {
  DaemonShape shape;
  shape.lanes = static_cast<std::uint32_t>(random.between(1, 3));
  shape.chunk_bytes = random.one_in(4) ? 2 * kChunkBytes : kChunkBytes;
  shape.eager_bytes = random.one_in(3) ? 0 : 1 << random.between(6, 12);
  shape.lossy_min_bytes = random.one_in(2) ? 0 : 2048;
  const bool tight = random.one_in(3);
  const auto others = static_cast<std::uint32_t>(std::max<std::size_t>(nodes - 1, 1));
  shape.receive_slabs = tight ? others : others * static_cast<std::uint32_t>(random.between(1, 8));
  shape.send_slabs = tight ? 1 : static_cast<std::uint32_t>(random.between(1, 8));
  shape.result_slabs = tight ? 1 : static_cast<std::uint32_t>(random.between(1, 8));
  shape.active_chunks = static_cast<std::uint32_t>(random.between(1, 16));
  return shape;
}

TensorSpec random_tensor(Random& random, std::size_t index) {
  TensorSpec spec;
  spec.name = "layer" + std::to_string(index) + ".weight";
  spec.role = static_cast<Role>(random.below(4));
  if (random.one_in(2)) spec.role = Role::gradient;
  spec.dtype =
      role_may_be_lossy(spec.role)
          ? random.pick(std::vector<DType>{DType::f32, DType::f32, DType::f16, DType::bf16})
          : random.pick(kTypes);
  spec.count = random_count(random, spec.dtype);
  spec.exempt = random.one_in(8);
  spec.recipe = random.pick(kRecipes);
  return spec;
}

// The residual of such a tensor is of one kind of operation, and the plan has two.
bool loses_broadcasts(const TensorSpec& spec) {
  const auto recipe = codec::parse_recipe(spec.recipe);
  return spec.role == Role::delta && !spec.recipe.empty() && recipe && codec::is_lossy(*recipe);
}

std::vector<PlannedOp> random_ops(Random& random, const Plan& plan, std::size_t count) {
  std::vector<PlannedOp> ops;
  std::vector<std::uint64_t> uses(plan.tensors.size(), 0);
  std::uint64_t anonymous = 0;
  for (std::size_t i = 0; i < count; ++i) {
    PlannedOp op;
    op.tensor = static_cast<int>(random.below(plan.tensors.size() + 2)) - 2;
    OpRequest& request = op.request;
    if (op.tensor >= 0) {
      const TensorSpec& spec = plan.tensors[static_cast<std::size_t>(op.tensor)];
      request.dtype = spec.dtype;
      request.count = spec.count;
      op.sequence = uses[static_cast<std::size_t>(op.tensor)]++;
      if (random.one_in(6)) request.state_scale = 0.5f;
    } else {
      op.tensor = -1;
      request.dtype = random.pick(kTypes);
      request.count = random.one_in(12) ? 0 : random_count(random, request.dtype);
      op.sequence = anonymous++;
      if (random.one_in(8)) {
        request.kind = shm::OpKind::barrier;
        request.count = 0;
      }
    }
    request.reduction = random.one_in(2) ? Reduction::sum : random.pick(kReductions);
    if (!dtype_is_float(request.dtype) && request.reduction == Reduction::average) {
      request.reduction = Reduction::max;
    }
    if (request.kind == shm::OpKind::all_reduce && random.one_in(5)) {
      request.kind = shm::OpKind::broadcast;
      request.root = static_cast<std::uint32_t>(random.below(plan.daemon_of_rank.size()));
      request.reduction = Reduction::sum;
      if (op.tensor >= 0 && loses_broadcasts(plan.tensors[static_cast<std::size_t>(op.tensor)])) {
        request.recipe = "raw";
      }
    } else if (dtype_is_float(request.dtype) && random.one_in(5)) {
      request.prescale = 0.25f;
    }
    request.priority = static_cast<std::int32_t>(random.below(3));
    op.in_place = random.one_in(2);
    op.values = static_cast<int>(random.below(8));
    ops.push_back(op);
  }
  return ops;
}

}  // namespace

const char* trouble_name(Trouble trouble) {
  switch (trouble) {
    case Trouble::none:
      return "no trouble";
    case Trouble::slow:
      return "slow links";
    case Trouble::transient:
      return "lossy links";
    case Trouble::corrupt:
      return "wrong bits";
    case Trouble::partition:
      return "a partition";
    case Trouble::daemon_death:
      return "a daemon's death";
    case Trouble::client_death:
      return "a client's death";
  }
  return "?";
}

Plan make_plan(std::uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 77);
  Plan plan;
  if (seed % 2 == 0) plan.cut = shm::CutVersion::even;
  if (seed % 4 >= 2) plan.eager_form = collective::EagerForm::blocks;
  // The recorded seeds are older than these.
  if (seed > 800 && seed % 8 >= 5) plan.eager_form = collective::EagerForm::chunks;
  if (seed > 800 && seed % 3 == 0) plan.cut = shm::CutVersion::fine;
  if (seed > 800 && seed % 5 >= 2) plan.rooted_form = collective::RootedForm::relayed;
  const std::size_t nodes = random.between(1, random.one_in(32) ? 16 : random.one_in(4) ? 6 : 4);
  for (std::size_t i = 0; i < nodes; ++i) {
    plan.daemons.push_back(random_daemon(random, nodes));
    plan.daemons.back().adjust = [cut = plan.cut, form = plan.eager_form,
                                  rooted = plan.rooted_form](daemon::ConductorSettings& settings) {
      settings.ops.rooted_form = static_cast<std::uint32_t>(rooted);
      settings.ops.cut = static_cast<std::uint32_t>(cut);
      settings.ops.eager_form = static_cast<std::uint32_t>(form);
    };
    for (std::uint64_t rank = random.between(1, 3); rank > 0; --rank)
      plan.daemon_of_rank.push_back(i);
  }
  // The recorded seeds have few ops that are both compressed and so small.
  if (seed > 800 && plan.eager_form >= collective::EagerForm::blocks) {
    for (DaemonShape& shape : plan.daemons) {
      shape.eager_bytes = shape.chunk_bytes;
      shape.lossy_min_bytes = 0;
    }
  }
  random.shuffle(plan.daemon_of_rank);
  for (std::uint64_t i = random.between(1, 4); i > 0; --i) {
    plan.tensors.push_back(random_tensor(random, plan.tensors.size()));
  }
  plan.verify = random.one_in(4);
  plan.trouble = static_cast<Trouble>(random.below(7));
  if (nodes == 1 && plan.trouble == Trouble::partition) plan.trouble = Trouble::none;
  plan.ops = random_ops(random, plan, random.between(6, 16));
  plan.ops_after = random_ops(random, plan, 4);
  if (plan.trouble == Trouble::none || plan.trouble == Trouble::slow) {
    PlannedOp& victim = plan.ops[random.below(plan.ops.size())];
    const bool can_differ = victim.tensor < 0 && victim.request.kind == shm::OpKind::all_reduce &&
                            plan.daemon_of_rank.size() > 1;
    if (random.one_in(3)) {
      victim.mismatched = can_differ;
      victim.cancelled = !can_differ;
    }
  }
  net::FaultSettings& faults = plan.faults;
  if (plan.trouble != Trouble::none) {
    faults.delay = static_cast<std::uint32_t>(random.below(500'000));
    faults.delay_max_ns = random.between(10'000, 20'000'000);
  }
  const auto rate = static_cast<std::uint32_t>(random.between(500, 10'000));
  if (plan.trouble == Trouble::transient) {
    faults.drop = faults.duplicate = faults.reorder = faults.truncate = faults.cut = rate;
  }
  if (plan.trouble == Trouble::corrupt) faults.corrupt_header = faults.corrupt_payload = rate;
  return plan;
}

std::vector<std::byte> make_input(const PlannedOp& op, std::uint64_t seed, std::uint32_t rank,
                                  std::size_t op_index) {
  Random random(seed * 1'000'003 + op_index * 1009 + rank);
  std::vector<float> values(op.request.count);
  const bool floats = dtype_is_float(op.request.dtype);
  for (float& value : values) {
    const auto draw = static_cast<float>(random.below(2001)) - 1000.0f;
    value = floats ? draw * (op.values % 2 == 0 ? 1e-3f : 0.37f)
                   : static_cast<float>(random.below(120));
  }
  if (floats && op.values == 7 && !values.empty()) {
    values[random.below(values.size())] = rank % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                        : std::numeric_limits<float>::infinity();
  }
  if (op.values == 6) std::fill(values.begin(), values.end(), 0.0f);
  return bytes_of(op.request.dtype, values);
}

}  // namespace tern::sim
