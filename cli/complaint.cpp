// SPDX-License-Identifier: Apache-2.0
#include "cli/complaint.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>

#include "ballast/comm/communicator.h"
#include "ballast/comm/launch.h"
#include "ballast/system/error.h"

namespace ballast::cli {

int complain(const std::string& message, int code) {
  // One write: lines of several workers come through one pipe.
  std::fputs(fmt::format("ballast: {}\n", message).c_str(), stderr);
  return code;
}

int complain_of_exception(const std::string& prefix) {
  try {
    throw;
  } catch (const WorkersLost& error) {
    return complain(error.what(), kWorkersLost);  // it names its worker itself
  } catch (const UserError& error) {
    return complain(prefix + error.what(), kUserMistake);
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(prefix + error.what(), kUserMistake);
  } catch (const std::exception& error) {
    return complain(fmt::format("{}internal error: {}", prefix, error.what()), kOurFault);
  }
}

}  // namespace ballast::cli
