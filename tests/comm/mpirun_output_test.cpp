// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/mpirun_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "ballast/system/console_frame.h"
#include "ballast/system/stop_signal.h"

namespace ballast::comm {
namespace {

const std::string kRule(74, '-');

// What is shown of `text`, line by line.
std::string shown(MpirunOutput& output, const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (const auto kept = output.take(line)) result += *kept + "\n";
  }
  return result;
}

TEST(MpirunOutput, AWorkerEndedByASignalIsNamed) {
  MpirunOutput output;
  EXPECT_EQ(
      shown(output, "[vm:11394] Read -1, expected 524288, errno = 3\n" + kRule +
                        "\nmpirun noticed that process rank 11 with PID 0 on node gpu-7 exited "
                        "on signal 11 (Segmentation fault).\n" +
                        kRule + "\n"),
      "");
  ASSERT_TRUE(output.failure());
  EXPECT_EQ(output.failure()->worker, 11);
  EXPECT_EQ(output.failure()->signal, 11);
  EXPECT_EQ(output.failure()->text,
            "worker 11 was ended by signal 11 (Segmentation fault) on gpu-7");
}

TEST(MpirunOutput, AnExitCodeIsThatOfTheWorkerNamedBefore) {
  MpirunOutput output;
  EXPECT_EQ(
      shown(output, "ballast: the disk is full\n" + kRule +
                        "\nmpirun detected that one or more processes exited with non-zero status, "
                        "thus causing\nthe job to be terminated. The first process to do so was:\n"
                        "\n  Process name: [[9000,1],3]\n  Exit code:    2\n" +
                        kRule + "\n"),
      "ballast: the disk is full\n");
  ASSERT_TRUE(output.failure());
  EXPECT_EQ(output.failure()->worker, 3);
  EXPECT_EQ(output.failure()->code, 2);
}

TEST(MpirunOutput, TheFirstFailureCounts) {
  MpirunOutput output;
  shown(output,
        "MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD\nwith errorcode 2.\n"
        "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 15 "
        "(Terminated).\n");
  ASSERT_TRUE(output.failure());
  EXPECT_EQ(output.failure()->worker, 5);
  EXPECT_EQ(output.failure()->code, 2);
}

TEST(MpirunOutput, AWorkersMessageWithinMpirunsOwnIsKept) {
  MpirunOutput output;
  EXPECT_EQ(shown(output, kRule +
                              "\nmpirun has exited due to process rank 1 with PID 0 on\nnode vm "
                              "exiting improperly. There are three reasons this could occur:\n"
                              "ballast: worker 0 gave up\n1. this process did not call \"init\"\n" +
                              kRule + "\nafter it\n"),
            "ballast: worker 0 gave up\nafter it\n");
  ASSERT_TRUE(output.failure());
  EXPECT_EQ(output.failure()->worker, 1);
}

TEST(MpirunOutput, SoIsALineThatAWorkerMarkedForItsLauncher) {
  MpirunOutput output;
  const std::string frame = frame_of_line(Weight::kError, {{"ballast: the disk is full"}});
  EXPECT_EQ(shown(output, kRule +
                              "\nmpirun has exited due to process rank 1 with PID 0 on\nnode vm "
                              "exiting improperly. There are three reasons this could occur:\n" +
                              frame + "1. this process did not call \"init\"\n" + kRule + "\n"),
            frame);
  // Behind the tag that mpirun puts before it.
  EXPECT_EQ(shown(output, "[1,3]<stderr>:" + frame), "worker 3: " + frame);
}

TEST(MpirunOutput, TagsBecomeNamesAndTaggedLinesAreNeverTakenForMpiruns) {
  MpirunOutput output;
  EXPECT_EQ(shown(output,
                  "[1,12]<stderr>:step 3\n[1,0]<stdout>:\n"
                  "[1,2]<stderr>:  MPI_ABORT was invoked on rank 7 in communicator X\n"),
            "worker 12: step 3\nworker 0: \n"
            "worker 2:   MPI_ABORT was invoked on rank 7 in communicator X\n");
  EXPECT_FALSE(output.failure());
}

TEST(MpirunOutput, ThatWorkersStopIsLeftToTheLauncher) {
  MpirunOutput output;
  EXPECT_EQ(shown(output, "step 3\n" + std::string(kStopMessage) + "saved\n"), "step 3\nsaved\n");
}

TEST(MpirunOutput, AWorkerThatEndedTheJobItselfHasSaidWhy) {
  MpirunOutput aborted, left;
  shown(aborted, "MPI_ABORT was invoked on rank 5 in communicator X\nwith errorcode 75.\n");
  ASSERT_TRUE(aborted.failure());
  EXPECT_TRUE(aborted.failure()->told);
  shown(left, "  Process name: [[9000,1],3]\n  Exit code:    7\n");
  ASSERT_TRUE(left.failure());
  EXPECT_FALSE(left.failure()->told);
}

TEST(MpirunOutput, AMachineThatIsLostIsNamed) {
  MpirunOutput output;
  EXPECT_EQ(
      shown(
          output,
          kRule +
              "\nORTE has lost communication with a remote daemon.\n\n  HNP daemon   : "
              "[[1245,0],0] on node login\n  Remote daemon: [[1245,0],2] on node node7\n\nThis is "
              "usually due to either a failure of the TCP network\n" +
              kRule + "\n"),
      "");
  EXPECT_TRUE(output.has_lost_machine());
  ASSERT_TRUE(output.failure());
  EXPECT_EQ(
      output.failure()->text,
      "node7 is lost: the machine or its network is down, or mpirun's daemon there has ended");
  EXPECT_EQ(output.failure()->code, 75);
  EXPECT_FALSE(output.failure()->told);
}

TEST(MpirunOutput, ADaemonThatNeverStartedIsNotCalledLost) {
  MpirunOutput output;
  output.name_lost_machines({"node3", "node7"}, /*workers_had_come=*/false);
  ASSERT_TRUE(output.failure());
  EXPECT_EQ(output.failure()->text,
            "node3, node7: mpirun's daemon (orted) could not be started there, or ended before the "
            "workers had come; ssh has to reach the machine without a password");
  EXPECT_EQ(output.failure()->code, 75);
}

TEST(MpirunOutput, WhatPointsToALostMachineGivesWayToWhatIsCertain) {
  MpirunOutput output;
  EXPECT_EQ(shown(output, kRule +
                              "\nORTE was unable to reliably start one or more daemons.\nThis "
                              "usually is caused by:\n" +
                              kRule + "\nssh: connect to host node7: Connection timed out\n"),
            "ssh: connect to host node7: Connection timed out\n");
  EXPECT_THAT(output.failure()->text, ::testing::HasSubstr("could not be started"));
  shown(output,
        "An MPI communication peer process has unexpectedly disconnected.  This\n  Local "
        "host: node1\n  Local PID:  15\n  Peer host:  node7\n" +
            kRule + "\n");
  EXPECT_EQ(output.failure()->text, "a worker on node7 is lost");
  EXPECT_TRUE(output.has_lost_machine()) << "by the daemon; a worker may end by itself";
  output.name_lost_machines({});
  EXPECT_EQ(output.failure()->text, "a worker on node7 is lost");
  MpirunOutput other = output;
  other.name_lost_machines({"node7", "node8"});
  EXPECT_THAT(other.failure()->text, ::testing::StartsWith("node7, node8 are lost"));
  shown(output, "MPI_ABORT was invoked on rank 5 in communicator X\nwith errorcode 2.\n");
  EXPECT_EQ(output.failure()->code, 2);
}

TEST(MpirunOutput, WhatItDoesNotKnowIsShown) {
  MpirunOutput output;
  const std::string text = "There are not enough slots available\n\nstep 1 loss 3.2\n-----\n";
  EXPECT_EQ(shown(output, text), text);
  EXPECT_FALSE(output.failure());
}

}  // namespace
}  // namespace ballast::comm
