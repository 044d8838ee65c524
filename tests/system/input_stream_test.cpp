// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/input_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "ballast/system/file.h"
#include "ballast/system/stop_signal.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast {
namespace {

using testing::HasSubstr;

class Fifo {
 public:
  Fifo() { EXPECT_EQ(::mkfifo(path().c_str(), 0600), 0); }
  fs::path path() const { return folder_ / "fifo"; }

 private:
  test::TemporaryFolder folder_;
};

// A process that gives the FIFO `text`, in two pieces.
pid_t start_writer(const fs::path& path, const std::string& text) {
  return test::start_child([&] {
    const int end = ::open(path.c_str(), O_WRONLY);
    const size_t half = text.size() / 2;
    bool ok = ::write(end, text.data(), half) == static_cast<ssize_t>(half);
    ::usleep(10000);  // the reader may find nothing meanwhile
    ok = ::write(end, text.data() + half, text.size() - half) > 0 && ok;
    return ok ? 0 : 1;
  });
}

TEST(InputStream, AFifoIsReadToItsEnd) {
  const Fifo fifo;
  const std::string text(200'000, 'x');
  const pid_t writer = start_writer(fifo.path(), text);
  EXPECT_EQ(read_text(fifo.path()), text);
  EXPECT_EQ(test::wait_for_child(writer), 0);
}

TEST(InputStream, AStopEndsTheWaitForAWriterThatNeverComes) {
  const Fifo fifo;
  const StopSignal stop;
  const pid_t asking = test::start_child([] {
    ::usleep(50000);
    return ::kill(::getppid(), SIGTERM);
  });
  EXPECT_THAT(test::error_of([&] { read_text(fifo.path()); }), HasSubstr("stopped while reading"));
  EXPECT_EQ(test::wait_for_child(asking), 0);
}

TEST(InputStream, AFileWithoutASizeIsReadAsWell) {
  EXPECT_THAT(read_text("/proc/self/status"), HasSubstr("Name:"));
}

TEST(InputStream, AnEmptyFileIsAnEmptyText) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder / "empty", "");
  EXPECT_EQ(read_text(folder / "empty"), "");
}

TEST(InputStream, WhatCannotBeReadIsNamed) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(test::error_of([&] { InputStream(folder / "nowhere"); }),
              HasSubstr("nowhere: No such"));
  EXPECT_THAT(test::error_of([&] { read_text(folder.path()); }), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace ballast
