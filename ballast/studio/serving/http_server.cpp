// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/http_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "ballast/studio/serving/http_connection.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"

namespace ballast::serving {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

constexpr size_t kMaxConnections = 256;
constexpr int kHandlerThreads = 4;
constexpr std::chrono::milliseconds kBetweenChecks{500};

// Threads that run what they are given, in its order.
class HandlerThreads {
 public:
  void start(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  void add(std::function<void()> job) {
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    something_.notify_one();
  }
  // Waits for those that run; forgets the others.
  void stop() {
    std::deque<std::function<void()>> forgotten;
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      forgotten.swap(jobs_);
    }
    something_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      something_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
};

std::string address_of(const ServerOptions& options) {
  return options.address == "localhost" ? "127.0.0.1" : options.address;
}

void call(const Handler& handler, const HttpRequest& request,
          const std::shared_ptr<Responder>& responder) {
  try {
    handler(request, responder);
  } catch (const std::exception& error) {
    responder->answer(refusal_of(error));
  }
}

HttpResponse refusal_for(int status, const std::string& message, const std::string& param) {
  using Json = nlohmann::ordered_json;
  const Json error = {{"message", message},
                      {"type", status < 500 ? "invalid_request_error" : "server_error"},
                      {"param", param.empty() ? Json() : Json(param)},
                      {"code", nullptr}};
  return {.status = status,
          .body = Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace

HttpResponse refusal(int status, const std::string& message) {
  return refusal_for(status, message, "");
}

HttpResponse refusal_of(const std::exception& error) {
  if (const auto* refused = dynamic_cast<const Refused*>(&error))
    return refusal_for(refused->status(), refused->what(), refused->param());
  if (dynamic_cast<const UserError*>(&error) != nullptr) return refusal(400, error.what());
  log_warning("a request failed: {}", error.what());
  return refusal(500, error.what());
}

class HttpServer::Impl {
 public:
  explicit Impl(const ServerOptions& options)
      : io_(std::make_shared<asio::io_context>(1)),
        acceptor_(*io_),
        watch_(*io_),
        rules_{.hosts = {address_of(options), options.hosts},
               .dispatch = [this](HttpRequest request, std::shared_ptr<Responder> responder) {
                 dispatch(std::move(request), std::move(responder));
               }} {
    listen(options);
  }
  ~Impl() { stop(); }

  using Methods = std::map<std::string, Handler>;
  std::map<std::string, Methods> routes;

  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  void start() {
    handlers_.start(kHandlerThreads);
    accept();
    watch();
    thread_ = std::thread([this] { io_->run(); });
  }

  void stop() {
    if (!thread_.joinable()) return;
    asio::post(*io_, [this] {
      Error ignored;
      acceptor_.close(ignored);
      watch_.cancel();
      stopping_ = true;
      for (const auto& connection : connections_) connection->close();
      connections_.clear();
    });
    thread_.join();  // when nothing is left to be done
    handlers_.stop();
  }

 private:
  void listen(const ServerOptions& options) {
    Error error;
    const std::string address = address_of(options);
    const auto place = asio::ip::make_address(address, error);
    if (error) fail("--address {}: that is no IP address; 127.0.0.1 is this machine", address);
    const tcp::endpoint endpoint(place, options.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error == asio::error::address_in_use) {
      fail(
          "port {} of {} is taken by another program: choose one by --port, or by --port 0 any "
          "that is free",
          options.port, address);
    }
    if (error) fail("cannot listen at {}, port {}: {}", address, options.port, error.message());
  }

  void accept() {
    acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
      if (stopping_ || error == asio::error::operation_aborted) return;
      if (error) {
        accept_again_ = true;
        return;
      }
      if (connections_.size() >= kMaxConnections) {
        turn_away(std::move(socket));
      } else {
        const auto connection = make_connection(io_, socket.release(), rules_);
        connections_.push_back(connection);
        connection->start();
      }
      accept();
    });
  }

  static void turn_away(tcp::socket socket) {
    static const std::string text = refusal_bytes(
        refusal(503, fmt::format("{} clients are connected, and no more fit", kMaxConnections)));
    Error ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
  }

  // Ends connections whose time is over.
  void watch() {
    watch_.expires_after(kBetweenChecks);
    watch_.async_wait([this](const Error& error) {
      if (stopping_ || error) return;
      const auto now = std::chrono::steady_clock::now();
      std::erase_if(connections_,
                    [now](const auto& connection) { return !connection->check(now); });
      if (std::exchange(accept_again_, false)) accept();
      watch();
    });
  }

  void dispatch(HttpRequest request, std::shared_ptr<Responder> responder) {
    const auto route = routes.find(request.path);
    if (route == routes.end())
      return responder->answer(refusal(404, fmt::format("there is nothing at {}", request.path)));
    const Methods& methods = route->second;
    const auto method = methods.find(request.method == "HEAD" ? "GET" : request.method);
    if (method == methods.end()) {
      std::string allowed;
      for (const auto& [name, handler] : methods) allowed += (allowed.empty() ? "" : ", ") + name;
      HttpResponse refused =
          refusal(405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method));
      refused.headers["Allow"] = allowed;
      return responder->answer(std::move(refused));
    }
    handlers_.add([&handler = method->second, request = std::move(request),
                   responder = std::move(responder)] { call(handler, request, responder); });
  }

  std::shared_ptr<asio::io_context> io_;
  tcp::acceptor acceptor_;
  asio::steady_timer watch_;
  ConnectionRules rules_;
  std::vector<std::shared_ptr<HttpConnection>> connections_;
  bool stopping_ = false;
  bool accept_again_ = false;  // the system had no descriptor left, for example
  HandlerThreads handlers_;
  std::thread thread_;
};

HttpServer::HttpServer(ServerOptions options) : impl_(std::make_unique<Impl>(options)) {}
HttpServer::~HttpServer() = default;

void HttpServer::get(const std::string& path, Handler handler) {
  impl_->routes[path]["GET"] = std::move(handler);
}
void HttpServer::post(const std::string& path, Handler handler) {
  impl_->routes[path]["POST"] = std::move(handler);
}
uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::start() { impl_->start(); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace ballast::serving
