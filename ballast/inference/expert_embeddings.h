// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/loading/loaded_model.h"

namespace ballast::inference {

// What a layer's router holds of each of its experts: [E, D], a view of the model's own.
at::Tensor expert_embeddings(const loading::LoadedModel& loaded, const experts::ExpertLayer& layer);

struct NearExpert {
  int64_t expert = 0;
  double cosine = 0;  // of the angle between the two embeddings
};
// At most n others, the nearest first; embeddings [E, D].
std::vector<NearExpert> nearest_experts(const at::Tensor& embeddings, int64_t expert, size_t n);

}  // namespace ballast::inference
