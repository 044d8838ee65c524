// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace ballast::figures {

enum class PngResult { kWritten, kNoProgram };

// Turns an SVG file into a PNG file with twice its pixels, by the program rsvg-convert (Debian:
// librsvg2-bin), where there is one. Throws UserError if that fails.
PngResult write_png(const std::filesystem::path& svg, const std::filesystem::path& png);

}  // namespace ballast::figures
