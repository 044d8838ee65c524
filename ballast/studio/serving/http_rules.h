// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::serving {

// What stands between a method and "HTTP/1.1".
struct Target {
  std::string path;                          // decoded; begins with '/'
  std::map<std::string, std::string> query;  // decoded; the last of a name counts
};
// Nothing: it is not well-formed, or holds a zero byte.
std::optional<Target> read_target(std::string_view target);

// The names by which a server may be asked. A page of another site can have its own name lead to
// this machine, but the browser then says that name in Host.
class AcceptedHosts {
 public:
  // `address`: where the server listens; 0.0.0.0 and :: accept every IP address.
  AcceptedHosts(std::string address, std::vector<std::string> names);
  // The value of a Host header. Any port will do: the server may be reached through another one.
  bool accept(std::string_view host) const;

 private:
  std::string address_;
  std::vector<std::string> names_;
};

// Whether a page of `origin` ("http://localhost:8080") was had from the server that is asked as
// `host` ("localhost:8080").
bool is_same_origin(std::string_view origin, std::string_view host);

// "Not Found" for 404.
std::string_view reason_of(int status);

}  // namespace ballast::serving
