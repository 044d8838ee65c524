// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "ballast/studio/serving/site_files.h"

namespace ballast::serving {
namespace {

std::string content_type_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {{
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".json", "application/json"},
  }};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return std::string(type);
  }
  throw std::logic_error("no content type for a site's file: " + std::string(name));
}

void add(HttpServer& server, const std::string& path, const SiteFile& file) {
  server.get(path, [type = content_type_of(file.name), text = file.text](
                       const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    responder->answer({.status = 200, .content_type = type, .body = std::string(text)});
  });
}

}  // namespace

void add_site(HttpServer& server) {
  for (const SiteFile& file : site_files()) {
    add(server, fmt::format("/{}", file.name), file);
    if (file.name == "index.html") {
      add(server, "/", file);
      add(server, "/inspect", file);
    }
    if (file.name == "live.html") add(server, "/live", file);
  }
}

}  // namespace ballast::serving
