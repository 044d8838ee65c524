// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ballast/record/experiment_file.h"

namespace ballast::cli {

// What an experiment will train: its systems with their sizes, and how long all will take.
std::string planned_table(const record::Experiment& experiment);
// Keys: name, title, panels (as in experiment.json), systems [{id, title, words, experts,
// parameters, active, flops_per_token}], seconds.
nlohmann::ordered_json planned_json(const record::Experiment& experiment);

// A trained system's perplexity as the table of results has it: "45.310 priced", of several seeds
// "45.310 priced (mean of 3 seeds)".
std::string perplexity_in_words(const record::SystemRecord& system,
                                const record::Experiment& experiment,
                                const std::filesystem::path& folder);

// What it found so far, of the systems that are trained, read from their runs. Keys: equal_tokens
// (those that all have seen), panels (as in experiment.json), systems [{id, title, experts, words,
// parameters, active, flops_per_token, learning_rate, steps, tokens, tokens_per_second,
// step_seconds, early_step_seconds, seconds, perplexity, routing (of BASE the better of greedy and
// priced, and which), greedy_perplexity, priced_perplexity, perplexity_at_equal_tokens,
// routing_at_equal_tokens, busiest, seeds [{seed, greedy_perplexity, priced_perplexity, busiest,
// seconds}]}]; null where there is none.
nlohmann::ordered_json results_json(const record::Experiment& experiment,
                                    const std::filesystem::path& folder);
// The same for people.
std::string results_table(const nlohmann::ordered_json& results);

}  // namespace ballast::cli
