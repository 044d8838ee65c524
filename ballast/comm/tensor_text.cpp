// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/tensor_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ballast::comm {
namespace {

const char* type_text(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kByte:
      return "uint8";
    default:
      return c10::toString(type);
  }
}

}  // namespace

std::string shape_text(const at::Tensor& x) {
  return x.defined()
             ? fmt::format("{} [{}]", type_text(x.scalar_type()), fmt::join(x.sizes(), ", "))
             : "undefined";
}

std::string tensor_text(const at::Tensor& x) {
  return !x.defined() || x.is_cpu() ? shape_text(x) : shape_text(x) + " on " + x.device().str();
}

}  // namespace ballast::comm
