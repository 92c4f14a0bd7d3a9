#include "bench/library_node.h"

#include <dlfcn.h>

#include <stdexcept>

#include "bench/group_id_file.h"

namespace tern::bench {
namespace {

constexpr std::int64_t kLibraryTimeoutMs = 60'000;

}  // namespace

// It stays loaded: its threads and their last words end with the process.
class LibraryNode::Library {
 public:
  // Its names are its own, beside those of the library that this program is linked with.
  explicit Library(const std::string& path)
      : path_(path), handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) {
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
    find(connect, "tern_connect");
    find(disconnect, "tern_disconnect");
    find(alloc, "tern_alloc");
    find(mint, "tern_group_mint");
    find(join, "tern_group_join");
    find(declare, "tern_tensor_declare");
    find(all_reduce, "tern_all_reduce");
    find(wait, "tern_wait");
    find(error_detail, "tern_error_detail");
  }

  void expect(tern_status status) const {
    if (status != TERN_OK) throw std::runtime_error(path_ + ": " + error_detail());
  }

  decltype(&tern_connect) connect = nullptr;
  decltype(&tern_disconnect) disconnect = nullptr;
  decltype(&tern_alloc) alloc = nullptr;
  decltype(&tern_group_mint) mint = nullptr;
  decltype(&tern_group_join) join = nullptr;
  decltype(&tern_tensor_declare) declare = nullptr;
  decltype(&tern_all_reduce) all_reduce = nullptr;
  decltype(&tern_wait) wait = nullptr;
  decltype(&tern_error_detail) error_detail = nullptr;

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(path_ + " has no " + name);
  }

  std::string path_;
  void* handle_;
};

class LibraryNode::Measured final : public Contestant {
 public:
  Measured(const LibraryNode& node, const std::string& recipe, std::size_t count)
      : node_(node), name_("tern " + recipe), values_(node.memory_.first(count)) {
    const std::string tensor = recipe + "/" + std::to_string(count);
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = tensor.c_str();
    options.count = count;
    options.role = TERN_GRADIENT;
    options.recipe = recipe.c_str();
    node_.library_->expect(node_.library_->declare(node_.group_, &options, &op_.tensor));
    op_.input = values_.data();
    op_.output = values_.data();
  }

  const std::string& name() const override { return name_; }
  std::optional<double> tolerance() const override {
    return name_ == "tern raw" ? std::optional(1e-5) : std::nullopt;
  }
  std::span<float> values() override { return values_; }

  void all_reduce() override {
    tern_ticket ticket = 0;
    node_.library_->expect(node_.library_->all_reduce(node_.group_, &op_, &ticket));
    node_.library_->expect(node_.library_->wait(node_.client_, ticket, kLibraryTimeoutMs));
  }

 private:
  const LibraryNode& node_;
  std::string name_;
  std::span<float> values_;
  tern_op op_ = TERN_OP_INIT;
};

LibraryNode::LibraryNode(const std::string& library, const TernNode::Options& options)
    : library_(std::make_unique<Library>(library)) {
  tern_connect_options connection = TERN_CONNECT_OPTIONS_INIT;
  connection.socket_path = options.socket.c_str();
  connection.job = options.job.c_str();
  connection.arena_bytes = options.max_bytes + (std::uint64_t{1} << 20);
  library_->expect(library_->connect(&connection, &client_));
  tern_group_id id = {};
  if (options.rank == 0) {
    library_->expect(library_->mint(client_, &id));
    publish_group_id(options.group_id_file, id);
  } else {
    id = await_group_id(options.group_id_file);
  }
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  join.rank = options.rank;
  join.size = options.size;
  join.verify = 0;  // as in TernNode
  join.op_timeout_ms = kLibraryTimeoutMs;
  library_->expect(library_->join(client_, &id, &join, &group_));
  void* memory = nullptr;
  library_->expect(library_->alloc(client_, options.max_bytes, &memory));
  memory_ = {static_cast<float*>(memory), options.max_bytes / sizeof(float)};
}

LibraryNode::~LibraryNode() { library_->disconnect(client_); }

std::unique_ptr<Contestant> LibraryNode::contestant(const std::string& recipe, std::size_t count) {
  return std::make_unique<Measured>(*this, recipe, count);
}

}  // namespace tern::bench
