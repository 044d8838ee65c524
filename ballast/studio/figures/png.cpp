// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/png.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "ballast/system/error.h"
#include "ballast/system/file.h"

namespace ballast::figures {

namespace {

struct NoProgram {};

void convert(const std::string& source, const OutputFile& target) {
  std::array<std::string, 6> words = {"rsvg-convert",       "--zoom", "2",
                                      "--background-color", "white",  source};
  std::array<char*, words.size() + 1> arguments{};
  for (size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, target.descriptor(), STDOUT_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) throw NoProgram();
  if (error != 0) fail("cannot start rsvg-convert: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("cannot wait for rsvg-convert: {}", std::strerror(errno));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("rsvg-convert could not turn {} into {} (its own message stands above)", source,
         target.path().string());
}

}  // namespace

PngResult write_png(const fs::path& svg, const fs::path& png) try {
  replace_file(png, [&](OutputFile& file) { convert(fs::absolute(svg), file); });
  return PngResult::kWritten;
} catch (const NoProgram&) {
  return PngResult::kNoProgram;
}

}  // namespace ballast::figures
