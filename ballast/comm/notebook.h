// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/comm/arrivals.h"
#include "ballast/comm/mpirun_output.h"

namespace ballast::comm {

// What a worker tells the process that started it.
enum class Note : char {
  kArrived = 'a',   // it and all others have found each other
  kReturned = 'r',  // its command has a code of its own, and it ends with the others
  kEnds = 'e',      // it ends the job with a code
  kClosed = 'c',    // it has done its part, and its process ends
};

// Tells the launcher, if this is one of its workers. mpirun's own word may be lost when all end at
// once. Never throws.
void tell_launcher(Note note, int worker, int code = 0) noexcept;
// Whether a launcher of ours, on this machine, has started this process and looks after it.
bool has_launcher() noexcept;
// The command line of the launcher, on whatever machine, with --workers and all; empty: there is
// none, or it has ended.
std::vector<std::string> launcher_command_line();

// Where workers write their notes: memory of the launcher, which workers of the same machine open
// by its name in /proc. Workers of several machines write lines to stderr, which mpirun brings.
class Notebook {
 public:
  explicit Notebook(Reach reach = Reach::kThisMachine);
  ~Notebook();
  Notebook(const Notebook&) = delete;
  Notebook& operator=(const Notebook&) = delete;

  Reach reach() const { return reach_; }
  // For workers' environment: "NAME=value" each.
  const std::vector<std::string>& variables() const { return variables_; }
  // In a child, before it becomes another program: shows that children can write.
  void try_out() const noexcept;

  // Reads what was written since.
  void read();
  // Whether a line of stderr is a note, which is then read.
  bool take_line(std::string_view line);
  bool works() const { return works_; }  // a child could write
  size_t arrived() const { return arrived_.size(); }
  // Of several machines the first speaks for all: it has found them, and lines may be lost.
  bool all_arrived(int workers) const;
  bool is_closed() const { return closed_; }  // a worker has done its part
  bool is_ending() const { return ending_; }  // a worker ends the job
  // The first that returned a code or ended the job.
  const std::optional<WorkerFailure>& failure() const { return failure_; }

 private:
  void take(char note, int worker, int code);

  const Reach reach_;
  int fd_ = -1;
  off_t end_ = 0;
  std::vector<std::string> variables_;
  std::string rest_;
  bool works_ = false, closed_ = false, ending_ = false;
  std::set<int> arrived_;
  std::optional<WorkerFailure> failure_;
};

}  // namespace ballast::comm
