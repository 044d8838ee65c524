// SPDX-License-Identifier: Apache-2.0
// Here and not in the .cu files, since nvcc reads headers three times: those to register operations
// took a fifth of its time, those of at::empty two fifths (the .cu files say tensor.new_empty).
#include "ballast/experts/operations_cuda.h"

#include <torch/library.h>

namespace ballast::experts {

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("balanced_slots", balanced_slots_cuda);
  library.impl("chosen_weights", chosen_weights_cuda);
  library.impl("chosen_weights_backward", chosen_weights_backward_cuda);
  library.impl("expert_norm_backward", expert_norm_backward_cuda);
  library.impl("expert_normalize", expert_normalize_cuda);
  library.impl("expert_gate", expert_gate_cuda);
  library.impl("expert_gate_backward", expert_gate_backward_cuda);
  library.impl("expert_ends", expert_ends_cuda);
  library.impl("expert_padded_slots", expert_padded_slots_cuda);
  library.impl("expert_bias_relu_", expert_bias_relu_cuda_);
  library.impl("expert_take_back_relu_", expert_take_back_relu_cuda_);
  library.impl("expert_add_", expert_add_cuda_);
  library.impl("count_choices", count_choices_cuda);
  library.impl("block_slots", block_slots_cuda);
  library.impl("in_two_parts", in_two_parts_cuda);
  library.impl("add_both_", add_both_cuda_);
  library.impl("gate_choices", gate_choices_cuda);
  library.impl("gate_balance", gate_balance_cuda);
  library.impl("routing_scores", routing_scores_cuda);
  library.impl("add_seen_assignment", add_seen_assignment_cuda);
  library.impl("add_seen_gates", add_seen_gates_cuda);
  library.impl("draw_shuffle", draw_shuffle_cuda);
  library.impl("gather_rows", gather_rows_cuda);
  library.impl("sum_rows", sum_rows_cuda);
  library.impl("mix_rows", mix_rows_cuda);
  library.impl("mix_rows_backward", mix_rows_backward_cuda);
}

}  // namespace ballast::experts
