// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/studio/plan/plan.h"

namespace ballast::plan {

// One layout, as training.model_parallel says. REQUIRES: check_workers is content; groups are
// known.
LayoutPlan plan_layout(const config::Config& config, const Cluster& cluster);

// What would make a layout fit its device, each change tried alone, the least first: shorter
// micro-steps, blocks computed again, the optimizer's state divided, another division of the same
// workers, more workers, another device.
std::vector<std::string> advice_on_memory(const config::Config& config, const Cluster& cluster);

}  // namespace ballast::plan
