// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/http_rules.h"

#include <gtest/gtest.h>

namespace ballast::serving {
namespace {

TEST(HttpTarget, PathAndQueryAreDecoded) {
  const auto target = read_target("/a%20b/+?x=1+2&y=%C3%A4&x=3&flag&&=");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/a b/+");
  const std::map<std::string, std::string> query = {{"x", "3"}, {"y", "ä"}, {"flag", ""}, {"", ""}};
  EXPECT_EQ(target->query, query);
}

TEST(HttpTarget, WhatIsNotWellFormedIsRefused) {
  for (const char* text : {"", "a", "http://other/", "*", "/%", "/%4", "/%zz", "/%00", "/?a=%0"})
    EXPECT_FALSE(read_target(text)) << text;
  EXPECT_TRUE(read_target("/%41"));
}

TEST(AcceptedHosts, OnlyItsOwnNames) {
  const AcceptedHosts hosts("127.0.0.1", {"Models.example"});
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "models.example:80"})
    EXPECT_TRUE(hosts.accept(host)) << host;
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:80:80",
        "localhost:80@evil", "192.168.0.1", "[::1]", "[::1", "evil.example:8080", "@localhost"})
    EXPECT_FALSE(hosts.accept(host)) << host;
}

TEST(AcceptedHosts, OfAllAddressesEveryAddressButNoName) {
  const AcceptedHosts hosts("0.0.0.0", {});
  for (const char* host : {"10.1.2.3:8080", "[::1]:8080", "localhost"})
    EXPECT_TRUE(hosts.accept(host)) << host;
  for (const char* host : {"10.1.2", "evil.example", "10.1.2.3.evil.example", "[evil]"})
    EXPECT_FALSE(hosts.accept(host)) << host;
  EXPECT_TRUE(AcceptedHosts("::1", {}).accept("[::1]:80"));
}

TEST(Origin, IsThatOfTheHost) {
  EXPECT_TRUE(is_same_origin("http://localhost:8080", "LocalHost:8080"));
  for (const char* origin : {"null", "", "http://localhost:8081", "http://localhost",
                             "http://evil.example", "http://localhost:8080.evil.example"})
    EXPECT_FALSE(is_same_origin(origin, "localhost:8080")) << origin;
}

}  // namespace
}  // namespace ballast::serving
