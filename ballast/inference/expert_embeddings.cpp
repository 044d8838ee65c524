// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/expert_embeddings.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <string>

namespace ballast::inference {

at::Tensor expert_embeddings(const loading::LoadedModel& loaded,
                             const experts::ExpertLayer& layer) {
  const bool balanced = loaded.config.experts.traits().balanced;
  const std::string name = layer.name() + (balanced ? ".expert_embeddings" : ".gate.weight");
  const parameters::ParameterTable& table = loaded.table;
  return table.view(table.working(), table.segment(name));
}

std::vector<NearExpert> nearest_experts(const at::Tensor& embeddings, int64_t expert, size_t n) {
  constexpr double kLeast = 1e-20;  // an embedding of zeros is near to none
  const at::Tensor all = embeddings.to(at::kCPU, at::kDouble);
  const at::Tensor lengths = at::linalg_vector_norm(all, 2, at::IntArrayRef{1}).clamp_min(kLeast);
  const at::Tensor cosines =
      (all.matmul(all[expert]) / lengths / lengths[expert]).contiguous();  // [E]
  std::vector<NearExpert> others;
  for (int64_t other = 0; other < cosines.numel(); ++other)
    if (other != expert) others.push_back({other, cosines.const_data_ptr<double>()[other]});
  std::ranges::stable_sort(others, std::greater(), &NearExpert::cosine);
  if (others.size() > n) others.resize(n);
  return others;
}

}  // namespace ballast::inference
