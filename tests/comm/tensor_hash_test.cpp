// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/tensor_hash.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

namespace ballast::comm {
namespace {

using at::Tensor;

using Hash = int64_t (*)(const Tensor&);
class TensorHash : public testing::TestWithParam<Hash> {
 protected:
  static int64_t hash(const Tensor& x) { return GetParam()(x); }
};

TEST_P(TensorHash, EqualBitsHaveEqualHashes) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble, at::kByte}) {
    for (const int64_t count : {0, 1, 3, 8, 101}) {
      const Tensor x = at::randn({count}).mul(50).to(type);
      EXPECT_EQ(hash(x), hash(x.clone())) << type << " " << count;
      // In another place of a larger tensor, at any offset.
      for (const int64_t offset : {1, 2, 3, 5}) {
        const Tensor larger = at::cat({at::zeros({offset}, type), x});
        EXPECT_EQ(hash(x), hash(larger.slice(0, offset))) << type << " " << count;
      }
    }
  }
}

TEST_P(TensorHash, EveryBitCounts) {
  std::set<int64_t> seen;
  const Tensor x = at::zeros({37}, at::kByte);
  seen.insert(hash(x));
  for (int64_t i = 0; i < x.numel(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Tensor other = x.clone();
      other[i] = 1 << bit;
      EXPECT_TRUE(seen.insert(hash(other)).second) << i << " " << bit;
    }
  }
}

TEST_P(TensorHash, TheOrderCounts) {
  const Tensor x = at::arange(64, at::kDouble);
  Tensor swapped = x.clone();
  swapped[3] = 40;
  swapped[40] = 3;
  EXPECT_NE(hash(x), hash(swapped));
  EXPECT_NE(hash(at::zeros({8})), hash(at::zeros({8}).neg())) << "minus zero";
  EXPECT_NE(hash(at::zeros({8})), hash(at::zeros({10})));
}

TEST_P(TensorHash, LargeTensorsAreReadToTheEnd) {
  const Tensor x = at::zeros({(int64_t{1} << 23) + 5});  // a little more than one piece of floats
  Tensor last = x.clone(), middle = x.clone();
  last[x.numel() - 2] = 1e-30;
  middle[x.numel() / 2 + 1] = 1e-30;
  EXPECT_EQ(std::set({hash(x), hash(last), hash(middle)}).size(), 3);
}

INSTANTIATE_TEST_SUITE_P(Of, TensorHash, testing::Values(tensor_hash, device_tensor_hash),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "Host" : "Device");
                         });

}  // namespace
}  // namespace ballast::comm
