// SPDX-License-Identifier: Apache-2.0
// How inputs with JSON in them are changed: mostly within the structure, so that what is behind the
// parser is reached. libFuzzer calls this in place of its own changes of bytes.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ballast/system/json.h"
#include "tests/fuzz/input_files.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace ballast::fuzz {
namespace {

using nlohmann::json;
using Random = std::mt19937;

size_t below(Random& random, size_t count) { return random() % std::max<size_t>(count, 1); }

// Changes of bytes, as libFuzzer makes them.
std::string mutate_bytes(std::string text) {
  const size_t size = text.size();
  text.resize(size + 64);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
  return text;
}

void collect(json& node, std::vector<json*>& nodes) {
  nodes.push_back(&node);
  if (!node.is_structured()) return;
  for (json& child : node) collect(child, nodes);
}

json awkward_value(Random& random) {
  static const std::vector<json> kValues = {nullptr,
                                            true,
                                            false,
                                            0,
                                            1,
                                            -1,
                                            2,
                                            255,
                                            65536,
                                            0x7fffffff,
                                            0xffffffffu,
                                            uint64_t{1} << 32,
                                            uint64_t{1} << 40,
                                            INT64_MAX,
                                            INT64_MIN,
                                            UINT64_MAX,
                                            0.5,
                                            -0.0,
                                            1e-320,
                                            1e300,
                                            "",
                                            "a",
                                            "\n",
                                            "/",
                                            "..",
                                            json::array(),
                                            json::object()};
  return kValues[below(random, kValues.size())];
}

json changed_number(const json& number, Random& random) {
  if (number.is_number_float()) {
    const double value = number.get<double>();
    const double choices[] = {-value, value * 2, value + 1, value * 1e30, value / 1e30};
    return choices[below(random, std::size(choices))];
  }
  const auto value = number.get<uint64_t>();  // a negative one as its two's complement
  const uint64_t choices[] = {value + 1, value - 1, value * 2, value << 20, value / 2, ~value};
  const uint64_t chosen = choices[below(random, std::size(choices))];
  return random() % 4 == 0 ? json(static_cast<int64_t>(chosen)) : json(chosen);
}

// One more child, one less, or one under another's name.
void change_children(json& node, const std::vector<json*>& nodes, Random& random) {
  const json& other = *nodes[below(random, nodes.size())];
  const size_t place = below(random, node.size());
  if (node.is_array()) {
    if (node.empty() || random() % 3 == 0) {
      node.push_back(json(other));
    } else if (random() % 2 == 0) {
      node.push_back(json(node[place]));
    } else {
      node.erase(place);
    }
    return;
  }
  if (node.empty()) return;
  const auto child = std::next(node.begin(), static_cast<std::ptrdiff_t>(place));
  const json value = child.value();
  const std::string key = child.key();
  switch (random() % 4) {
    case 0:
      node.erase(key);
      break;
    case 1:
      node[mutate_bytes(key)] = value;
      break;
    case 2:
      if (other.is_string()) node[other.get<std::string>()] = value;
      break;
    default:
      node[key] = json(other);
  }
}

void change(json& root, Random& random) {
  std::vector<json*> nodes;
  collect(root, nodes);
  json& node = *nodes[below(random, nodes.size())];
  const size_t kind = below(random, 4);
  if (kind == 0) {
    node = awkward_value(random);
  } else if (kind == 1) {
    node = json(*nodes[below(random, nodes.size())]);
  } else if (node.is_structured()) {
    change_children(node, nodes, random);
  } else if (node.is_number()) {
    node = changed_number(node, random);
  } else if (node.is_string()) {
    node = mutate_bytes(node.get<std::string>());
  } else {
    node = awkward_value(random);
  }
}

// Nothing: the text is no JSON.
std::optional<std::string> mutate_json(std::string_view text, Random& random) {
  json root = parse_json_or_discard(text);
  if (root.is_discarded()) return {};
  for (size_t times = 1 + below(random, 3); times > 0; --times) change(root, random);
  return root.dump(-1, ' ', false, json::error_handler_t::replace);
}

// JSON behind 8 bytes with its length, as safetensors files begin.
std::optional<std::string> mutate_header(std::string_view file, Random& random) {
  uint64_t length = 0;
  if (file.size() < sizeof(length)) return {};
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) return {};
  const auto header = mutate_json(file.substr(sizeof(length), length), random);
  if (!header) return {};
  const uint64_t size = header->size();
  std::string changed(reinterpret_cast<const char*>(&size), sizeof(size));
  return changed + *header + std::string(file.substr(sizeof(length) + length));
}

// One line of a file whose lines are JSON.
std::optional<std::string> mutate_line(std::string_view file, Random& random) {
  std::vector<size_t> ends;
  for (size_t at = file.find('\n'); at != std::string_view::npos; at = file.find('\n', at + 1))
    ends.push_back(at);
  if (ends.empty()) return {};
  const size_t chosen = below(random, ends.size());
  const size_t begin = chosen == 0 ? 0 : ends[chosen - 1] + 1;
  const auto line = mutate_json(file.substr(begin, ends[chosen] - begin), random);
  if (!line) return {};
  return std::string(file.substr(0, begin)) + *line + std::string(file.substr(ends[chosen]));
}

std::string mutate_file(std::string_view file, Random& random) {
  if (random() % 8 != 0) {
    if (auto changed = mutate_json(file, random)) return *changed;
    if (auto changed = mutate_header(file, random)) return *changed;
    if (auto changed = mutate_line(file, random)) return *changed;
  }
  return mutate_bytes(std::string(file));
}

}  // namespace
}  // namespace ballast::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace ballast::fuzz;
  Random random(seed);
  const std::string_view input = text_of(data, size);
  size_t count = 1;
  for (size_t at = input.find(kCut); at != std::string_view::npos; at = input.find(kCut, at + 1))
    ++count;
  const std::vector<std::string_view> files = files_of(input, count);
  const size_t chosen = below(random, count);
  std::string changed;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) changed += kCut;
    changed += i == chosen ? mutate_file(files[i], random) : std::string(files[i]);
  }
  if (changed.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
