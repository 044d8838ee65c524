// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ballast/tokens/token_source.h"

namespace ballast::test {

// Tokens whose domains are known, or -1.
class TokensOfDomains : public tokens::TokenSource {
 public:
  TokensOfDomains(std::vector<int64_t> ids, std::vector<int32_t> domain_of_token,
                  std::vector<std::string> domains,
                  tokens::TokenSourceInfo info = {.name = "test", .format = "memory"})
      : tokens::TokenSource(std::move(info)),
        ids_(std::move(ids)),
        domain_of_token_(std::move(domain_of_token)),
        domains_(std::move(domains)) {}

  uint64_t size() const override { return ids_.size(); }
  const std::vector<std::string>& domains() const override { return domains_; }

 protected:
  void copy(uint64_t first, std::span<int64_t> out) const override {
    std::copy_n(ids_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  }
  void copy_domains(uint64_t first, std::span<int32_t> out) const override {
    std::copy_n(domain_of_token_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  }

 private:
  std::vector<int64_t> ids_;
  std::vector<int32_t> domain_of_token_;
  std::vector<std::string> domains_;
};

// The tokens of another source, in stretches of 11 of each of three domains in turn.
inline std::shared_ptr<tokens::TokenSource> in_three_domains(const tokens::TokenSource& source) {
  std::vector<int64_t> ids(source.size());
  source.read(0, ids);
  std::vector<int32_t> domains;
  for (size_t i = 0; i < ids.size(); ++i) domains.push_back(static_cast<int32_t>(i / 11 % 3));
  return std::make_shared<TokensOfDomains>(std::move(ids), std::move(domains),
                                           std::vector<std::string>{"law", "code", "news"});
}

}  // namespace ballast::test
