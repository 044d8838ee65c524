// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "ballast/system/error.h"

namespace ballast {
namespace {

Dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Dtype::kF32;
    case at::kDouble:
      return Dtype::kF64;
    case at::kBFloat16:
      return Dtype::kBF16;
    default:
      throw std::logic_error("parameters are fp32, fp64 or bf16");
  }
}

at::ScalarType scalar_type_of(Dtype dtype, const std::string& name) {
  switch (dtype) {
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kF16:
      return at::kHalf;
    default:
      fail("tensor {} has dtype {}; want F32, F64, BF16 or F16", name, dtype_name(dtype));
  }
}

std::string full_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "/" + name;
}

}  // namespace

std::vector<TensorView> segment_views(const ParameterTable& table, const at::Tensor& flat,
                                      const std::string& prefix, at::Tensor& host) {
  host = flat.detach().cpu();  // the tensor itself where it is on the CPU already
  const auto* bytes = static_cast<const std::byte*>(host.const_data_ptr());
  const size_t width = host.element_size();
  std::vector<TensorView> views;
  for (const Segment& segment : table.segments()) {
    views.push_back({full_name(prefix, segment.name),
                     dtype_of(host),
                     segment.shape,
                     {bytes + static_cast<size_t>(segment.offset) * width,
                      static_cast<size_t>(segment.size) * width}});
  }
  return views;
}

void load_segments(const Checkpoint& checkpoint, const ParameterTable& table,
                   const at::Tensor& flat, const std::string& prefix) {
  const at::NoGradGuard no_grad;
  for (const Segment& segment : table.segments()) {
    const std::string name = full_name(prefix, segment.name);
    const TensorView stored = checkpoint.tensor(name);
    if (stored.shape != segment.shape) {
      fail(
          "{}: tensor {} is {}, but the model wants {}: this is a checkpoint of another "
          "configuration",
          checkpoint.path().string(), name, describe(stored.dtype, stored.shape),
          describe(stored.dtype, segment.shape));
    }
    at::Tensor values = at::empty(stored.shape, scalar_type_of(stored.dtype, name));
    std::memcpy(values.mutable_data_ptr(), stored.data.data(),
                stored.data.size());  // the file's bytes may be unaligned
    table.view(flat, segment).copy_(values);
  }
}

}  // namespace ballast
