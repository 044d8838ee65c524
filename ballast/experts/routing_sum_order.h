// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast::experts {

// What a layer sums up of its routing in training, in this order. Behind them, of routers that
// balance by assignment, are the experts' prices less their mean.
enum RoutingSum : int {
  kSumOfTokens,
  kSumOfGroups,    // whose prices or balance losses are here
  kSumOfBest,      // tokens whose balanced expert is also their best
  kSumOfChoices,   // of gates, one or two a token
  kSumOfDropped,   // those of them that found no place
  kSumOfPassedBy,  // tokens that have no expert at all
  kSumOfBalance,   // balance losses of the groups, without their weight
  kSumOfGates,     // each token's weight of its first expert
  kRoutingSums
};

}  // namespace ballast::experts
