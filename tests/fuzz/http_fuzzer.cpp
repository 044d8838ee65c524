// SPDX-License-Identifier: Apache-2.0
// What a client sends, to a real server by a real connection. Bodies are read as completions are.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ballast/studio/serving/completion_request.h"
#include "ballast/studio/serving/http_server.h"
#include "tests/fuzz/input_files.h"

namespace {

using namespace ballast;

uint16_t port_of_server() {
  static serving::HttpServer server({.port = 0});
  static const bool started = [] {
    server.get("/api/text", [](const auto& request, const auto& responder) {
      const auto text = request.query.find("text");
      if (text == request.query.end()) throw serving::Refused(400, "text is missing", "text");
      responder->answer({.content_type = "text/plain", .body = text->second});
    });
    server.post("/v1/completions", [](const auto& request, const auto& responder) {
      const auto read = serving::read_completion_request(request.body);
      fuzz::require(read.n >= 1 && read.max_tokens >= 0, "a request keeps to its ranges");
      responder->answer({.body = "{}"});
    });
    server.start();
    return true;
  }();
  return started ? server.port() : 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_port = htons(port_of_server());
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  fuzz::require(::connect(client, reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0,
                "the server takes every client");
  // It may have heard enough, answer and hang up before all is sent.
  for (size_t sent = 0; sent < size;) {
    const ssize_t more = ::send(client, data + sent, size - sent, MSG_NOSIGNAL);
    if (more <= 0) break;
    sent += static_cast<size_t>(more);
  }
  ::shutdown(client, SHUT_WR);
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(client, buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(got));
  ::close(client);
  fuzz::require(answer.empty() || answer.starts_with("HTTP/1."), "an answer is HTTP");
  // Only of the first answer: a refusal may say the client's own words again.
  fuzz::require(!answer.starts_with("HTTP/1.1 500"), "no input is the server's fault");
  return 0;
}
