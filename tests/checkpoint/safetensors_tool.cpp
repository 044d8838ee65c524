// SPDX-License-Identifier: Apache-2.0
// Makes and reads files for tests/oracles/safetensors_test.py.
//   safetensors_tool write FILE < SPEC    SPEC: {"metadata": {..}, "tensors": [TENSOR, ..]}
//   safetensors_tool export FILE < SPEC   as `ballast export` does, with SPEC's metadata as state
//   safetensors_tool read FILE..          a line for each: a SPEC, or {"error": ".."}
// TENSOR: {"name": "..", "dtype": "F32", "shape": [2, 3], "bytes": "00ff.."}
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/checkpoint/safetensors.h"
#include "ballast/system/error.h"

namespace {

using nlohmann::json;

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte value : bytes) text += fmt::format("{:02x}", static_cast<int>(value));
  return text;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

json read(const std::string& path) {
  try {
    const ballast::checkpoint::SafetensorsFile file(path);
    json tensors = json::array();
    for (const ballast::checkpoint::TensorView& tensor : file.tensors()) {
      tensors.push_back({{"name", tensor.name},
                         {"dtype", ballast::checkpoint::dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"bytes", to_hex(tensor.data)}});
    }
    return {{"metadata", file.metadata()}, {"tensors", tensors}};
  } catch (const ballast::UserError& error) {
    return {{"error", error.what()}};
  }
}

void write(const std::string& mode, const std::string& path, const json& spec) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<ballast::checkpoint::TensorView> tensors;
  for (const json& tensor : spec.at("tensors")) {
    memory.push_back(from_hex(tensor.at("bytes")));
    tensors.push_back(
        {tensor.at("name"),
         ballast::checkpoint::parse_dtype(tensor.at("dtype").get<std::string>()).value(),
         tensor.at("shape"), memory.back()});  // inner buffers do not move
  }
  if (mode == "export") {
    ballast::checkpoint::Manifest manifest;
    manifest.state = spec.at("metadata").dump();
    ballast::checkpoint::export_weights(path, tensors, manifest);
  } else {
    ballast::checkpoint::write_safetensors(
        path, tensors, spec.at("metadata").get<ballast::checkpoint::SafetensorsMetadata>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) return 2;
  if (arguments[0] == "read") {
    for (size_t i = 1; i < arguments.size(); ++i) {
      std::cout << read(arguments[i]).dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
    }
  } else {
    write(arguments[0], arguments[1], json::parse(std::cin));
  }
  return 0;
}
