// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/parallel.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(Cores, FollowTheQuotaOfAControlGroup) {
  EXPECT_EQ(cores_of_quota("200000 100000"), 2u);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2u);
  EXPECT_EQ(cores_of_quota("1000 100000"), 1u);
  EXPECT_EQ(cores_of_quota("1600000 50000"), 32u);
  for (const char* no_limit : {"max 100000", "", "100000", "5 0", "x y", "-1 100000"}) {
    EXPECT_EQ(cores_of_quota(no_limit), 0u) << no_limit;
  }
  EXPECT_GE(num_cores(), 1u);
}

}  // namespace
}  // namespace ballast
