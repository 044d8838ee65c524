// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/config/config.h"

namespace ballast::experiments {

// The systems that are compared, each made of a dense model's config: its blocks, data and training
// stay as they are. experts.groups and what else is said of experts is kept where the system's
// router uses it. The router's frame is BASE's alone: gates keep that of their papers.

// The routing groups of a micro-step that come closest to the paper's 2048 tokens: so many divide
// its tokens, and the workers divide them. 0: there is no such number.
int64_t usual_groups(const config::Config& config, int64_t workers);

// The dense model itself, of so many blocks.
config::Config dense_system(const config::Config& blocks, int64_t layers);
// The dense model with as many blocks as make its operations a token closest to those of `other`.
// REQUIRES: model.vocabulary is known.
config::Config dense_of_equal_flops(const config::Config& blocks, const config::Config& other);
// A dense model with `factor` times the parameters, as near as whole blocks come: wider by about
// the root of `factor` in heads of the same width, a multiple of `factor` so that it can be
// divided. REQUIRES: model.vocabulary is known, factor > 1.
config::Config larger_dense(const config::Config& dense, int64_t factor);

// The paper's rule for BASE xN: of `all` sublayers each of N layers has floor(all / N), and one at
// least.
int64_t sublayers_of_each(int64_t all, int64_t layers);
// BASE xN: N layers of `count` experts after blocks floor(i L / (N + 1)).
config::Config base_system(const config::Config& blocks, int64_t count, int64_t layers,
                           int64_t sublayers_each);
// BASE Top: one layer after the last block.
config::Config base_top_system(const config::Config& blocks, int64_t count, int64_t sublayers);
// A router ("sparsely_gated", "switch", or "base" to compare like with like) with experts in place
// of every other feed-forward.
config::Config gated_system(const config::Config& blocks, const std::string& router, int64_t count);
// Any BASE system with the router of its paper: its frame, the auction, greedy routing in tests.
config::Config with_papers_router(config::Config base);
// Any BASE system of E experts with the same operations a token: two of 2 E experts of half the
// width, and one of E of half the width beside one as wide for all tokens.
config::Config with_two_of_twice_as_many(config::Config base);
config::Config with_shared_half(config::Config base);
// Switch and the like as one layer of deep experts after block L / 2, where BASE x1 has its own.
config::Config deep_gated_system(const config::Config& blocks, const std::string& router,
                                 int64_t count, int64_t sublayers);

// BASE x1 with small or large experts. The paper has 4 and 27 sublayers with 28 and 15 blocks where
// the standard has 10 with 24: blocks are in its proportion (7/6 and 5/8), sublayers as many as
// make its operations a token closest to BASE x1's with `sublayers`.
config::Config resized_base_system(const config::Config& blocks, int64_t count, int64_t sublayers,
                                   config::ExpertSize size);

// What follows goes by the names of `bench step --systems`.
struct SystemExperts {
  int64_t count = 8;
  int64_t sublayers = 6;  // of all BASE layers of a model together: one, two and three divide it
  int64_t groups = 0;     // 0: as many as workers
};
// "all": those that this many workers can run; else names with commas between. UserError lists
// them.
std::vector<std::string> parse_systems(const std::string& text, int64_t workers);
// That system, of the dense model's blocks, checked for these workers.
config::Config config_of_system(const std::string& name, const config::Config& dense,
                                const SystemExperts& experts, int64_t workers);

}  // namespace ballast::experiments
