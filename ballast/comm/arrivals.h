// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ballast::comm {

// Which call of which group: `number` counts the calls of the group from 1.
struct CallNumber {
  uint64_t group = 0;
  uint64_t number = 0;
};

// What a worker tells of itself when another asks who is missing.
struct WorkerState {
  enum class Answer {
    kAnswered,
    kGone,    // its process has ended: its port is closed
    kSilent,  // stopped, or its machine or the network is down
  };
  int worker = 0;
  Answer answer = Answer::kSilent;
  // Only where it answered:
  bool arrived = false;      // has begun the call that was asked for
  bool waiting = false;      // waits in some call now
  std::string call;          // what the call of that number is here, if it is a recent one
  std::string last_call;     // what it began last, in any group; empty: nothing yet
  double last_call_age = 0;  // seconds
  std::string machine = {};  // its name, where workers are on several; told by RollCall
};

// How far other workers must reach us.
enum class Reach { kThisMachine, kNetwork };

// Where a worker stands, for others to ask. A collective cannot know who is missing, and a worker
// that computes or hangs cannot be asked over MPI. So each worker has a thread that answers UDP
// datagrams with what the worker wrote down last. Nothing is sent unless somebody asks; there are
// no connections and no central process. A process that is stopped does not answer; one that ended
// has its port closed. Only datagrams with the job's secret are answered. Thread-safe.
class Arrivals {
 public:
  // Opens a port and starts the thread. UserError: the system gives none.
  Arrivals(int worker, uint64_t secret, Reach reach);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Where others reach this worker, as text: "port address address ...".
  std::string address() const;
  // Tells the addresses of all workers, in their order.
  void meet(std::span<const std::string> addresses);

  // Writes down that a call has begun; and whether the worker now waits in its last call.
  void began(CallNumber call, std::string text);
  void waits(bool waiting);

  // Asks `workers` (not this one) whether they have begun `call`, and returns when all have
  // answered, or after `patience`. In the order asked.
  std::vector<WorkerState> ask(std::span<const int> workers, CallNumber call,
                               std::chrono::milliseconds patience) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Two processes with the same text can reach each other at 127.0.0.1: the machine's name, its boot,
// and its network namespace.
std::string machine_identity();

}  // namespace ballast::comm
