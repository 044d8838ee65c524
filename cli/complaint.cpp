// SPDX-License-Identifier: Apache-2.0
#include "cli/complaint.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "ballast/comm/communicator.h"
#include "ballast/comm/launch.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "cli/out_of_memory.h"

namespace ballast::cli {
namespace {

int complain_of_lost_output() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0) return kNobodyReads;
  return complain("cannot write to standard output: it is full or closed", kUserMistake);
}

}  // namespace

int complain(const std::string& message, int code) {
  log_error_line(fmt::format("ballast: {}", message));
  return code;
}

int complain_of_exception(const std::string& prefix) {
  if (std::ferror(stdout) != 0)
    return complain_of_lost_output();  // fmt throws when it cannot print
  try {
    throw;
  } catch (const comm::WorkersLost& error) {
    return complain(error.what(), comm::kWorkersLost);  // it names its worker itself
  } catch (const UserError& error) {
    return complain(prefix + error.what(), kUserMistake);
  } catch (const std::system_error& error) {  // of files, threads: the machine's state
    return complain(prefix + error.what(), kUserMistake);
  } catch (const std::bad_alloc&) {
    return complain(prefix + out_of_memory(), kUserMistake);
  } catch (const c10::Error& error) {
    const std::string text = out_of_memory(error);
    if (!text.empty()) return complain(prefix + text, kUserMistake);
    return complain(fmt::format("{}internal error: {}", prefix, error.what()), kOurFault);
  } catch (const std::exception& error) {
    return complain(fmt::format("{}internal error: {}", prefix, error.what()), kOurFault);
  }
}

int with_output_written(int code) {
  if (code != 0) return code;
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : complain_of_lost_output();
}

}  // namespace ballast::cli
