// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/studio/pages/comparison.h"
#include "ballast/studio/pages/page.h"

namespace ballast::pages {

// The page of a report: all sections in their order.
Page make_page(const Comparison& comparison);

// The sections. Where what a section needs is missing, it says so in place of its figure. A section
// that a comparison has no use for (experts of dense models, sweeps of single runs) adds nothing.

void add_summary(Page& page, const Comparison& comparison);
void add_perplexity(Page& page, const Comparison& comparison);
void add_balance(Page& page, const Comparison& comparison);
void add_specialisation(Page& page, const Comparison& comparison);
void add_domains(Page& page, const Comparison& comparison);
void add_speed(Page& page, const Comparison& comparison);
void add_assignment(Page& page, const Comparison& comparison);
void add_sweep(Page& page, const Comparison& comparison);
void add_records(Page& page, const Comparison& comparison);

// Says what the last validations, from which a section's numbers are, were measured on.
void add_measured_on(Page& page, const Comparison& comparison);

// The sparse systems whose last validation tells of their experts, each with that of its first run
// that has one: BASE first, then by perplexity.
struct SparseSystem {
  const System* system;
  const record::LastValidation* validation;
};
std::vector<SparseSystem> sparse_systems(const Comparison& comparison);

}  // namespace ballast::pages
