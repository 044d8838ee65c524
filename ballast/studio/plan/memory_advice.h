// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/studio/plan/plan.h"

namespace ballast {

// One layout, as training.model_parallel says. REQUIRES: check_workers is content; groups are
// known.
LayoutPlan plan_layout(const Config& config, const Cluster& cluster);

// What would make a layout fit its device, each change tried alone, the least first: shorter
// micro-steps, blocks computed again, another division of the same workers, more workers, another
// device.
std::vector<std::string> advice_on_memory(const Config& config, const Cluster& cluster);

}  // namespace ballast
