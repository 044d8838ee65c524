// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/studio/serving/http_server.h"
#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// GET /api/live: the runs that can be watched; with ?run=NAME, what is new of one. docs/live.md
// describes the answers. No model is loaded for them, and nothing is written or locked.
void add_live_api(HttpServer& server, const std::vector<ServedRun>& runs);

}  // namespace ballast::serving
