// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "ballast/studio/serving/http_rules.h"
#include "ballast/studio/serving/http_server.h"

namespace boost::asio {
class io_context;
}

namespace ballast::serving {

// What holds for every connection. Outlives them.
struct ConnectionRules {
  AcceptedHosts hosts;
  // Gets each request that is whole and comes from a page of ours, or from no page.
  std::function<void(HttpRequest, std::shared_ptr<Responder>)> dispatch;
};

// A client's connection, which has one request at a time. All calls are made on the thread that
// runs its io_context.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  virtual void start() = 0;
  virtual void close() = 0;
  // Closes it where the client has let a time limit pass. False: it has ended.
  virtual bool check(std::chrono::steady_clock::time_point now) = 0;
};

std::shared_ptr<HttpConnection> make_connection(std::shared_ptr<boost::asio::io_context> io,
                                                int descriptor, const ConnectionRules& rules);

// A whole answer that refuses a client, which is then let go of.
std::string refusal_bytes(const HttpResponse& response);

}  // namespace ballast::serving
