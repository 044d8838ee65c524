// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/plain_number.h"

#include <gtest/gtest.h>

namespace ballast::config {
namespace {

TEST(PlainNumber, IsWrittenAsPeopleDo) {
  EXPECT_EQ(plain_number(0), "0");
  EXPECT_EQ(plain_number(999), "999");
  EXPECT_EQ(plain_number(1000), "1,000");
  EXPECT_EQ(plain_number(1 << 20), "1,048,576");
  EXPECT_EQ(plain_number(1e12), "1,000,000,000,000");
  EXPECT_EQ(plain_number(-1), "-1");
  EXPECT_EQ(plain_number(-123456), "-123,456");
  EXPECT_EQ(plain_number(0.99), "0.99");
}

}  // namespace
}  // namespace ballast::config
