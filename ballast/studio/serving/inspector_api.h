// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/studio/serving/http_server.h"
#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// What the inspector's page asks; docs/inspector.md has the keys of the answers.
//   POST /api/inspect {run, step?, text, routing}: a text's tokens and what the experts do.
//   GET /api/layers?run=&step=: the layers of experts, with the load and price of each expert.
//   GET /api/sample?run=: a text to begin with, from the run's validation data where it is there.
//   GET /api/expert?run=&step=&layer=&expert=: what is known of one expert.
// Without a step the newest checkpoint is meant. `models` outlives the server's start.
void add_inspector(HttpServer& server, ServedModels& models);

}  // namespace ballast::serving
