// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "ballast/system/error.h"

namespace ballast::serving {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A client that says what it is told and reads when it likes.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* address = reinterpret_cast<const sockaddr*>(&place);
    if (::connect(socket_, address, sizeof(place)) != 0) throw std::runtime_error("connect");
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void get(const std::string& path, const std::string& more = "") const {
    const std::string text = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
    if (::write(socket_, text.data(), text.size()) != std::ssize(text))
      throw std::runtime_error("write");
  }
  // What comes until the text was seen; all until the server hangs up, if it is empty.
  std::string read_until(const std::string& end) const {
    std::string all;
    char buffer[4096];
    while (end.empty() || all.find(end) == std::string::npos) {
      const ssize_t size = ::read(socket_, buffer, sizeof(buffer));
      if (size <= 0) break;
      all.append(buffer, static_cast<size_t>(size));
    }
    return all;
  }

 private:
  int socket_;
};

// Waits for another thread; a test that hangs is ended by ctest.
template <typename Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

using To = const std::shared_ptr<Responder>&;

class Answering : public testing::Test {
 protected:
  HttpServer server{{.port = 0}};
};

TEST_F(Answering, WhoForgetsToAnswerLeavesNobodyWaiting) {
  server.get("/", [](const HttpRequest&, To) {});
  server.start();
  const Client client(server.port());
  client.get("/");
  EXPECT_THAT(client.read_until("}}"), StartsWith("HTTP/1.1 500 "));
}

TEST_F(Answering, WhatAHandlerThrowsIsItsAnswer) {
  server.get("/user", [](const HttpRequest&, To) { fail("a slip"); });
  server.get("/refused", [](const HttpRequest&, To) { throw Refused(404, "not here", "key"); });
  server.get("/ours", [](const HttpRequest&, To) { throw std::logic_error("oh"); });
  server.start();
  const Client client(server.port());
  client.get("/user");
  EXPECT_THAT(client.read_until("}}"), AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("a slip")));
  client.get("/refused");
  EXPECT_THAT(client.read_until("}}"), AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("\"key\"")));
  client.get("/ours");
  EXPECT_THAT(client.read_until("}}"), StartsWith("HTTP/1.1 500 "));
}

TEST_F(Answering, AStreamComesInItsPieces) {
  std::promise<std::shared_ptr<ResponseStream>> given;
  server.get("/", [&](const HttpRequest&, To to) { given.set_value(to->stream("text/plain")); });
  server.start();
  const Client client(server.port());
  client.get("/");
  const auto stream = given.get_future().get();
  stream->write("first");
  EXPECT_THAT(client.read_until("first"), HasSubstr("chunked"));
  stream->write("second");
  stream->end();
  stream->write("beyond the end");
  EXPECT_THAT(client.read_until("0\r\n\r\n"),
              AllOf(HasSubstr("6\r\nsecond"), Not(HasSubstr("beyond"))));
  client.get("/nowhere");  // the connection goes on
  EXPECT_THAT(client.read_until("}}"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(Answering, AStreamMayBeTheLastAnswer) {
  server.get("/", [&](const HttpRequest&, To to) {
    const auto stream = to->stream("text/plain");
    stream->write("all");
    stream->end();
  });
  server.start();
  const Client client(server.port());
  client.get("/", "Connection: close\r\n");
  EXPECT_THAT(client.read_until(""), HasSubstr("3\r\nall\r\n0\r\n\r\n"));
}

TEST_F(Answering, AStreamThatBreaksOffIsNotTakenForWhole) {
  server.get("/", [&](const HttpRequest&, To to) { to->stream("text/plain")->write("a part"); });
  server.start();
  const Client client(server.port());
  client.get("/");
  EXPECT_THAT(client.read_until(""), Not(HasSubstr("0\r\n\r\n")));
}

TEST_F(Answering, AClientThatHangsUpIsNoticed) {
  std::promise<std::shared_ptr<Responder>> given;
  server.get("/", [&](const HttpRequest&, To to) { given.set_value(to); });
  server.start();
  auto client = std::make_unique<Client>(server.port());
  client->get("/");
  const auto responder = given.get_future().get();
  EXPECT_FALSE(responder->gone());
  client.reset();
  wait_until([&] { return responder->gone(); });
  responder->answer({.body = "to nobody"});
}

TEST_F(Answering, AClientThatDoesNotReadIsGone) {
  std::promise<std::shared_ptr<ResponseStream>> given;
  server.get("/", [&](const HttpRequest&, To to) { given.set_value(to->stream("text/plain")); });
  server.start();
  const Client client(server.port());
  client.get("/");
  const auto stream = given.get_future().get();
  const std::string piece(1 << 20, 'x');
  int written = 0;
  for (; !stream->gone() && written < 1000; ++written) {
    stream->write(piece);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(written, 1000);
}

TEST(HttpServer, EndsWhileItAnswers) {
  std::shared_ptr<ResponseStream> stream;
  std::shared_ptr<Responder> responder;
  {
    HttpServer server({.port = 0});
    std::promise<void> both;
    server.get("/stream", [&](const HttpRequest&, To to) { stream = to->stream("text/plain"); });
    server.get("/later", [&](const HttpRequest&, To to) {
      responder = to;
      both.set_value();
    });
    server.start();
    const Client one(server.port()), other(server.port());
    one.get("/stream");
    one.read_until("\r\n\r\n");
    other.get("/later");
    both.get_future().wait();
    server.stop();
    EXPECT_EQ(other.read_until(""), "");
  }
  EXPECT_TRUE(stream->gone());
  stream->write("into the void");
  stream->end();
  responder->answer({.body = "so is this"});
}

TEST(HttpServer, APortThatIsTakenIsTold) {
  const HttpServer server({.port = 0});
  EXPECT_THROW(HttpServer({.port = server.port()}), UserError);
  EXPECT_THROW(HttpServer({.address = "nowhere", .port = 0}), UserError);
}

}  // namespace
}  // namespace ballast::serving
