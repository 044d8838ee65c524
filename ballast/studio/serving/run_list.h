// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/studio/serving/http_server.h"
#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// GET /api/runs: what the pages know of the runs; docs/serve.md has its keys. GET /health.
// `models` outlives the server's start.
void add_run_list(HttpServer& server, ServedModels& models);

}  // namespace ballast::serving
