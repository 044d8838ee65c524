// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/datatype_mpi.h"

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "ballast/comm/runtime_mpi.h"

namespace ballast::comm {
namespace {

template <typename Real>
void maximum_or_nan(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const auto* from = static_cast<const Real*>(in);
  auto* to = static_cast<Real*>(inout);
  for (int i = 0; i < *count; ++i) {
    if (from[i] > to[i] || std::isnan(from[i])) to[i] = from[i];
  }
}

MPI_Op make_operation(MPI_User_function* function) {
  MPI_Op operation = MPI_OP_NULL;
  MpiRuntime::check(MPI_Op_create(function, /*commute=*/1, &operation), "MPI_Op_create");
  return operation;
}

}  // namespace

BlockType::BlockType(int64_t block_bytes, int64_t all_bytes) {
  constexpr int64_t kPiece = int64_t{1} << 30;
  if (all_bytes <= std::numeric_limits<int>::max()) {
    elements_ = block_bytes;
    return;
  }
  MPI_Datatype piece = MPI_DATATYPE_NULL;
  MpiRuntime::check(MPI_Type_contiguous(static_cast<int>(kPiece), MPI_BYTE, &piece), "a type");
  const std::array<int, 2> lengths{static_cast<int>(block_bytes / kPiece),
                                   static_cast<int>(block_bytes % kPiece)};
  const std::array<MPI_Aint, 2> places{0, block_bytes / kPiece * kPiece};
  const std::array<MPI_Datatype, 2> types{piece, MPI_BYTE};
  MpiRuntime::check(MPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &type_),
                    "a type");
  MPI_Type_free(&piece);
  MpiRuntime::check(MPI_Type_commit(&type_), "a type");
}

BlockType::~BlockType() {
  if (type_ != MPI_BYTE) MPI_Type_free(&type_);
}

MPI_Datatype element_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kFloat:
      return MPI_FLOAT;
    case at::kLong:
      return MPI_INT64_T;
    case at::kInt:
      return MPI_INT32_T;
    case at::kByte:
      return MPI_UINT8_T;
    default:
      throw std::logic_error("MPI has no such element type");
  }
}

MPI_Op operation_of(Reduction reduction, at::ScalarType type) {
  if (reduction == Reduction::kSum) return MPI_SUM;
  static const MPI_Op kFloatMaximum = make_operation(maximum_or_nan<float>);
  static const MPI_Op kDoubleMaximum = make_operation(maximum_or_nan<double>);
  if (type == at::kFloat) return kFloatMaximum;
  return type == at::kDouble ? kDoubleMaximum : MPI_MAX;
}

}  // namespace ballast::comm
