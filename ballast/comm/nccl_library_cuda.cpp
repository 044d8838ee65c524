// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/nccl_library_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

class Symbols {
 public:
  // libtorch_cuda has loaded NCCL, or has it within: a second copy would know nothing of the first.
  Symbols() : library_(dlopen("libnccl.so.2", RTLD_NOW)) {
    // RTLD_DEFAULT is a null pointer: everything that is loaded.
    if (library_ != nullptr || dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) return;
    const char* message = dlerror();
    fail("there is no NCCL: {}", message != nullptr ? message : "libtorch came without it");
  }

  template <typename Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) fail("this NCCL is too old: it has no {}", name);
  }

 private:
  void* library_;
};

NcclLibrary load() {
  // While a graph is recorded NCCL would wait for the others to register memory with them, without
  // end if one of them cannot record. Read when it starts; whoever has set it knows better.
  ::setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  const Symbols symbols;
  NcclLibrary nccl{};
  symbols.find("ncclGetVersion", nccl.get_version);
  symbols.find("ncclGetUniqueId", nccl.get_unique_id);
  symbols.find("ncclCommInitRank", nccl.comm_init_rank);
  symbols.find("ncclCommAbort", nccl.comm_abort);
  symbols.find("ncclCommGetAsyncError", nccl.comm_get_async_error);
  symbols.find("ncclGetErrorString", nccl.get_error_string);
  symbols.find("ncclGetLastError", nccl.get_last_error);
  symbols.find("ncclGroupStart", nccl.group_start);
  symbols.find("ncclGroupEnd", nccl.group_end);
  symbols.find("ncclAllReduce", nccl.all_reduce);
  symbols.find("ncclReduceScatter", nccl.reduce_scatter);
  symbols.find("ncclAllGather", nccl.all_gather);
  symbols.find("ncclBroadcast", nccl.broadcast);
  symbols.find("ncclSend", nccl.send);
  symbols.find("ncclRecv", nccl.recv);
  return nccl;
}

}  // namespace

int nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return 1;
    case at::kInt:
      return 2;
    case at::kLong:
      return 4;
    case at::kHalf:
      return 6;
    case at::kFloat:
      return 7;
    case at::kDouble:
      return 8;
    case at::kBFloat16:
      return 9;
    default:
      throw std::invalid_argument("nccl_type: a type that cannot be reduced");
  }
}

int nccl_operation(Reduction reduction) { return reduction == Reduction::kSum ? 0 : 2; }

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

std::string nccl_version() {
  int version = 0;  // 22809
  nccl_library().get_version(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string nccl_error_text(int result) {
  const NcclLibrary& nccl = nccl_library();
  const char* last = nccl.get_last_error(nullptr);
  const std::string text = nccl.get_error_string(result);
  return last == nullptr || *last == '\0' ? text : fmt::format("{} ({})", text, last);
}

}  // namespace ballast::comm
