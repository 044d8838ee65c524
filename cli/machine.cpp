// SPDX-License-Identifier: Apache-2.0
#include "cli/machine.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "ballast/kernels/cuda_driver.h"
#include "ballast/kernels/cuda_plugin.h"
#include "ballast/record/hardware.h"
#include "ballast/system/onednn_limit.h"
#include "ballast/system/version.h"
#include "ballast/text/parquet_plugin.h"

namespace ballast::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// The file that holds the code or data at `address`.
std::string file_of(const void* address) {
  Dl_info library{};
  if (dladdr(address, &library) == 0 || library.dli_fname == nullptr) return "";
  std::error_code error;
  const fs::path path = fs::weakly_canonical(library.dli_fname, error);
  return error ? std::string(library.dli_fname) : path.string();
}

json examine_onednn() {
  const bool in_part = offers_amx_in_part(read_amx_cpuid());
  return {{"max_cpu_isa", text_or_null(onednn_limit())},
          {"reason", in_part ? json("this machine offers AMX without the sizes of its tiles")
                             : json(nullptr)}};
}

json examine_libtorch() {
  return {{"version", TORCH_VERSION},
          {"path", text_or_null(file_of(reinterpret_cast<const void*>(&at::get_num_threads)))},
          {"threads", at::get_num_threads()},
          {"cpu_capability", at::get_cpu_capability()},
          {"onednn", examine_onednn()}};
}

json plugin_json(const fs::path& path, const std::string& reason) {
  return {{"path", path.string()}, {"loaded", reason.empty()}, {"reason", text_or_null(reason)}};
}

json examine_cuda() {
  const kernels::CudaDriver driver = kernels::query_cuda_driver();
  const kernels::CudaPlugin plugin = kernels::load_cuda_plugin();
  json devices = json::array();
  for (const kernels::CudaDevice& device : driver.devices) {
    devices.push_back({{"name", device.name},
                       {"memory_bytes", device.memory_bytes},
                       {"compute_capability", device.compute_capability}});
  }
  return {{"usable", plugin.loaded && at::hasCUDA() && !driver.devices.empty()},
          {"plugin", plugin_json(plugin.path, plugin.reason)},
          {"driver",
           {{"version", text_or_null(driver.version)}, {"reason", text_or_null(driver.reason)}}},
          {"devices", devices}};
}

json examine_parquet() {
  const text::ParquetPlugin plugin = text::load_parquet_plugin();
  return {{"plugin", plugin_json(plugin.path, plugin.reason)}};
}

std::string nccl_version(void* library) {
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "unknown";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string mpi_version(void* library) {
  const auto get =
      reinterpret_cast<int (*)(char*, int*)>(dlsym(library, "MPI_Get_library_version"));
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING is 256 or 8192
  int length = 0;
  if (get == nullptr || get(text.data(), &length) != 0) return "unknown";
  const std::string_view whole = text.data();
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

// A library that is loaded when it is needed, tried here: its version and path, or null.
json examine_library(const char* name, std::string (*version_of)(void*)) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const link_map* entry = nullptr;
  std::string path = name;
  if (dlinfo(library, RTLD_DI_LINKMAP, &entry) == 0) path = entry->l_name;
  return {{"version", version_of(library)}, {"path", path}};
}

json find_program(const std::string& name) {
  const char* folders = std::getenv("PATH");
  std::istringstream list(folders != nullptr ? folders : "");
  for (std::string folder; std::getline(list, folder, ':');) {
    const fs::path path = fs::path(folder) / name;
    std::error_code error;
    if (fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return nullptr;
}

json examine_disk() {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  const fs::space_info space = fs::space(here, error);
  return {{"path", here.string()},
          {"free_bytes", error ? json(nullptr) : json(uint64_t{space.available})}};
}

bool is_there(const json& plugin) { return fs::exists(plugin.at("path").get<std::string>()); }

json missing_from(const json& machine) {
  json missing = json::array();
  const auto miss = [&](const char* name, const char* needed_for, const char* how_to_get) {
    missing.push_back({{"name", name}, {"needed_for", needed_for}, {"how_to_get", how_to_get}});
  };
  const json &cuda = machine.at("cuda"), &parquet = machine.at("parquet").at("plugin"),
             &programs = machine.at("programs");
  if (cuda.at("devices").empty()) {
    miss("GPU", "training on a GPU; everything also runs on the CPU",
         "a machine with an NVIDIA GPU (compute capability 9.0) and its driver");
  }
  if (!is_there(cuda.at("plugin"))) {
    miss("CUDA plugin", "training on a GPU", "install CUDA's nvcc, then `make clean build`");
  } else if (!cuda.at("plugin").at("loaded")) {
    miss("CUDA libraries", "the CUDA plugin",
         "a whole PyTorch: `pip install torch==2.11.0`, then LIBTORCH=<its torch folder> when you "
         "build, or start the program from a dist folder");
  }
  if (programs.at("mpirun").is_null() || machine.at("mpi").is_null()) {
    miss("MPI", "training with several workers", "apt-get install openmpi-bin");
  }
  if (!is_there(parquet)) {
    miss("Parquet plugin", "reading Parquet files",
         "`tools/setup` brings Arrow's libraries, then `make build`");
  } else if (!parquet.at("loaded")) {
    miss("Arrow", "the Parquet plugin",
         "`tools/setup` and `make build` once more, or start the program from a dist folder");
  }
  if (programs.at("rsvg-convert").is_null()) {
    miss("rsvg-convert", "figures as PNG; as SVG they are always written",
         "apt-get install librsvg2-bin");
  }
  return missing;
}

}  // namespace

json examine_machine() {
  // The plugin first: libtorch remembers the answer to the first CUDA query.
  json machine = {{"cuda", examine_cuda()}};
  machine["version"] = version();
  machine["hardware"] = record::describe_hardware();
  machine["libtorch"] = examine_libtorch();
  machine["nccl"] = examine_library("libnccl.so.2", nccl_version);
  machine["mpi"] = examine_library("libmpi.so.40", mpi_version);
  machine["parquet"] = examine_parquet();
  machine["programs"] = {{"mpirun", find_program("mpirun")},
                         {"rsvg-convert", find_program("rsvg-convert")}};
  machine["disk"] = examine_disk();
  machine["missing"] = missing_from(machine);
  return machine;
}

}  // namespace ballast::cli
