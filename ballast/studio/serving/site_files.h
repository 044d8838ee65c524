// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "ballast/studio/serving/http_server.h"

namespace ballast::serving {

struct SiteFile {
  std::string_view name, text;
};
// The files of site/, which are a part of the program (cmake/SiteFiles.cmake).
std::span<const SiteFile> site_files();

// Serves each at /NAME, and the pages: / and /inspect are index.html, /live is live.html.
void add_site(HttpServer& server);

}  // namespace ballast::serving
