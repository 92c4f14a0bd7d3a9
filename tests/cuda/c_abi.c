/* The header is C, and its structs have the sizes of the first version. */
#include "tern/cuda.h"

unsigned tern_cuda_sizes_of_c(void) {
  tern_cuda_options options = TERN_CUDA_OPTIONS_INIT;
  tern_cuda_op op = TERN_CUDA_OP_INIT;
  tern_cuda_stats stats = TERN_CUDA_STATS_INIT;
  return options.struct_size + op.struct_size + stats.struct_size;
}
