// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/remote_daemons.h"

#include <algorithm>
#include <iterator>

#include "ballast/comm/processes.h"

namespace ballast::comm {

RemoteDaemons::RemoteDaemons(pid_t mpirun, const std::vector<std::string>& hosts)
    : mpirun_(mpirun) {
  for (const std::string& host : hosts) hosts_.insert(host.substr(0, host.find(':')));
}

std::set<std::string> RemoteDaemons::present() const {
  std::set<std::string> found;
  if (hosts_.empty()) return found;
  for (const Process& child : children_of(mpirun_)) {
    const auto words = command_line_of(child.id);  // empty of one that has ended
    const auto host =
        std::ranges::find_if(words, [&](const std::string& word) { return hosts_.contains(word); });
    if (host != words.end()) found.insert(*host);
  }
  return found;
}

std::vector<std::string> RemoteDaemons::gone() const {
  const std::set<std::string> now = present();
  std::vector<std::string> missing;
  std::ranges::set_difference(known_, now, std::back_inserter(missing));
  return missing;
}

}  // namespace ballast::comm
