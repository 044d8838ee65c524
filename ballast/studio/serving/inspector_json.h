// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/inference/inspection.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/studio/serving/http_server.h"

namespace ballast::serving {

// Answers of the inspector (docs/inspector.md). Numbers that are not known are null.
using Json = nlohmann::ordered_json;

HttpResponse json_answer(const Json& json);

// A token as the page shows it: its own bytes where they are UTF-8, otherwise as token_text().
std::string token_for_page(const tokenizer::Tokenizer* tokenizer, int64_t token);
// Tokens one after another, as text.
std::string text_for_page(const tokenizer::Tokenizer* tokenizer,
                          const std::vector<int64_t>& tokens);

// The prices of each expert, of routers that have any; otherwise null.
Json prices_json(const experts::ExpertLayer& layer);
Json inspection_json(const loading::LoadedModel& loaded, const inference::Inspection& found);

}  // namespace ballast::serving
