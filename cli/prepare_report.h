// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/tokens/prepare.h"

namespace ballast::cli {

struct PrepareReport {
  const tokens::PrepareRequest& request;
  const tokens::PrepareResult& result;
  double seconds = 0;
};

// What was made, of what, and what was passed over: for people, and as one JSON object.
void print_prepare_summary(const PrepareReport& report);
void print_prepare_json(const PrepareReport& report);

}  // namespace ballast::cli
