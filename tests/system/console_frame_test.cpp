// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/console_frame.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

// Without the line's end, as a reader gets it.
std::string sent(std::string frame) {
  EXPECT_EQ(frame.find('\n'), frame.size() - 1) << "a frame is one line";
  frame.pop_back();
  return frame;
}

TEST(ConsoleFrame, ALineComesAsItWasSent) {
  for (const Weight weight : {Weight::kProgress, Weight::kInfo, Weight::kWarning, Weight::kError}) {
    const auto frame = read_frame(sent(frame_of_line(weight, {{"a\nb ", 3}, {"", -1}, {"c", 0}})));
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->kind, Frame::Kind::kLine);
    EXPECT_EQ(frame->weight, weight);
    ASSERT_EQ(frame->parts.size(), 3U);
    EXPECT_EQ(frame->parts[0].text, "a\nb ");
    EXPECT_EQ(frame->parts[0].importance, 3);
    EXPECT_EQ(frame->parts[1].text, "");
    EXPECT_EQ(frame->parts[1].importance, -1);
  }
}

TEST(ConsoleFrame, SoDoBarsAndTheirEnd) {
  auto frame = read_frame(sent(frame_of_bar({"train", 0.25, {{"step 1/4", 2}}})));
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, Frame::Kind::kBar);
  EXPECT_EQ(frame->bar.title, "train");
  EXPECT_EQ(frame->bar.share, 0.25);
  ASSERT_EQ(frame->bar.parts.size(), 1U);
  EXPECT_EQ(frame->bar.parts[0].text, "step 1/4");
  EXPECT_FALSE(read_frame(sent(frame_of_bar({"reading"})))->bar.share);
  EXPECT_EQ(read_frame(sent(frame_of_clearing()))->kind, Frame::Kind::kClearing);
}

TEST(ConsoleFrame, WhatWasPutBeforeItIsKept) {
  const auto frame = read_frame("worker 3: " + sent(frame_of_line(Weight::kInfo, {{"text"}})));
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->prefix, "worker 3: ");
}

TEST(ConsoleFrame, OtherLinesAndDamagedFramesAreNone) {
  const std::string whole = sent(frame_of_bar({"train", 0.25, {{"step 1/4", 2}}}));
  for (const std::string line : {"", "mpirun: something", "\x1e", "\x1ei",
                                 "\x1ez\x1f"
                                 "0 a",
                                 "\x1ei\x1f", "\x1ei\x1fx a",
                                 "\x1e"
                                 "b\x1f"
                                 "0 train",
                                 "\x1e"
                                 "b\x1f"
                                 "0 train\x1f"
                                 "0 much"})
    EXPECT_FALSE(read_frame(line)) << line;
  for (size_t size = 0; size < whole.size(); ++size) read_frame(whole.substr(0, size));
}

}  // namespace
}  // namespace ballast
