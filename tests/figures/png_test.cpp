// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ballast/studio/figures/line_chart.h"
#include "ballast/system/file.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::figures {
namespace {

// Width and height as the header of a PNG file tells them.
std::pair<int, int> size_of_png(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  const auto number = [&](size_t at) {
    int value = 0;
    for (size_t i = at; i < at + 4; ++i) value = 256 * value + static_cast<unsigned char>(bytes[i]);
    return value;
  };
  EXPECT_EQ(bytes.substr(1, 3), "PNG");
  return {number(16), number(20)};
}

TEST(Png, HasTwiceThePixelsOfTheDrawing) {
  const test::TemporaryFolder folder;
  const LineChart chart = {.title = "a",
                           .description = "b",
                           .heading = "c",
                           .x = {.label = "x"},
                           .y = {.label = "y"},
                           .series = {{.name = "line", .points = {{0, 1}, {1, 2}}}}};
  const Drawing drawing = draw(chart, kWideFigure);
  write_text_atomically(folder.path() / "a.svg", drawing.svg);
  ASSERT_EQ(write_png(folder.path() / "a.svg", folder.path() / "a.png"), PngResult::kWritten);
  EXPECT_EQ(size_of_png(folder.path() / "a.png"), std::make_pair(1520, 800));
}

TEST(Png, AFileThatIsNoDrawingIsAnErrorThatNamesIt) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder.path() / "a.svg", "<svg");
  EXPECT_THAT(test::error_of([&] { write_png(folder.path() / "a.svg", folder.path() / "a.png"); }),
              testing::HasSubstr("a.svg"));
}

TEST(Png, WithoutTheProgramThereIsNone) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder.path() / "a.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
  EXPECT_EQ(test::run_in_child([&] {
              ::setenv("PATH", folder.path().c_str(), 1);
              return write_png(folder.path() / "a.svg", folder.path() / "a.png") ==
                             PngResult::kNoProgram
                         ? 0
                         : 1;
            }),
            0);
}

}  // namespace
}  // namespace ballast::figures
