// Tern for C++20: handles that end themselves, spans, and one exception type, over the C interface
// of tern.h. Header only; link libtern.
//
//   tern::Client client;
//   tern::Group group = client.join(client.mint(), rank, size);
//   std::span<float> gradient = client.allocate<float>(count);
//   tern::Tensor tensor = group.declare<float>("layer1.weight", count, TERN_GRADIENT);
//   group.all_reduce(tensor, gradient).wait();
//
// Every handle keeps alive the handles that it needs, so handles may be destroyed in any order. A
// group is left when its last Group, Tensor and Ticket are gone. The client disconnects when the
// last handle is gone.
//
// An operation on spans throws TERN_ERR_INVALID_ARGUMENT where it would read or write past the end
// of one. An operation on a tern_op goes by the pointers there, as in C.
#ifndef TERN_TERN_HPP
#define TERN_TERN_HPP

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "handles.hpp"

namespace tern {

// Operations that are submitted together, any number of times: tern_submit_batch says what holds
// for them. Their memory must stay valid while a submission is under way, and what their tern_op
// points to, as counts, until the last submission.
class Batch {
 public:
  Batch& add(tern_op_kind kind, const tern_op& op) {
    ops_.push_back({kind, op, true, std::nullopt});
    return *this;
  }
  Batch& add_barrier() {
    ops_.push_back({TERN_OP_BARRIER, TERN_OP_INIT, false, std::nullopt});
    return *this;
  }
  // In place.
  template <typename T>
  Batch& add_all_reduce(std::span<T> values, tern_reduction reduction = TERN_SUM) {
    tern_op op = TERN_OP_INIT;
    op.dtype = dtype_of<T>();
    op.output = values.data();
    op.count = values.size();
    op.reduction = reduction;
    return add(TERN_OP_ALL_REDUCE, op);
  }
  template <typename T>
  Batch& add_all_reduce(const Tensor& tensor, std::span<T> values,
                        tern_reduction reduction = TERN_SUM) {
    tensor.require_operands(values);
    add_all_reduce(values, reduction);
    ops_.back().op.tensor = tensor.get();
    ops_.back().tensor = tensor;
    return *this;
  }
  std::size_t size() const noexcept { return ops_.size(); }

 private:
  friend class Group;
  std::vector<tern_batch_op> list() const {
    std::vector<tern_batch_op> list;
    for (const Entry& entry : ops_) {
      list.push_back({entry.kind, 0, entry.has_op ? &entry.op : nullptr});
    }
    return list;
  }
  struct Entry {
    tern_op_kind kind;
    tern_op op;
    bool has_op;
    std::optional<Tensor> tensor;  // kept alive
  };
  std::vector<Entry> ops_;
};

class Group {
 public:
  explicit Group(detail::GroupHandle owner) noexcept : owner_(std::move(owner)) {}

  template <typename T>
  Tensor declare(const std::string& name, std::uint64_t count, tern_role role = TERN_EXACT,
                 const std::string& recipe = {}) {
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = name.c_str();
    options.count = count;
    options.dtype = dtype_of<T>();
    options.role = role;
    options.recipe = recipe.empty() ? nullptr : recipe.c_str();
    return declare(options);
  }
  Tensor declare(const tern_tensor_options& options) {
    tern_tensor* tensor = nullptr;
    throw_if_failed(tern_tensor_declare(get(), &options, &tensor));
    return Tensor(std::make_shared<detail::TensorOwner>(owner_, tensor, options));
  }

  PushPull declare(const tern_push_pull_options& options) {
    tern_push_pull* push_pull = nullptr;
    throw_if_failed(tern_push_pull_declare(get(), &options, &push_pull));
    const auto owner = std::make_shared<detail::PushPullOwner>(owner_, push_pull, options);
    std::uint64_t begin = 0;
    throw_if_failed(tern_push_pull_get_shard(push_pull, info().rank, &begin, &owner->own_count));
    return PushPull(owner);
  }

  // In place, on memory that stays valid until the ticket ends.
  template <typename T>
  Ticket all_reduce(const Tensor& tensor, std::span<T> values,
                    tern_reduction reduction = TERN_SUM) {
    tensor.require_operands(values);
    tern_op op = op_on(values);
    op.tensor = tensor.get();
    op.reduction = reduction;
    return all_reduce(op);
  }
  template <typename T>
  Ticket all_reduce(std::span<T> values, tern_reduction reduction = TERN_SUM) {
    tern_op op = op_on(values);
    op.reduction = reduction;
    return all_reduce(op);
  }
  Ticket all_reduce(const tern_op& op) { return submit(tern_all_reduce, op); }

  template <typename T>
  Ticket broadcast(std::span<T> values, std::int32_t root) {
    tern_op op = op_on(values);
    op.root = root;
    return broadcast(op);
  }
  Ticket broadcast(const tern_op& op) { return submit(tern_broadcast, op); }

  // Ranks that are not the root give an empty output.
  template <typename T>
  Ticket reduce(std::span<const T> input, std::span<T> output, std::int32_t root,
                tern_reduction reduction = TERN_SUM) {
    if (info().rank == root) detail::require_room("output", output.size(), input.size());
    tern_op op = op_of(input.data(), output.data(), input.size());
    op.root = root;
    op.reduction = reduction;
    return reduce(op);
  }
  Ticket reduce(const tern_op& op) { return submit(tern_reduce, op); }

  // ---- Ranks have shares: `counts` has the elements of each, and is empty where they are equal.

  // Every rank's output is its share of the reduction of all inputs.
  template <typename T>
  Ticket reduce_scatter(std::span<const T> input, std::span<T> output,
                        std::span<const std::uint64_t> counts = {},
                        tern_reduction reduction = TERN_SUM) {
    require_all_of("input", input.size(), counts);
    detail::require_room("output", output.size(), share_of(input.size(), counts));
    tern_op op = op_of(input.data(), output.data(), input.size(), counts);
    op.reduction = reduction;
    return reduce_scatter(op);
  }
  Ticket reduce_scatter(const tern_op& op) { return submit(tern_reduce_scatter, op); }

  // Every rank's output is all inputs, one after the other.
  template <typename T>
  Ticket all_gather(std::span<const T> input, std::span<T> output,
                    std::span<const std::uint64_t> counts = {}) {
    detail::require_room("input", input.size(), share_of(output.size(), counts));
    require_all_of("output", output.size(), counts);
    return all_gather(op_of(input.data(), output.data(), output.size(), counts));
  }
  Ticket all_gather(const tern_op& op) { return submit(tern_all_gather, op); }

  // The same for the root; the others give an empty output.
  template <typename T>
  Ticket gather(std::span<const T> input, std::span<T> output, std::int32_t root,
                std::span<const std::uint64_t> counts = {}) {
    const std::uint64_t all = all_of(input.size(), counts);
    detail::require_room("input", input.size(), share_of(all, counts));
    if (info().rank == root) detail::require_room("output", output.size(), all);
    tern_op op = op_of(input.data(), output.data(), all, counts);
    op.root = root;
    return gather(op);
  }
  Ticket gather(const tern_op& op) { return submit(tern_gather, op); }

  // Every rank's output is its share of the root's input; the others give an empty input.
  template <typename T>
  Ticket scatter(std::span<const T> input, std::span<T> output, std::int32_t root,
                 std::span<const std::uint64_t> counts = {}) {
    const std::uint64_t all = all_of(output.size(), counts);
    detail::require_room("output", output.size(), share_of(all, counts));
    if (info().rank == root) detail::require_room("input", input.size(), all);
    tern_op op = op_of(input.data(), output.data(), all, counts);
    op.root = root;
    return scatter(op);
  }
  Ticket scatter(const tern_op& op) { return submit(tern_scatter, op); }

  // Every rank's output is what each rank has for it. Counts: elements for each rank, and from each;
  // both empty where all are alike.
  template <typename T>
  Ticket all_to_all(std::span<const T> input, std::span<T> output,
                    std::span<const std::uint64_t> counts = {},
                    std::span<const std::uint64_t> receive_counts = {}) {
    if (counts.empty()) {
      detail::require_room("output", output.size(), input.size());
    } else {
      require_one_each("counts", counts, info());
      require_one_each("receive_counts", receive_counts, info());
      detail::require_room("input", input.size(), sum_of(counts));
      detail::require_room("output", output.size(), sum_of(receive_counts));
    }
    tern_op op = op_of(input.data(), output.data(), counts.empty() ? input.size() : 0, counts);
    op.receive_counts = receive_counts.empty() ? nullptr : receive_counts.data();
    return all_to_all(op);
  }
  Ticket all_to_all(const tern_op& op) { return submit(tern_all_to_all, op); }

  // To one rank, which may be this one; see tern_send.
  template <typename T>
  Ticket send(std::span<const T> values, std::int32_t peer, std::uint32_t tag = 0) {
    tern_op op = op_of<T>(values.data(), nullptr, values.size());
    op.peer = peer;
    op.tag = tag;
    return send(op);
  }
  Ticket send(const tern_op& op) { return submit(tern_send, op); }

  // From one rank or TERN_ANY_SOURCE, at most as many elements as there is room for. `received`, if
  // it is given, is filled at the end of the ticket and stays valid until then.
  template <typename T>
  Ticket recv(std::span<T> room, std::int32_t peer, std::uint32_t tag = 0,
              tern_received* received = nullptr) {
    tern_op op = op_of<T>(nullptr, room.data(), room.size());
    op.peer = peer;
    op.tag = tag;
    op.received = received;
    return recv(op);
  }
  Ticket recv(const tern_op& op) { return submit(tern_recv, op); }

  Ticket barrier() {
    tern_ticket ticket = 0;
    throw_if_failed(tern_barrier(get(), &ticket));
    return Ticket(owner_, ticket);
  }

  // The child of this rank, or none for a negative colour (tern_group_split).
  std::optional<Group> split(std::int32_t color, std::int32_t key = 0,
                             const tern_split_options& options = TERN_SPLIT_OPTIONS_INIT) {
    tern_group* child = nullptr;
    throw_if_failed(tern_group_split(get(), color, key, &options, &child));
    if (child == nullptr) return std::nullopt;
    return Group(std::make_shared<detail::GroupOwner>(owner_->client, child));
  }

  // All or none; one ticket for all of them (tern_submit_batch).
  Ticket submit(const Batch& batch);

  // Of tensors that are declared from now on and name none; empty: none (tern_group_set_level).
  void set_level(const std::string& level) {
    throw_if_failed(tern_group_set_level(get(), level.empty() ? nullptr : level.c_str()));
  }

  tern_group_info info() const {
    tern_group_info info = TERN_GROUP_INFO_INIT;
    throw_if_failed(tern_group_get_info(get(), &info));
    return info;
  }
  tern_group* get() const noexcept { return owner_->group; }

 private:
  using Submit = tern_status (*)(tern_group*, const tern_op*, tern_ticket*);
  Ticket submit(Submit function, const tern_op& op) {
    tern_ticket ticket = 0;
    throw_if_failed(function(get(), &op, &ticket));
    return Ticket(owner_, ticket);
  }

  template <typename T>
  static tern_op op_on(std::span<T> values) noexcept {
    return op_of<T>(values.data(), values.data(), values.size());
  }
  template <typename T>
  static tern_op op_of(const T* input, T* output, std::uint64_t count,
                       std::span<const std::uint64_t> counts = {}) noexcept {
    tern_op op = TERN_OP_INIT;
    op.dtype = dtype_of<T>();
    op.input = input;
    op.output = output;
    op.count = count;
    op.counts = counts.empty() ? nullptr : counts.data();
    return op;
  }
  static void require_one_each(const char* what, std::span<const std::uint64_t> counts,
                               const tern_group_info& group) {
    if (counts.size() == static_cast<std::size_t>(group.size)) return;
    detail::refuse(std::string(what) + " has " + std::to_string(counts.size()) +
                   " elements, and the group " + std::to_string(group.size) +
                   " ranks: give one for each rank");
  }
  // With counts: the library would take 0 elements in all for as many as the counts add up to.
  static void require_all_of(const char* what, std::uint64_t has,
                             std::span<const std::uint64_t> counts) {
    if (!counts.empty()) detail::require_room(what, has, sum_of(counts));
  }
  static std::uint64_t sum_of(std::span<const std::uint64_t> counts) noexcept {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }
  // Of so many elements in all.
  std::uint64_t share_of(std::uint64_t all, std::span<const std::uint64_t> counts) const {
    const tern_group_info group = info();
    if (counts.empty()) return all / static_cast<std::uint64_t>(group.size);
    require_one_each("counts", counts, group);
    return counts[static_cast<std::size_t>(group.rank)];
  }
  // Elements in all, where this rank's share has so many.
  std::uint64_t all_of(std::uint64_t share, std::span<const std::uint64_t> counts) const {
    return counts.empty() ? share * static_cast<std::uint64_t>(info().size) : sum_of(counts);
  }

  detail::GroupHandle owner_;
};

inline Ticket Group::submit(const Batch& batch) {
  const std::vector<tern_batch_op> list = batch.list();
  tern_batch passed = TERN_BATCH_INIT;
  passed.ops = list.data();
  passed.count = list.size();
  tern_ticket ticket = 0;
  throw_if_failed(tern_submit_batch(get(), &passed, &ticket));
  return Ticket(owner_, ticket);
}

class Client {
 public:
  Client() : Client(tern_connect_options TERN_CONNECT_OPTIONS_INIT) {}
  explicit Client(const tern_connect_options& options) {
    tern_client* client = nullptr;
    throw_if_failed(tern_connect(&options, &client));
    handle_.reset(client, [](tern_client* c) { (void)tern_disconnect(c); });
  }

  // Memory of the arena, not initialised; lives until deallocate or the end of the client.
  template <typename T>
  std::span<T> allocate(std::size_t count) {
    static_assert(std::is_trivial_v<T>);
    if (count > SIZE_MAX / sizeof(T)) throw Failure(TERN_ERR_OUT_OF_MEMORY);
    void* memory = nullptr;
    throw_if_failed(tern_alloc(get(), count * sizeof(T), &memory));
    return {static_cast<T*>(memory), count};
  }
  // A region of its own beside the arena; lives as long.
  template <typename T>
  std::span<T> allocate_region(std::size_t count) {
    static_assert(std::is_trivial_v<T>);
    if (count > SIZE_MAX / sizeof(T)) throw Failure(TERN_ERR_OUT_OF_MEMORY);
    void* memory = nullptr;
    throw_if_failed(tern_region_create(get(), count * sizeof(T), &memory));
    return {static_cast<T*>(memory), count};
  }
  // Of either.
  template <typename T>
  void deallocate(std::span<T> memory) {
    throw_if_failed(tern_free(get(), memory.data()));
  }

  tern_group_id mint() {
    tern_group_id id = {};
    throw_if_failed(tern_group_mint(get(), &id));
    return id;
  }

  Group join(const tern_group_id& id, std::int32_t rank, std::int32_t size) {
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    return join(id, options);
  }
  Group join(const tern_group_id& id, const tern_join_options& options) {
    tern_group* group = nullptr;
    throw_if_failed(tern_group_join(get(), &id, &options, &group));
    return Group(std::make_shared<detail::GroupOwner>(handle_, group));
  }

  // See tern_fd.
  int pollable_fd() {
    int fd = -1;
    throw_if_failed(tern_fd(get(), &fd));
    return fd;
  }
  tern_client* get() const noexcept { return handle_.get(); }

 private:
  detail::ClientHandle handle_;
};

}  // namespace tern

#endif  // TERN_TERN_HPP
