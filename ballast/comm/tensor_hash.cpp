// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/tensor_hash.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>

#include "ballast/system/checksum.h"

namespace ballast::comm {
namespace {

using at::Tensor;

constexpr int64_t kWordsAtOnce = int64_t{1} << 22;  // 32 MiB, and about three times that beside it
// Odd numbers without a pattern, for products that wrap.
constexpr int64_t kByPlace = 0x1e3779b97f4a7c15, kMix = 0x3f58476d1ce4e5b9;

int64_t host_hash(const Tensor& x) {
  const Tensor bytes = x.cpu().contiguous();
  return static_cast<int64_t>(
      checksum({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}));
}

// The sum over `words` of numbers that each depend on a word and its place.
Tensor mixed_sum(const Tensor& words, int64_t first) {
  Tensor mixed = at::arange(first, first + words.numel(), words.options());
  mixed.mul_(kByPlace).add_(words);
  for (const int64_t shift : {32, 29}) {
    mixed.bitwise_xor_(mixed.__rshift__(shift));
    mixed.mul_(kMix);
  }
  return mixed.sum();
}

}  // namespace

int64_t device_tensor_hash(const Tensor& x) {
  const at::NoGradGuard no_grad;
  Tensor bytes = x.contiguous().view({-1}).view(at::kByte);
  if (bytes.storage_offset() % 8 != 0) bytes = bytes.clone();
  const int64_t count = bytes.numel() / 8;
  const Tensor words = bytes.slice(0, 0, count * 8).view(at::kLong);
  const Tensor total = at::zeros({}, words.options());
  for (int64_t at = 0; at < count; at += kWordsAtOnce)
    total.add_(mixed_sum(words.slice(0, at, std::min(at + kWordsAtOnce, count)), at));
  return total.item<int64_t>() ^ host_hash(bytes.slice(0, count * 8));
}

int64_t tensor_hash(const Tensor& x) { return x.is_cpu() ? host_hash(x) : device_tensor_hash(x); }

}  // namespace ballast::comm
