// SPDX-License-Identifier: Apache-2.0
#include "ballast/figures/png.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "ballast/system/error.h"

namespace ballast {

PngResult write_png(const std::filesystem::path& svg, const std::filesystem::path& png) {
  const std::string source = std::filesystem::absolute(svg),
                    target = std::filesystem::absolute(png);
  std::array<std::string, 8> words = {"rsvg-convert", "--zoom",   "2",    "--background-color",
                                      "white",        "--output", target, source};
  std::array<char*, words.size() + 1> arguments{};
  for (size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return PngResult::kNoProgram;
  if (error != 0) fail("cannot start rsvg-convert: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("cannot wait for rsvg-convert: {}", std::strerror(errno));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("rsvg-convert could not turn {} into {} (its own message stands above)", source, target);
  return PngResult::kWritten;
}

}  // namespace ballast
