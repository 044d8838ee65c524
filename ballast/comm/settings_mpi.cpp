// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/settings_mpi.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "ballast/comm/job_folders.h"
#include "ballast/comm/world.h"

namespace ballast::comm {
namespace {

// OpenMPI copies from process to process with process_vm_readv, and breaks off where a container
// forbids that. EFAULT for an address nobody has says that it is allowed.
void choose_copy_mechanism() {
  char byte = 0;
  const iovec here{&byte, 1}, there{nullptr, 1};
  errno = 0;
  ::process_vm_readv(::getppid(), &here, 1, &there, 1, 0);
  if (errno != EFAULT) ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

bool all_on_this_machine() {
  const char *here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE"),
             *all = std::getenv("OMPI_COMM_WORLD_SIZE");
  return here != nullptr && all != nullptr && std::string_view(here) == all;
}

// Workers of one machine need no network. OpenMPI would listen on all there are, whatever
// interfaces it is told to use.
void choose_transport() {
  if (!all_on_this_machine()) return;
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  if (std::getenv("OMPI_MCA_btl") != nullptr || std::getenv("OMPI_MCA_pml") != nullptr) return;
  ::setenv("OMPI_MCA_pml", "ob1", 1);
  ::setenv("OMPI_MCA_btl", "self,vader", 1);
  // There is no way around shared memory then.
  ::setenv("OMPI_MCA_btl_vader_backing_directory",
           shared_memory_folder(num_started_workers()).c_str(), 0);
}

// By itself OpenMPI 4.1 sums in place by a tree, through whose root all numbers go several times.
// Rabenseifner's way sends each number twice, whatever the number of workers.
void choose_sums() { ::setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "rabenseifner", 0); }

}  // namespace

void choose_settings() {
  choose_sums();
  choose_copy_mechanism();
  choose_transport();
}

}  // namespace ballast::comm
