// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/mpirun_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

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
    "mpirun: Forwarding signal ",
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

int number(const std::ssub_match& match) { return std::stoi(match.str()); }

}  // namespace

std::optional<std::string> MpirunOutput::take(std::string_view line) {
  static const std::regex tag(R"(^\[\d+,(\d+)\]<std(?:out|err)>:)");
  std::string text(line);
  std::smatch match;
  if (std::regex_search(text, match, tag))
    return fmt::format("worker {}: {}", match[1].str(), match.suffix().str());

  look_for_failure(text);
  // mpirun explains at length what it means to end without MPI_Finalize: up to its closing rule.
  if (text.starts_with("mpirun has exited due to process rank ")) in_long_message_ = true;
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

void MpirunOutput::remember(WorkerFailure failure) {
  if (!failure_) failure_ = std::move(failure);
}

}  // namespace ballast::comm
