#include "bench/mpi_contestant.h"

#include <mpi.h>

#include <stdexcept>
#include <string>

#include "bench/inputs.h"

namespace tern::bench {
namespace {

void require(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw std::runtime_error(std::string(what) + ": " + text);
}

class MpiRunner final : public CollectiveRunner {
 public:
  MpiRunner(const CollectiveShape& shape, std::span<float> memory)
      : shape_(shape),
        input_(memory.first(shape.input())),
        output_(memory.subspan(shape.input(), shape.output())),
        count_(static_cast<int>(shape.count)),
        share_(static_cast<int>(shape.share())) {
    // In place: the root has its result where its input is.
    if (shape.kind == Collective::broadcast && shape.root()) output_ = input_;
  }

  const std::string& name() const override { return name_; }
  std::span<float> input() override { return input_; }
  std::span<float> output() override { return output_; }

  void run() override { require(call(), "Open MPI"); }

 private:
  int call() {
    MPI_Comm all = MPI_COMM_WORLD;
    float* const in = input_.data();
    float* const out = output_.data();
    switch (shape_.kind) {
      case Collective::all_reduce:
        return MPI_Allreduce(in, out, count_, MPI_FLOAT, MPI_SUM, all);
      case Collective::reduce:
        return MPI_Reduce(in, out, count_, MPI_FLOAT, MPI_SUM, 0, all);
      case Collective::reduce_scatter:
        return MPI_Reduce_scatter_block(in, out, share_, MPI_FLOAT, MPI_SUM, all);
      case Collective::all_gather:
        return MPI_Allgather(in, share_, MPI_FLOAT, out, share_, MPI_FLOAT, all);
      case Collective::broadcast:
        return MPI_Bcast(out, count_, MPI_FLOAT, 0, all);
      case Collective::gather:
        return MPI_Gather(in, share_, MPI_FLOAT, out, share_, MPI_FLOAT, 0, all);
      case Collective::scatter:
        return MPI_Scatter(in, share_, MPI_FLOAT, out, share_, MPI_FLOAT, 0, all);
      case Collective::all_to_all:
        return MPI_Alltoall(in, share_, MPI_FLOAT, out, share_, MPI_FLOAT, all);
      case Collective::ping_pong:
        return ping_pong();
    }
    return MPI_SUCCESS;
  }

  int ping_pong() {
    if (shape_.rank > 1) return MPI_SUCCESS;
    const int peer = shape_.root() ? 1 : 0;
    if (shape_.root()) {
      const int sent = MPI_Send(input_.data(), count_, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
      if (sent != MPI_SUCCESS) return sent;
    }
    const int received =
        MPI_Recv(output_.data(), count_, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (received != MPI_SUCCESS || shape_.root()) return received;
    return MPI_Send(output_.data(), count_, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
  }

  CollectiveShape shape_;
  std::string name_ = "openmpi";
  std::span<float> input_, output_;
  int count_, share_;
};

}  // namespace

struct MpiNode::State {
  FloatArray memory;
};

bool MpiNode::available() { return true; }

MpiNode::MpiNode(const Options& options)
    : state_(new State{FloatArray(options.max_bytes / sizeof(float), 0.0f)}) {
  int threads = 0, rank = 0, size = 0;
  require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &threads), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == options.rank && size == options.size) return;
  MPI_Finalize();
  throw std::runtime_error("mpirun has started rank " + std::to_string(rank) + " of " +
                           std::to_string(size) + ", and this is rank " +
                           std::to_string(options.rank) + " of " + std::to_string(options.size));
}

MpiNode::~MpiNode() { MPI_Finalize(); }

std::unique_ptr<CollectiveRunner> MpiNode::runner(const CollectiveShape& shape) {
  return std::make_unique<MpiRunner>(shape, state_->memory.span());
}

}  // namespace tern::bench
