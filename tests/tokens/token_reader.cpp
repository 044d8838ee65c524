// SPDX-License-Identifier: Apache-2.0
// token_reader PATH SPLIT: prints what open_token_source finds there as JSON, for the oracles.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ballast/tokens/token_dataset.h"
#include "ballast/tokens/token_source.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const auto source = ballast::tokens::open_token_source(argv[1], argv[2]);
    std::vector<int64_t> tokens(source->size());
    source->read(0, tokens);
    nlohmann::json found{{"format", source->info().format}, {"tokens", tokens}};
    found["framed"] = ballast::tokens::TokenDataset::is_framed(argv[1]);
    if (source->info().end_of_text) found["end_of_text"] = *source->info().end_of_text;
    if (source->floor_per_token()) found["floor_per_token"] = *source->floor_per_token();
    std::puts(found.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
