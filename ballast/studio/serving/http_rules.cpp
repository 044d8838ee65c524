// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/http_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace ballast::serving {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int lower = std::tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

enum class Plus { kAsItIs, kSpace };

std::optional<std::string> decode(std::string_view text, Plus plus) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
      if (high < 0 || low < 0) return {};
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus == Plus::kSpace) {
      c = ' ';
    }
    if (c == '\0') return {};
    out += c;
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_ip_address(const std::string& text) {
  in6_addr room = {};
  return ::inet_pton(AF_INET, text.c_str(), &room) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &room) == 1;
}

// The host without its port, in lower case; of "[::1]:8080" it is "::1". Empty: not well-formed.
std::string name_of_host(std::string_view host) {
  std::string_view name = host, rest;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return {};
    name = host.substr(1, end - 1);
    rest = host.substr(end + 1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    rest = host.substr(colon);
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!rest.empty() && (rest.front() != ':' || !std::ranges::all_of(rest.substr(1), is_digit)))
    return {};
  return lower(name);
}

}  // namespace

std::optional<Target> read_target(std::string_view target) {
  if (!target.starts_with('/')) return {};
  const size_t mark = target.find('?');
  const auto path = decode(target.substr(0, mark), Plus::kAsItIs);
  if (!path) return {};
  Target out{.path = *path, .query = {}};
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const auto name = decode(part.substr(0, equals), Plus::kSpace);
    const auto value = equals == std::string_view::npos
                           ? std::optional<std::string>("")
                           : decode(part.substr(equals + 1), Plus::kSpace);
    if (!name || !value) return {};
    if (!part.empty()) out.query[*name] = *value;
  }
  return out;
}

AcceptedHosts::AcceptedHosts(std::string address, std::vector<std::string> names)
    : address_(lower(address)), names_(std::move(names)) {
  for (std::string& name : names_) name = lower(name);
}

bool AcceptedHosts::accept(std::string_view host) const {
  const std::string name = name_of_host(host);
  if (name.empty()) return false;
  if (name == "localhost" || name == address_ || std::ranges::count(names_, name) > 0) return true;
  return (address_ == "0.0.0.0" || address_ == "::") && is_ip_address(name);
}

bool is_same_origin(std::string_view origin, std::string_view host) {
  // A page may also have come through a proxy that speaks TLS.
  return lower(origin) == "http://" + lower(host) || lower(origin) == "https://" + lower(host);
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "Success" : "Failure";
  }
}

}  // namespace ballast::serving
