// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>

#include "ballast/comm/engine.h"

struct ncclComm;  // NCCL's own

namespace ballast::comm {

using NcclComm = ncclComm*;
struct NcclId {
  std::array<char, 128> bytes{};
};

// The functions of NCCL that we call, with numbers for its enumerations, which have not changed
// since 2.10. The library is the one that libtorch brought. It is found when it is needed: so this
// builds without its header and loads without it.
struct NcclLibrary {
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclId* id);
  int (*comm_init_rank)(NcclComm* comm, int size, NcclId id, int rank);
  int (*comm_abort)(NcclComm comm);
  int (*comm_get_async_error)(NcclComm comm, int* error);
  const char* (*get_error_string)(int result);
  const char* (*get_last_error)(NcclComm comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int operation,
                    NcclComm comm, cudaStream_t stream);
  int (*reduce_scatter)(const void* from, void* to, size_t count, int type, int operation,
                        NcclComm comm, cudaStream_t stream);
  int (*all_gather)(const void* from, void* to, size_t count, int type, NcclComm comm,
                    cudaStream_t stream);
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, NcclComm comm,
                   cudaStream_t stream);
  int (*send)(const void* from, size_t count, int type, int to, NcclComm comm, cudaStream_t stream);
  int (*recv)(void* to, size_t count, int type, int from, NcclComm comm, cudaStream_t stream);
};

constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
constexpr int kNcclBytes = 1;  // uint8
int nccl_type(at::ScalarType type);
int nccl_operation(Reduction reduction);

// UserError: there is no NCCL, or it lacks a function; says which.
const NcclLibrary& nccl_library();

// "2.28.9"
std::string nccl_version();

// What NCCL says of a result that is no success.
std::string nccl_error_text(int result);

}  // namespace ballast::comm
