// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/comm/roll_call.h"

namespace ballast::comm {

// What this worker has for NCCL.
struct GpuDescription {
  std::string gpu;      // its identity, the same in every process that sees it
  std::string version;  // of NCCL: "2.28.9"
  std::string trouble;  // why NCCL cannot be used here; empty if it can
};

struct NcclRequest {
  Communicator& host;  // the same group for tensors on the host; outlives the engine
  std::shared_ptr<RollCall> roll_call;
  at::Device device;
};

// NCCL is part of the CUDA plugin. What it exports; null where it is not loaded.
struct NcclPlugin {
  void (*describe)(at::Device, GpuDescription&) = nullptr;
  // Collective in request.host; returns when all its workers are connected. UserError: NCCL's own.
  void (*open)(const NcclRequest&, std::unique_ptr<GpuEngine>&) = nullptr;
};
NcclPlugin find_nccl_plugin();

}  // namespace ballast::comm

extern "C" void ballast_describe_gpu(at::Device device, ballast::comm::GpuDescription& description);
extern "C" void ballast_open_nccl_engine(const ballast::comm::NcclRequest& request,
                                         std::unique_ptr<ballast::comm::GpuEngine>& engine);
