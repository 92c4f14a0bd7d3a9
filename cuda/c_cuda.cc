// The functions of tern/cuda.h.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "cuda/last_error.h"
#include "cuda/session.h"
#include "cuda/sized_struct.h"

using namespace tern::cuda;
using tern::Errc;
using tern::Error;

struct tern_cuda {
  std::unique_ptr<Session> session;
  pid_t process;
};

struct tern_cuda_tensor {
  tern_cuda* owner;
  std::unique_ptr<BoundTensor> tensor;
};

namespace {

constexpr std::uint32_t kMostOperations = 512;  // as many as libtern has for a client
constexpr std::uint64_t kAlignment = 16;        // of what kernels read and write at a time

tern_status refuse(const char* problem) { return report(Error{Errc::invalid_argument, problem}); }

// Runs the work of a function on a handle, unless a child of fork() has called it.
template <typename Work>
tern_status guarded(const tern_cuda& cuda, Work work) noexcept {
  if (cuda.process != ::getpid()) {
    return report(Error{Errc::forked, "CUDA does not survive fork(): open it in the child"});
  }
  try {
    return work(*cuda.session);
  } catch (const std::bad_alloc&) {
    return report(Error{Errc::out_of_memory, "the process has no memory left"});
  }
}

bool overlap(std::uint64_t a, std::uint64_t b, std::uint64_t bytes) {
  return a != b && std::max(a, b) - std::min(a, b) < bytes;
}

const char* objection_to(const tern_cuda_op& op, std::uint64_t count) {
  if (op.input == 0 || op.output == 0) return "input or output is no address of the device";
  if (op.input % kAlignment != 0 || op.output % kAlignment != 0) {
    return "input and output must be multiples of 16, because kernels read 16 bytes at a time: "
           "copy "
           "the elements to memory of their own";
  }
  if (op.no_wait > 1 || op.reserved != 0) return "no_wait is neither 0 nor 1, or reserved not 0";
  return overlap(op.input, op.output, count * sizeof(float)) ? "input and output overlap in part"
                                                             : nullptr;
}

}  // namespace

const char* tern_cuda_error_detail(void) { return error_detail(); }

tern_status tern_cuda_open(tern_client* client, const tern_cuda_options* options,
                           tern_cuda** cuda) {
  if (client == nullptr || cuda == nullptr) return refuse("client or cuda is NULL");
  *cuda = nullptr;
  tern_cuda_options known = TERN_CUDA_OPTIONS_INIT;
  if (options != nullptr) {
    if (auto read = tern::read_sized(options, "options", known); !read) return report(read);
  }
  if (known.operations > kMostOperations) return refuse("operations is more than 512");
  Session::Options wanted;
  if (known.driver != nullptr) wanted.driver = known.driver;
  if (known.operations != 0) wanted.operations = known.operations;
  wanted.image = known.image;
  try {
    auto session = Session::open(client, wanted);
    if (!session) return report(session.error());
    *cuda = new tern_cuda{std::move(*session), ::getpid()};
    return TERN_OK;
  } catch (const std::bad_alloc&) {
    return report(Error{Errc::out_of_memory, "the process has no memory left"});
  }
}

tern_status tern_cuda_close(tern_cuda* cuda) {
  if (cuda == nullptr) return TERN_OK;
  return guarded(*cuda, [&](Session& session) -> tern_status {
    if (session.has_tensors()) {
      return report(Error{Errc::would_block, "tensors are bound: release them first"});
    }
    delete cuda;
    return TERN_OK;
  });
}

tern_status tern_cuda_get_stats(tern_cuda* cuda, tern_cuda_stats* stats) {
  if (cuda == nullptr || stats == nullptr) return refuse("cuda or stats is NULL");
  return guarded(*cuda, [&](Session& session) -> tern_status {
    if (auto sized = tern::check_struct_size(stats, "stats"); !sized) return report(sized);
    tern::write_sized(session.stats(), stats);
    return TERN_OK;
  });
}

tern_status tern_cuda_tensor_bind(tern_cuda* cuda, tern_group* group, tern_tensor* tensor,
                                  tern_cuda_tensor** bound) {
  if (cuda == nullptr || group == nullptr || tensor == nullptr || bound == nullptr) {
    return refuse("cuda, group, tensor or bound is NULL");
  }
  *bound = nullptr;
  return guarded(*cuda, [&](Session& session) -> tern_status {
    auto handle = std::make_unique<tern_cuda_tensor>();
    auto made = session.bind(group, tensor);
    if (!made) return report(made.error());
    handle->owner = cuda;
    handle->tensor = std::move(*made);
    *bound = handle.release();
    return TERN_OK;
  });
}

tern_status tern_cuda_tensor_release(tern_cuda_tensor* tensor) {
  if (tensor == nullptr) return TERN_OK;
  return guarded(*tensor->owner, [&](Session& session) -> tern_status {
    const auto released = session.release(tensor->tensor);
    if (tensor->tensor == nullptr) delete tensor;
    return released ? TERN_OK : report(released);
  });
}

tern_status tern_cuda_tensor_export_state(tern_cuda_tensor* tensor, void* part, uint64_t capacity,
                                          uint64_t* bytes) {
  if (tensor == nullptr || part == nullptr || bytes == nullptr) {
    return refuse("tensor, part or bytes is NULL");
  }
  return guarded(*tensor->owner, [&](Session& session) -> tern_status {
    const auto state = session.export_state(*tensor->tensor);
    if (!state) return report(state.error());
    if (state->bytes().size() > capacity) {
      return refuse("the part has no room: tern_tensor_state_bytes tells what is needed");
    }
    std::memcpy(part, state->bytes().data(), state->bytes().size());
    *bytes = state->bytes().size();
    return TERN_OK;
  });
}

tern_status tern_cuda_tensor_import_state(tern_cuda_tensor* tensor, const void* const* parts,
                                          const uint64_t* part_bytes, uint32_t count) {
  if (tensor == nullptr) return refuse("tensor is NULL");
  return guarded(*tensor->owner, [&](Session& session) -> tern_status {
    return report(session.import_state(*tensor->tensor, {parts, part_bytes, count}));
  });
}

tern_status tern_cuda_all_reduce(tern_cuda_tensor* tensor, const tern_cuda_op* op, void* stream,
                                 tern_ticket* ticket) {
  if (tensor == nullptr || op == nullptr || ticket == nullptr) {
    return refuse("tensor, op or ticket is NULL");
  }
  return guarded(*tensor->owner, [&](Session& session) -> tern_status {
    tern_cuda_op known = TERN_CUDA_OP_INIT;
    if (auto read = tern::read_sized(op, "op", known); !read) return report(read);
    if (const char* problem = objection_to(known, tensor->tensor->count())) return refuse(problem);
    const float state_scale = known.state_scale == 0.0f ? 1.0f : known.state_scale;
    const auto begun = session.all_reduce(*tensor->tensor,
                                          {known.input, known.output, known.reduction, state_scale,
                                           known.priority, known.no_wait == 0},
                                          static_cast<tern::gpu::Stream>(stream));
    if (!begun) return report(begun.error());
    *ticket = *begun;
    return TERN_OK;
  });
}

tern_status tern_cuda_wait(tern_cuda* cuda, tern_ticket ticket, int64_t timeout_ms) {
  if (cuda == nullptr) return refuse("cuda is NULL");
  return guarded(*cuda, [&](Session& session) -> tern_status {
    const Error said = session.wait(ticket, timeout_ms);
    return said.code == Errc::ok ? TERN_OK : report(said);
  });
}

tern_status tern_cuda_cancel(tern_cuda* cuda, tern_ticket ticket) {
  if (cuda == nullptr) return refuse("cuda is NULL");
  return guarded(*cuda, [&](Session& session) -> tern_status {
    const auto asked = session.cancel(ticket);
    return asked ? TERN_OK : report(asked);
  });
}
