// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ballast/experts/dispatch.h"

namespace ballast::experts {

// A dispatch in blocks of equal size whose rows travel in chunks, each with a part of every block:
// experts compute one chunk while others are under way.
struct ChunkedDispatch {
  struct Chunk {
    int64_t rows = 0;           // that this worker sends, and gets
    ExpertRows rows_of_expert;  // that each expert of this worker gets
    // As in RowExchange, of these rows.
    at::Tensor arrival_of_place, place_of_arrival;
  };
  Dispatch whole;  // its slots are ordered by chunk, then by expert; of its way only what is sent
  std::vector<Chunk> chunks;
};

// As many chunks, or as blocks have rows if these are fewer. REQUIRES: what dispatch_blocks made,
// for several workers.
ChunkedDispatch in_chunks(const ExpertPlaces& places, const Dispatch& dispatch, int64_t chunks);

// What experts make of a chunk's rows, which stay where they are; `is_last`: no other chunk
// follows, so that backward comes here first.
using ComputeChunk = std::function<at::Tensor(const RoutedRows& rows, bool is_last)>;

// to_experts(), `compute` and from_experts(), chunk by chunk: while one is computed, the next one
// is on its way there, and the one before on its way back. tokens [T, D] -> as from_experts has it.
// Collective, also backward.
at::Tensor through_experts(comm::Communicator& workers, const at::Tensor& tokens,
                           const ChunkedDispatch& dispatch, const ComputeChunk& compute,
                           comm::Label there, comm::Label back, step::StepWatch* watch = nullptr);

}  // namespace ballast::experts
