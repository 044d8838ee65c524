// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/arrivals.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "ballast/comm/arrival_packets.h"
#include "ballast/comm/quiet_thread.h"
#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRecentCalls = 16;
constexpr auto kAskAgain = std::chrono::milliseconds(100);

class Socket {
 public:
  Socket() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

sockaddr_in socket_address(uint32_t network_order_ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = network_order_ip;
  address.sin_port = htons(port);
  return address;
}

// The IPv4 addresses of this machine that others may reach, as text; with no network, its own.
std::vector<std::string> machine_addresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* ip = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (::inet_ntop(AF_INET, &ip->sin_addr, text.data(), text.size()) != nullptr)
      found.emplace_back(text.data());
  }
  ::freeifaddrs(list);
  if (found.empty()) found.emplace_back("127.0.0.1");
  return found;
}

// One worker that is asked: a socket for each of its addresses, connected, so that the system tells
// us of a closed port.
struct Asked {
  std::vector<Socket> sockets;
  std::vector<bool> refused;
  bool answered = false;

  bool gone() const {
    return !refused.empty() && std::find(refused.begin(), refused.end(), false) == refused.end();
  }
};

}  // namespace

struct Arrivals::State {
  struct Group {
    uint64_t begun = 0;
    std::array<std::string, kRecentCalls> texts;  // of call n: n % kRecentCalls
  };

  const int worker;
  const uint64_t secret;
  const Reach reach;
  Socket socket;
  int stop = -1;
  std::vector<std::vector<sockaddr_in>> addresses;  // of each worker
  std::thread thread;

  std::mutex mutex;  // of all below
  std::map<uint64_t, Group> groups;
  std::string last_text;
  Clock::time_point last_time;
  bool waiting = false;

  Answer answer(const Question& question) {
    const std::lock_guard lock(mutex);
    Answer answer;
    answer.secret = secret;
    answer.call = question.call;
    answer.worker = worker;
    answer.waiting = waiting;
    const auto group = groups.find(question.call.group);
    const uint64_t begun = group == groups.end() ? 0 : group->second.begun;
    answer.arrived = begun >= question.call.number;
    if (answer.arrived && group != groups.end() && question.call.number + kRecentCalls > begun)
      put_text(answer.text, group->second.texts[question.call.number % kRecentCalls]);
    put_text(answer.last_text, last_text);
    answer.last_call_age = std::chrono::duration<double>(Clock::now() - last_time).count();
    return answer;
  }

  void serve() {
    std::array<pollfd, 2> events{{{socket.fd(), POLLIN, 0}, {stop, POLLIN, 0}}};
    for (;;) {
      if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR) return;
      if (events[1].revents != 0) return;
      std::array<std::byte, sizeof(Question) + 1> bytes;  // one more tells those that are too long
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      const ssize_t got = ::recvfrom(socket.fd(), bytes.data(), bytes.size(), 0,
                                     reinterpret_cast<sockaddr*>(&from), &size);
      if (got < 0) continue;
      const auto question = read_question(std::span(bytes).first(static_cast<size_t>(got)), secret);
      if (!question) continue;
      const Answer reply = answer(*question);
      // One that is lost is asked for again.
      (void)::sendto(socket.fd(), &reply, sizeof(reply), MSG_NOSIGNAL,
                     reinterpret_cast<sockaddr*>(&from), size);
    }
  }
};

Arrivals::Arrivals(int worker, uint64_t secret, Reach reach)
    : state_(new State{worker, secret, reach, {}, -1, {}, {}, {}, {}, {}, Clock::now(), false}) {
  const uint32_t ip = htonl(reach == Reach::kThisMachine ? INADDR_LOOPBACK : INADDR_ANY);
  const sockaddr_in any = socket_address(ip, 0);
  state_->stop = ::eventfd(0, EFD_CLOEXEC);
  if (::bind(state_->socket.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 ||
      state_->stop < 0) {
    fail("cannot open a UDP port for workers to find each other: {}", std::strerror(errno));
  }
  state_->thread = quiet_thread([state = state_.get()] { state->serve(); });
}

Arrivals::~Arrivals() {
  const uint64_t one = 1;
  (void)!::write(state_->stop, &one, sizeof(one));
  state_->thread.join();
  ::close(state_->stop);
}

std::string Arrivals::address() const {
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  ::getsockname(state_->socket.fd(), reinterpret_cast<sockaddr*>(&own), &size);
  std::string text = std::to_string(ntohs(own.sin_port));
  if (state_->reach == Reach::kThisMachine) return text + " 127.0.0.1";
  for (const std::string& address : machine_addresses()) text += " " + address;
  return text;
}

void Arrivals::meet(std::span<const std::string> addresses) {
  state_->addresses.clear();
  for (const std::string& text : addresses) {
    std::istringstream words(text);
    uint16_t port = 0;
    words >> port;
    auto& known = state_->addresses.emplace_back();
    for (std::string word; words >> word;) {
      in_addr ip{};
      if (::inet_pton(AF_INET, word.c_str(), &ip) == 1)
        known.push_back(socket_address(ip.s_addr, port));
    }
  }
}

void Arrivals::began(CallNumber call, std::string text) {
  const std::lock_guard lock(state_->mutex);
  State::Group& group = state_->groups[call.group];
  group.begun = call.number;
  group.texts[call.number % kRecentCalls] = text;
  state_->last_text = std::move(text);
  state_->last_time = Clock::now();
}

void Arrivals::waits(bool waiting) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = waiting;
}

namespace {

Asked connect_to(const std::vector<sockaddr_in>& addresses) {
  Asked asked;
  for (const sockaddr_in& address : addresses) {
    Socket socket;  // where the system gives none, the worker is silent
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      asked.sockets.push_back(std::move(socket));
  }
  asked.refused.resize(asked.sockets.size(), false);
  return asked;
}

// Takes what has come for `asked`, if it is the answer to `question`.
void receive(Asked& asked, const Question& question, WorkerState& state) {
  for (size_t i = 0; i < asked.sockets.size(); ++i) {
    std::array<std::byte, sizeof(Answer) + 1> bytes;
    const ssize_t got = ::recv(asked.sockets[i].fd(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == ECONNREFUSED) asked.refused[i] = true;
    if (got < 0) continue;
    if (read_answer(std::span(bytes).first(static_cast<size_t>(got)), question, state))
      asked.answered = true;
  }
}

// Waits for answers until `until`; false once nobody is left to wait for.
bool await_answers(std::vector<Asked>& asked, Clock::time_point until) {
  std::vector<pollfd> events;
  for (const Asked& one : asked) {
    if (one.answered || one.gone()) continue;
    for (const Socket& socket : one.sockets) events.push_back({socket.fd(), POLLIN, 0});
  }
  if (events.empty()) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  ::poll(events.data(), events.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  return true;
}

}  // namespace

std::vector<WorkerState> Arrivals::ask(std::span<const int> workers, CallNumber call,
                                       std::chrono::milliseconds patience) const {
  Question question;
  question.secret = state_->secret;
  question.call = call;
  std::vector<WorkerState> states(workers.size());
  std::vector<Asked> asked;
  for (size_t i = 0; i < workers.size(); ++i) {
    states[i].worker = workers[i];
    const auto known = static_cast<size_t>(workers[i]) < state_->addresses.size();
    asked.push_back(known ? connect_to(state_->addresses[workers[i]]) : Asked{});
  }
  const Clock::time_point end = Clock::now() + patience;
  for (bool more = true; more && Clock::now() < end;) {
    for (const Asked& one : asked) {
      if (one.answered || one.gone()) continue;
      for (const Socket& socket : one.sockets)
        (void)::send(socket.fd(), &question, sizeof(question), MSG_NOSIGNAL);
    }
    const Clock::time_point again = std::min(end, Clock::now() + kAskAgain);
    while (more && Clock::now() < again) {
      more = await_answers(asked, again);
      for (size_t i = 0; i < asked.size(); ++i) receive(asked[i], question, states[i]);
    }
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!asked[i].answered && asked[i].gone()) states[i].answer = WorkerState::Answer::kGone;
  }
  return states;
}

std::string machine_identity() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 128> network{};
  (void)!::readlink("/proc/self/ns/net", network.data(), network.size() - 1);
  return fmt::format("{} {} {}", name.data(), boot, network.data());
}

}  // namespace ballast::comm
