// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/comm/launch.h"

namespace ballast::test {

// Beside this program: the build folder, or that of a dist.
inline std::string program_beside(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

// Workers that NCCL takes for those of machines of their own: they may share a GPU. A name for each
// is enough.
inline std::vector<std::string> apart(const std::string& program, const std::string& arguments) {
  return {"unshare",
          "--map-root-user",
          "--uts",
          "sh",
          "-c",
          fmt::format("hostname worker$OMPI_COMM_WORLD_RANK && exec {} {}", program, arguments)};
}

// All tests of a program with workers_main.cpp, on `workers` real processes with data of their own:
// at least `tests`.
inline void expect_all_pass(int workers, const std::vector<std::string>& command, int tests = 10) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const comm::LaunchResult result = comm::run_workers({workers, command});
  const std::string output = testing::internal::GetCapturedStdout(),
                    errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.code, 0) << result.reason << "\n" << output << errors;
  for (int worker = 0; worker < workers; ++worker) {
    const std::string says = fmt::format("worker {} of {}: ", worker, workers);
    const size_t said = errors.find(says);
    ASSERT_NE(said, std::string::npos) << errors;
    EXPECT_GE(std::atoi(errors.c_str() + said + says.size()), tests) << errors;
  }
}

}  // namespace ballast::test
