// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/assignment/cuda_problem.h"
#include "ballast/assignment/exact_cuda.h"
#include "ballast/assignment/solver.h"
#include "tests/emulator/emulator.h"

namespace ballast::emulator {

// Problems of one shape with equal loads, unless `bounds` say otherwise.
struct Problems {
  int tokens = 0, experts = 0;
  std::vector<float> scores = {};         // [problems, T, E]
  std::vector<double> start_prices = {};  // [problems, E], or empty
  std::vector<uint8_t> counted = {};      // [problems, T], or empty
  assignment::LoadBounds bounds = {};
  assignment::NonFinite non_finite = assignment::NonFinite::kReject;

  size_t count() const;
  assignment::AssignmentProblem problem(size_t index) const;  // lives as long as this does
};

struct Solution {
  assignment::Assignment result;  // prices from 0 on, as the CPU's
  assignment::AssignmentStatus status;

  // To the bit.
  bool operator==(const Solution& other) const;
};

enum class Solver { kExact, kGeneral, kAuction, kGreedy };  // general: never on chip

// What our CUDA solvers make of them on the emulated GPU; `options` are for the exact ones.
std::vector<Solution> solve(const Problems& problems, Solver solver,
                            const assignment::ExactCudaOptions& options = {});

}  // namespace ballast::emulator
