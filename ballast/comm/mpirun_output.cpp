// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/mpirun_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "ballast/comm/launch.h"
#include "ballast/system/console.h"
#include "ballast/system/stop_signal.h"

namespace ballast::comm {
namespace {

// Parts of lines that OpenMPI 4 prints around a worker's end.
constexpr std::string_view kKnown[] = {
    "Primary job  terminated normally, but",
    "a non-zero exit code. Per user-direction, the job has been aborted.",
    "mpirun detected that one or more processes exited with non-zero status",
    "the job to be terminated. The first process to do so was:",
    "MPI_ABORT was invoked on rank ",
    "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.",
    "You may or may not see output from other processes, depending on",
    "exactly when Open MPI kills them.",
    "mpirun noticed that process rank ",
    ": Forwarding signal ",
    "/orte/util/show_help.c at line ",  // messages of several workers that come at once
    "] Read -1, expected ",             // of memory of a worker that has died
    " sent help message help-mpi-api.txt / mpi-abort",
    // of workers; the launcher says it once
    kStopMessage.substr(0, kStopMessage.size() - 1),
    "Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / error messages",
};

bool is_rule(std::string_view line) {
  return line.size() == 74 && line.find_first_not_of('-') == std::string_view::npos;
}

// With which mpirun and OpenMPI begin to explain at length, up to a closing rule, what failure()
// tells shortly.
constexpr std::string_view kLongMessages[] = {
    "mpirun has exited due to process rank ",
    "ORTE has lost communication with a remote daemon.",
    "ORTE was unable to reliably start one or more daemons.",
    "An MPI communication peer process has unexpectedly disconnected.",
};

WorkerFailure lost(std::string text) { return {-1, kWorkersLost, 0, false, std::move(text)}; }

int number(const std::ssub_match& match) { return std::stoi(match.str()); }

}  // namespace

std::optional<std::string> MpirunOutput::take(std::string_view line) {
  static const std::regex tag(R"(^\[\d+,(\d+)\]<std(?:out|err)>:)");
  std::string text(line);
  std::smatch match;
  if (std::regex_search(text, match, tag))
    return fmt::format("worker {}: {}", match[1].str(), match.suffix().str());

  look_for_failure(text);
  look_for_lost_machine(text);
  if (std::ranges::any_of(kLongMessages, [&](auto begin) { return text.starts_with(begin); }))
    in_long_message_ = true;
  if (is_rule(text)) {
    in_long_message_ = false;
    between_rules_ = !between_rules_;
    return std::nullopt;
  }
  static const std::regex details(
      R"(^with errorcode -?\d+\.$|^  Process name: \[\[\d+,\d+\],\d+\]$|^  Exit code:    \d+$)");
  const bool known = std::ranges::any_of(
      kKnown, [&](std::string_view part) { return text.find(part) != std::string::npos; });
  // A worker's own message may come in between.
  if (known || std::regex_search(text, details)) return std::nullopt;
  if (between_rules_ && text.empty()) return std::nullopt;
  if (in_long_message_ && !text.starts_with("ballast: ") && !is_for_relay(text))
    return std::nullopt;
  return text;
}

void MpirunOutput::look_for_failure(const std::string& line) {
  static const std::regex by_signal(
      R"(process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)(?: \((.*)\))?)");
  static const std::regex improperly(R"(has exited due to process rank (\d+) with PID)");
  static const std::regex aborted(R"(^MPI_ABORT was invoked on rank (\d+) in communicator)");
  static const std::regex name(R"(^  Process name: \[\[\d+,\d+\],(\d+)\])");
  static const std::regex abort_code(R"(^with errorcode (-?\d+)\.)");
  static const std::regex exit_code(R"(^  Exit code:\s+(\d+))");
  std::smatch match;
  if (std::regex_search(line, match, by_signal)) {
    remember({number(match[1]), 0, number(match[3]), false,
              fmt::format("worker {} was ended by signal {} ({}) on {}", match[1].str(),
                          match[3].str(), match[4].str(), match[2].str())});
  } else if (std::regex_search(line, match, improperly)) {
    remember({number(match[1]), 1, 0, false,
              fmt::format("worker {} ended without the others", match[1].str())});
  } else if (std::regex_search(line, match, aborted) || std::regex_search(line, match, name)) {
    worker_ = number(match[1]);
  } else if (worker_ && std::regex_search(line, match, abort_code)) {
    remember({*worker_, number(match[1]), 0, true,
              fmt::format("worker {} ended the job with code {}", *worker_, match[1].str())});
  } else if (worker_ && std::regex_search(line, match, exit_code)) {
    remember({*worker_, number(match[1]), 0, false,
              fmt::format("worker {} ended with code {}", *worker_, match[1].str())});
  }
}

void MpirunOutput::name_lost_machines(const std::vector<std::string>& names,
                                      bool workers_had_come) {
  if (names.empty()) return;
  const std::string all = fmt::format("{}", fmt::join(names, ", "));
  const char* are = names.size() == 1 ? "is" : "are";
  remember(lost(workers_had_come
                    ? fmt::format("{} {} lost: the machine or its network is down, or mpirun's "
                                  "daemon there has ended",
                                  all, are)
                    : fmt::format("{}: mpirun's daemon (orted) could not be started there, or "
                                  "ended before the workers had come; ssh has to reach the "
                                  "machine without a password",
                                  all)));
}

void MpirunOutput::look_for_lost_machine(const std::string& line) {
  static const std::regex daemon(R"(^  Remote daemon: \[\[\d+,\d+\],\d+\] on node (\S+))");
  static const std::regex peer(R"(^  Peer host:\s+(\S+))");
  std::smatch match;
  if (std::regex_search(line, match, daemon)) {
    has_lost_machine_ = true;
    name_lost_machines({match[1].str()});
  } else if (std::regex_search(line, match, peer)) {
    if (!lost_peer_) lost_peer_ = lost(fmt::format("a worker on {} is lost", match[1].str()));
  } else if (line.starts_with("ORTE was unable to reliably start one or more daemons.")) {
    has_lost_machine_ = true;
    lost_daemon_ = lost("mpirun's daemon on a machine is lost, or could not be started there");
  }
}

const std::optional<WorkerFailure>& MpirunOutput::failure() const {
  if (failure_) return failure_;
  return lost_peer_ ? lost_peer_ : lost_daemon_;
}

void MpirunOutput::remember(WorkerFailure failure) {
  if (!failure_) failure_ = std::move(failure);
}

}  // namespace ballast::comm
