// SPDX-License-Identifier: Apache-2.0
// Here and not in the .cu files, since nvcc reads headers three times: those to register operations
// took a fifth of its time, those of at::empty two fifths (the .cu files say tensor.new_empty).
#include "ballast/kernels/operations_cuda.h"

#include <torch/library.h>

namespace ballast::kernels {

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("activate", activate_cuda);
  library.impl("activate_backward", activate_backward_cuda);
  library.impl("adam_", adam_cuda_);
  library.impl("mask_and_add_rows_", mask_and_add_rows_cuda_);
  library.impl("softmax_cross_entropy_", softmax_cross_entropy_cuda_);
  library.impl("leave_out", leave_out_cuda);
  library.impl("embed", embed_cuda);
  library.impl("add_rows_at_", add_rows_at_cuda_);
  library.impl("gradient_scale", gradient_scale_cuda);
  library.impl("norm_rows", norm_rows_cuda);
  library.impl("norm_rows_backward", norm_rows_backward_cuda);
  library.impl("muon_momentum_", muon_momentum_cuda_);
  library.impl("muon_move_", muon_move_cuda_);
  library.impl("turn_heads", turn_heads_cuda);
  library.impl("turn_heads_back", turn_heads_back_cuda);
  library.impl("average_weights_", average_weights_cuda_);
}

}  // namespace ballast::kernels
