// SPDX-License-Identifier: Apache-2.0
// tokenizer_tool TOKENIZER: many texts through one tokenizer, for the oracles. Standard input is a
// JSON list of texts, as hexadecimal bytes. Standard output is a JSON object: `ids` and `continued`
// (lists of ids of each text), `decoded` (each text again, as hexadecimal bytes), `begin`, `end`,
// `end_of_text`, `fingerprint`.
#include <cstdint>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/system/json.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {
namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

int run(const std::string& path) {
  const auto tokenizer = load_tokenizer(path);
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  nlohmann::json output = {
      {"ids", nlohmann::json::array()},         {"continued", nlohmann::json::array()},
      {"decoded", nlohmann::json::array()},     {"begin", tokenizer->frame().begin},
      {"end", tokenizer->frame().end},          {"end_of_text", tokenizer->end_of_text()},
      {"fingerprint", tokenizer->fingerprint()}};
  for (const auto& hex : parse_json(input)) {
    const std::string text = from_hex(hex.get<std::string>());
    std::vector<TokenId> ids, continued;
    tokenizer->encode(text, ids);
    tokenizer->encode_continued(text, continued);
    output["decoded"].push_back(to_hex(tokenizer->decode_text(ids)));
    output["ids"].push_back(std::move(ids));
    output["continued"].push_back(std::move(continued));
  }
  std::cout << output.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace ballast::tokenizer

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    return ballast::tokenizer::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
