// SPDX-License-Identifier: Apache-2.0
// A library for mpirun alone, which the dynamic linker loads before others (LD_PRELOAD): whoever
// wants to listen on all networks listens on this machine. OpenMPI has no option for that.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace {

using Bind = int (*)(int, const sockaddr*, socklen_t);

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(int fd, const sockaddr* address,
                                                           socklen_t size) noexcept {
  const auto next = reinterpret_cast<Bind>(::dlsym(RTLD_NEXT, "bind"));
  if (address != nullptr && address->sa_family == AF_INET && size == sizeof(sockaddr_in)) {
    sockaddr_in here;
    std::memcpy(&here, address, sizeof(here));
    if (here.sin_addr.s_addr == htonl(INADDR_ANY)) here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return next(fd, reinterpret_cast<const sockaddr*>(&here), size);
  }
  if (address != nullptr && address->sa_family == AF_INET6 && size == sizeof(sockaddr_in6)) {
    sockaddr_in6 here;
    std::memcpy(&here, address, sizeof(here));
    if (IN6_IS_ADDR_UNSPECIFIED(&here.sin6_addr)) here.sin6_addr = in6addr_loopback;
    return next(fd, reinterpret_cast<const sockaddr*>(&here), size);
  }
  return next(fd, address, size);
}
