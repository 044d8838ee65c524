// SPDX-License-Identifier: Apache-2.0
// Writes TensorBoard events for tests/oracles/tensorboard_test.py.
//   event_writer FOLDER < LINES    each line: {"first_step": 0} (a new start), or
//                                  {"step": 1, "scalars": {"tag": 0.5}, "texts": {"tag": ".."}}
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ballast/record/tensorboard.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::optional<ballast::record::TensorboardWriter> writer;
  for (std::string text; std::getline(std::cin, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line.contains("first_step")) {
      writer.emplace(argv[1], line["first_step"].get<uint64_t>());
      continue;
    }
    const auto step = line.at("step").get<uint64_t>();
    std::vector<ballast::record::Scalar> scalars;
    for (const auto& [tag, value] : line.at("scalars").items()) scalars.push_back({tag, value});
    writer.value().scalars(step, scalars);
    for (const auto& [tag, value] : line.at("texts").items()) {
      writer.value().text(step, tag, value.get<std::string>());
    }
  }
  return 0;
}
