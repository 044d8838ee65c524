// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/gpu_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "ballast/comm/agreement.h"
#include "ballast/comm/nccl_plugin.h"
#include "ballast/comm/notebook.h"
#include "ballast/comm/texts.h"

namespace ballast::comm {
namespace {

std::string workers_text(const std::vector<int>& workers) {
  return fmt::format("worker{} {}", workers.size() == 1 ? "" : "s", fmt::join(workers, ", "));
}

// Those for which `matches` holds.
template <typename Matches>
std::vector<int> which(const std::vector<WorkerGpu>& workers, Matches matches) {
  std::vector<int> found;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (matches(workers[i])) found.push_back(static_cast<int>(i));
  }
  return found;
}

// "node7 has 4 workers and 2 GPUs for them"; empty: each worker has a GPU of its own.
std::string crowded_machine(const std::vector<WorkerGpu>& workers) {
  std::map<std::string, std::pair<int, std::set<std::string>>> machines;
  for (const WorkerGpu& worker : workers) {
    auto& [count, gpus] = machines[worker.machine];
    ++count;
    gpus.insert(worker.gpu);
  }
  for (const WorkerGpu& worker : workers) {
    const auto& [count, gpus] = machines[worker.machine];
    if (std::ssize(gpus) < count) {
      return fmt::format("{} has {} workers and {} GPU{} for them", worker.host, count, gpus.size(),
                         gpus.size() == 1 ? "" : "s");
    }
  }
  return "";
}

// Why the workers cannot use NCCL; empty if they can.
std::string obstacle(const std::vector<WorkerGpu>& workers) {
  const auto without = which(workers, [](const auto& worker) { return worker.gpu.empty(); });
  if (!without.empty()) {
    return fmt::format("{} compute{} on the CPU: give each worker a GPU (training.device cuda)",
                       workers_text(without), without.size() == 1 ? "s" : "");
  }
  if (const std::string crowded = crowded_machine(workers); !crowded.empty()) {
    return crowded +
           ": NCCL needs one for each. Start fewer workers there, or let tensors go through host "
           "memory (--engine mpi)";
  }
  const auto troubled = which(workers, [](const auto& worker) { return !worker.trouble.empty(); });
  if (troubled.empty()) return "";
  return fmt::format("{} on {}; --engine mpi goes through host memory",
                     workers[static_cast<size_t>(troubled.front())].trouble,
                     workers_text(troubled));
}

std::string packed(const WorkerGpu& worker) {
  return fmt::format("{}\n{}\n{}\n{}", worker.machine, worker.host, worker.gpu, worker.trouble);
}

WorkerGpu unpacked(const std::string& text) {
  std::istringstream lines(text);
  WorkerGpu worker;
  for (std::string* field : {&worker.machine, &worker.host, &worker.gpu, &worker.trouble})
    std::getline(lines, *field);
  return worker;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

bool decide_nccl(GpuTransport wish, const std::vector<WorkerGpu>& workers) {
  // One worker has nobody to send to, unless it is to be tried.
  if (wish == GpuTransport::kMpi || (wish == GpuTransport::kAuto && workers.size() == 1))
    return false;
  const std::string why_not = obstacle(workers);
  if (why_not.empty()) return true;
  if (wish == GpuTransport::kNccl) throw SharedError("NCCL was asked for, but " + why_not);
  return false;
}

void World::compute_on(at::Device device) {
  if (std::exchange(placed_, true)) return;
  const NcclPlugin plugin = find_nccl_plugin();
  GpuDescription description;
  if (device.is_cuda()) {
    description.trouble = "there is no NCCL in the CUDA plugin";
    if (plugin.describe != nullptr) plugin.describe(device, description);
  }
  const WorkerGpu own{machine_identity(), host_name(), description.gpu, description.trouble};
  std::vector<WorkerGpu> all;
  for (const std::string& text : gather_texts(everyone(), packed(own), {"where workers compute"}))
    all.push_back(unpacked(text));
  if (!decide_nccl(wish_, all)) {
    if (device.is_cuda() && everyone().size() > 1) transport_ = "MPI through host memory";
    return;
  }
  std::unique_ptr<GpuEngine> engine;
  plugin.open({everyone(), roll_call(), device}, engine);
  everyone().use_gpu_engine(std::move(engine));
  transport_ = fmt::format("NCCL {}", description.version);
}

void World::close() {
  if (GpuEngine* engine = everyone().gpu_engine()) engine->finish();
  const int rank = everyone().rank();
  close_host();
  tell_launcher(Note::kClosed, rank);
}

}  // namespace ballast::comm
