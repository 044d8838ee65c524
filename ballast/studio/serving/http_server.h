// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ballast::serving {

struct HttpRequest {
  std::string method;                        // "GET", "HEAD" or "POST"
  std::string path;                          // decoded, without the query; begins with '/'
  std::map<std::string, std::string> query;  // decoded; the last of a name counts
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::map<std::string, std::string> headers = {};  // beside those that every answer has
};
// {"error": {"message": ..., "type": ..., "param": null, "code": null}}, as OpenAI's clients expect
// it.
HttpResponse refusal(int status, const std::string& message);

// Thrown by whoever answers: becomes a refusal with that status. `param` names what was wrong of
// the request.
class Refused : public std::runtime_error {
 public:
  Refused(int status, const std::string& message, std::string param = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string param_;
};
// The refusal that an exception stands for: a Refused its own, a UserError 400, any other 500,
// which is logged too.
HttpResponse refusal_of(const std::exception& error);

// One answer in pieces. May be used from any thread, also after the server has ended.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  virtual void write(std::string piece) = 0;  // never waits; nothing happens once it has ended
  virtual void end() = 0;
  virtual bool gone() const = 0;  // the client hung up, or does not read what is written
};

// What a handler answers with, once, at once or later, from any thread. Where it is destroyed
// without an answer the client gets status 500.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void answer(HttpResponse response) = 0;
  virtual std::shared_ptr<ResponseStream> stream(const std::string& content_type) = 0;
  virtual bool gone() const = 0;
};
using Handler = std::function<void(const HttpRequest&, const std::shared_ptr<Responder>&)>;

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;                 // 0: any that is free
  std::vector<std::string> hosts = {};  // accepted in Host, beside localhost and the address itself
};

// Answers HTTP/1.1 (docs/serve.md has its limits). Refused before any handler: a Host that is not
// ours (403, against pages that rebind names), a foreign Origin (403), bodies above 4 MiB (413),
// unknown paths (404), other methods (405). No header allows other origins. Handlers run on a few
// threads of the server's own and may take their time; those that need a model go to the models'
// thread (served_models.h). What a handler throws becomes its refusal_of().
class HttpServer {
 public:
  explicit HttpServer(ServerOptions options);  // UserError: the address cannot be bound
  ~HttpServer();

  // Before start(). `path` is exact.
  void get(const std::string& path, Handler handler);
  void post(const std::string& path, Handler handler);

  uint16_t port() const;
  void start();
  void stop();  // ends all connections; waits for the handlers that run

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::serving
