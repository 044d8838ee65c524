// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "ballast/assignment/auction.h"
#include "ballast/assignment/exact_solver.h"
#include "ballast/assignment/greedy.h"
#include "ballast/assignment/sinkhorn.h"
#include "ballast/assignment/solver.h"
#include "ballast/system/error.h"

namespace ballast::assignment {
namespace {

constexpr std::array<std::pair<SolverKind, std::string_view>, 4> kNames = {{
    {SolverKind::kExact, "exact"},
    {SolverKind::kAuction, "auction"},
    {SolverKind::kGreedy, "greedy"},
    {SolverKind::kSinkhorn, "sinkhorn"},
}};

}  // namespace

SolverKind parse_solver_kind(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (name == known) return kind;
  }
  fail("unknown solver '{}': choose exact, auction, greedy or sinkhorn", name);
}

std::string_view solver_name(SolverKind kind) { return kNames[static_cast<size_t>(kind)].second; }

std::unique_ptr<AssignmentSolver> make_solver(SolverKind kind, size_t threads) {
  switch (kind) {
    case SolverKind::kExact:
      return std::make_unique<ExactSolver>(threads);
    case SolverKind::kAuction:
      return std::make_unique<AuctionSolver>(threads);
    case SolverKind::kGreedy:
      return std::make_unique<GreedySolver>(threads);
    case SolverKind::kSinkhorn:
      return std::make_unique<SinkhornSolver>(threads);
  }
  fail("unknown solver {}", static_cast<int>(kind));
}

}  // namespace ballast::assignment
