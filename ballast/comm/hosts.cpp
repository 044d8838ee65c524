// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "ballast/system/error.h"
#include "ballast/system/number_from.h"

namespace ballast::comm {
namespace {

struct Host {
  std::string name;
  int workers = 0;  // 0: not said
};

Host parse(const std::string& text) {
  const size_t colon = text.find(':');
  Host host{text.substr(0, colon)};
  // mpirun takes "+e" and the like for something else.
  constexpr std::string_view kOfNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  const bool plain = host.name.find_first_not_of(kOfNames) == std::string::npos;
  if (host.name.empty() || !plain || host.name.starts_with('-'))
    fail("--hosts: \"{}\" is no name of a machine", host.name);
  if (colon == std::string::npos) return host;
  host.workers = number_from<int>(std::string_view(text).substr(colon + 1)).value_or(0);
  if (host.workers < 1)
    fail("--hosts: \"{}\" should be a name, or a name, a colon and how many workers", text);
  return host;
}

}  // namespace

std::string mpirun_hosts(const std::vector<std::string>& hosts, int workers) {
  if (hosts.empty()) return fmt::format("localhost:{}", workers);
  std::vector<Host> parsed;
  std::set<std::string> names;
  int64_t said = 0, told = 0;
  for (const std::string& text : hosts) {
    const Host& host = parsed.emplace_back(parse(text));
    if (!names.insert(host.name).second) fail("--hosts names {} twice", host.name);
    said += host.workers;
    told += host.workers > 0 ? 1 : 0;
  }
  const int count = static_cast<int>(parsed.size());
  if (told != 0 && told != count)
    fail("--hosts tells the workers of some machines and not of others; tell all or none");
  if (told == 0 && workers < count)
    fail("--hosts names {} machines for {} worker(s): each needs one at least", count, workers);
  if (told != 0 && said != workers)
    fail("--hosts has room for {} workers, and --workers is {}", said, workers);
  std::string list;
  for (int i = 0; i < count; ++i) {
    const int share = told != 0 ? parsed[i].workers : workers / count + (i < workers % count);
    list += fmt::format("{}{}:{}", i == 0 ? "" : ",", parsed[i].name, share);
  }
  return list;
}

}  // namespace ballast::comm
