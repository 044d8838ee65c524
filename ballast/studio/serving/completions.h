// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/studio/serving/http_server.h"
#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// POST /v1/completions, GET /v1/models and each of these, as OpenAI's clients ask them
// (docs/serve.md). `models` outlives the server's start.
void add_completions(HttpServer& server, ServedModels& models);

}  // namespace ballast::serving
