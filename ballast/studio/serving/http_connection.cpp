// SPDX-License-Identifier: Apache-2.0
// Boost.Asio and Beast are headers alone. Debian's cpp-httplib is a shared library that needs
// OpenSSL and brotli wherever the program runs, and gives each client a thread.
#include "ballast/studio/serving/http_connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

namespace ballast::serving {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Error = boost::system::error_code;

constexpr uint32_t kMaxHeader = 16 * 1024;
constexpr uint64_t kMaxBody = 4 * 1024 * 1024;
constexpr size_t kMaxAhead = 64 * 1024;         // bytes of later requests, while one is answered
constexpr size_t kMaxUnread = 8 * 1024 * 1024;  // of a stream: then its client counts as gone
constexpr size_t kReadAtOnce = 16 * 1024;
constexpr std::chrono::seconds kIdle{75};         // between two requests
constexpr std::chrono::seconds kRequestTime{30};  // from a request's first byte to its last
constexpr std::chrono::seconds kWriteTime{30};    // in which a client reads at least something
constexpr std::chrono::seconds kDrainTime{2};     // in which a client reads why it was refused

// Nothing from outside, no script or style within a page, in no frame, for no other origin.
constexpr std::string_view kSafety =
    "Content-Security-Policy: default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n";

std::string head_of(int status, std::string_view content_type, std::string_view more) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: {}\r\n{}{}\r\n",
      status, reason_of(status), fmt::gmtime(std::time(nullptr)), content_type, kSafety, more);
}

// What threads other than the connection's may see of an answer.
struct AnswerState {
  std::atomic<bool> gone = false;
  std::atomic<size_t> unread = 0;  // bytes that were given and not sent
};

class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<asio::io_context> io, int descriptor, const ConnectionRules& rules)
      : io_(std::move(io)), socket_(*io_), rules_(rules) {
    Error ignored;
    // Of which protocol does not matter any more.
    socket_.assign(asio::ip::tcp::v4(), descriptor, ignored);
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  void start() override {
    next_request();
    read();
  }
  void close() override;
  bool check(Clock::time_point now) override {
    if (now >= deadline_) close();
    return socket_.is_open();
  }

  // Of the answer to the request that is being answered.
  void answer(const HttpResponse& response);
  void start_stream(const std::string& content_type);
  void add_piece(std::string piece);
  void end_stream();

 private:
  enum class State { kRequest, kAnswer, kDrain };

  void next_request();
  void read();
  void on_read(const Error& error, size_t size);
  void take_input();
  void check_header();
  void take_request();
  void refuse(const HttpResponse& response);
  void send(std::string bytes);
  void write();
  void on_written(const Error& error, size_t size);
  void finish();
  void answered();

  std::shared_ptr<asio::io_context> io_;
  asio::ip::tcp::socket socket_;
  const ConnectionRules& rules_;
  boost::beast::flat_buffer input_;
  std::optional<http::request_parser<http::string_body>> parser_;
  State state_ = State::kRequest;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool reading_ = false, header_checked_ = false;

  std::shared_ptr<AnswerState> answer_;
  bool keep_alive_ = false, chunked_ = false, head_only_ = false;
  std::deque<std::string> output_;
  size_t sent_ = 0;  // of its first
  bool writing_ = false, finished_ = false;
};

// A handler's way to its connection. The connection may have ended meanwhile.
class Answer final : public Responder {
 public:
  Answer(std::shared_ptr<asio::io_context> io, std::weak_ptr<Connection> connection,
         std::shared_ptr<AnswerState> state)
      : io_(std::move(io)), connection_(std::move(connection)), state_(std::move(state)) {}
  ~Answer() override { answer(refusal(500, "the request was not answered")); }

  void answer(HttpResponse response) override {
    if (answered_.exchange(true)) return;
    asio::post(*io_, [connection = connection_, response = std::move(response)] {
      if (const auto self = connection.lock()) self->answer(response);
    });
  }
  std::shared_ptr<ResponseStream> stream(const std::string& content_type) override;
  bool gone() const override { return state_->gone; }

 private:
  std::shared_ptr<asio::io_context> io_;
  std::weak_ptr<Connection> connection_;
  std::shared_ptr<AnswerState> state_;
  std::atomic<bool> answered_ = false;
};

class Stream final : public ResponseStream {
 public:
  Stream(std::shared_ptr<asio::io_context> io, std::weak_ptr<Connection> connection,
         std::shared_ptr<AnswerState> state)
      : io_(std::move(io)), connection_(std::move(connection)), state_(std::move(state)) {}
  // Who is destroyed before its end has left the client without the rest, which must notice.
  ~Stream() override {
    if (!ended_) post(&Connection::close);
  }

  void write(std::string piece) override {
    const std::scoped_lock lock(mutex_);
    if (ended_ || state_->gone || piece.empty()) return;
    if (state_->unread > kMaxUnread) {
      state_->gone = true;
      return post(&Connection::close);
    }
    state_->unread += piece.size();
    asio::post(*io_, [connection = connection_, piece = std::move(piece)]() mutable {
      if (const auto self = connection.lock()) self->add_piece(std::move(piece));
    });
  }
  void end() override {
    const std::scoped_lock lock(mutex_);
    if (!std::exchange(ended_, true)) post(&Connection::end_stream);
  }
  bool gone() const override { return state_->gone; }

 private:
  void post(void (Connection::*call)()) {
    asio::post(*io_, [connection = connection_, call] {
      if (const auto self = connection.lock()) (self.get()->*call)();
    });
  }

  std::shared_ptr<asio::io_context> io_;
  std::weak_ptr<Connection> connection_;
  std::shared_ptr<AnswerState> state_;
  std::mutex mutex_;  // so that no piece comes behind the end
  bool ended_ = false;
};

std::shared_ptr<ResponseStream> Answer::stream(const std::string& content_type) {
  if (answered_.exchange(true)) throw std::logic_error("a request is answered once");
  asio::post(*io_, [connection = connection_, content_type] {
    if (const auto self = connection.lock()) self->start_stream(content_type);
  });
  return std::make_shared<Stream>(io_, connection_, state_);
}

void Connection::close() {
  if (answer_) answer_->gone = true;
  Error ignored;
  socket_.close(ignored);
}

void Connection::next_request() {
  state_ = State::kRequest;
  deadline_ = Clock::now() + kIdle;
  header_checked_ = false;
  head_only_ = false;
  parser_.emplace();
  parser_->header_limit(kMaxHeader);
  parser_->body_limit(kMaxBody);
  parser_->eager(true);
}

// Always goes on, also while a request is answered: so it is noticed when the client hangs up.
void Connection::read() {
  if (reading_ || !socket_.is_open()) return;
  if (state_ == State::kAnswer && input_.size() > kMaxAhead) return;
  reading_ = true;
  socket_.async_read_some(input_.prepare(kReadAtOnce),
                          [self = shared_from_this()](const Error& error, size_t size) {
                            self->reading_ = false;
                            self->on_read(error, size);
                          });
}

void Connection::on_read(const Error& error, size_t size) {
  if (error) return close();
  input_.commit(size);
  take_input();
  read();
}

void Connection::take_input() {
  if (!socket_.is_open()) return;  // whoever asked is gone
  if (state_ == State::kDrain) input_.consume(input_.size());
  if (state_ != State::kRequest || input_.size() == 0) return;
  if (!parser_->got_some()) deadline_ = Clock::now() + kRequestTime;
  Error error;
  input_.consume(parser_->put(input_.data(), error));
  if (error == http::error::header_limit)
    return refuse(refusal(431, fmt::format("the header is longer than {} bytes", kMaxHeader)));
  if (error == http::error::body_limit)
    return refuse(refusal(413, fmt::format("the body is longer than {} bytes", kMaxBody)));
  if (error && error != http::error::need_more)
    return refuse(refusal(400, "this is not HTTP/1.1: " + error.message()));
  // Beast has no limit of its own for these.
  if (!parser_->is_done() && input_.size() > kMaxHeader + kReadAtOnce)
    return refuse(
        refusal(431, "a chunk's header, or what comes after the last chunk, is too long"));
  if (parser_->is_header_done() && !header_checked_) check_header();
  if (state_ == State::kRequest && parser_->is_done()) take_request();
}

// What can be refused before the body is there.
void Connection::check_header() {
  header_checked_ = true;
  const auto& header = parser_->get();
  head_only_ = header.method() == http::verb::head;
  const std::string host(header[http::field::host]);
  if (header.count(http::field::host) > 1 || !rules_.hosts.accept(host)) {
    return refuse(refusal(403, fmt::format("this server is not \"{}\": ask it by its address or as "
                                           "localhost, or start it with --host-name",
                                           host)));
  }
  const auto origin = header.find(http::field::origin);
  if (origin != header.end() && !is_same_origin(std::string(origin->value()), host))
    return refuse(refusal(403, "pages of other origins may not ask this server"));
  if (!parser_->is_done() && boost::beast::iequals(header[http::field::expect], "100-continue"))
    send("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::take_request() {
  const bool is_old = parser_->get().version() < 11;
  http::request<http::string_body> request = parser_->release();
  keep_alive_ = request.keep_alive();
  chunked_ = !is_old;
  const auto target = read_target({request.target().data(), request.target().size()});
  if (!target) return refuse(refusal(400, "the path of the request is not well-formed"));
  state_ = State::kAnswer;
  deadline_ = Clock::time_point::max();
  finished_ = false;
  answer_ = std::make_shared<AnswerState>();
  rules_.dispatch({.method = std::string(request.method_string()),
                   .path = target->path,
                   .query = target->query,
                   .body = std::move(request.body())},
                  std::make_shared<Answer>(io_, weak_from_this(), answer_));
}

void Connection::refuse(const HttpResponse& response) {
  state_ = State::kAnswer;
  keep_alive_ = false;
  finished_ = false;
  answer(response);
}

void Connection::answer(const HttpResponse& response) {
  std::string more = fmt::format("Content-Length: {}\r\n", response.body.size());
  if (!keep_alive_) more += "Connection: close\r\n";
  for (const auto& [name, value] : response.headers) more += fmt::format("{}: {}\r\n", name, value);
  send(head_of(response.status, response.content_type, more) +
       (head_only_ ? std::string() : response.body));
  finish();
}

void Connection::start_stream(const std::string& content_type) {
  keep_alive_ = keep_alive_ && chunked_;
  std::string more = chunked_ ? "Transfer-Encoding: chunked\r\n" : "";
  if (!keep_alive_) more += "Connection: close\r\n";
  send(head_of(200, content_type, more));
}

void Connection::add_piece(std::string piece) {
  const size_t size = piece.size();
  if (head_only_) {
    answer_->unread -= size;
  } else if (chunked_) {
    std::string chunk = fmt::format("{:x}\r\n{}\r\n", size, piece);
    answer_->unread += chunk.size() - size;
    send(std::move(chunk));
  } else {
    send(std::move(piece));
  }
}

void Connection::end_stream() {
  if (chunked_ && !head_only_) send("0\r\n\r\n");
  finish();
}

void Connection::send(std::string bytes) {
  if (!socket_.is_open()) return;
  output_.push_back(std::move(bytes));
  write();
}

void Connection::write() {
  if (writing_) return;
  writing_ = true;
  if (state_ != State::kRequest) deadline_ = Clock::now() + kWriteTime;
  const std::string& bytes = output_.front();
  socket_.async_write_some(asio::buffer(bytes.data() + sent_, bytes.size() - sent_),
                           [self = shared_from_this()](const Error& error, size_t size) {
                             self->writing_ = false;
                             self->on_written(error, size);
                           });
}

void Connection::on_written(const Error& error, size_t size) {
  if (error) return close();
  sent_ += size;
  if (sent_ == output_.front().size()) {
    if (answer_) answer_->unread -= std::min<size_t>(answer_->unread, sent_);
    output_.pop_front();
    sent_ = 0;
  }
  if (!output_.empty()) return write();
  if (state_ == State::kAnswer) deadline_ = Clock::time_point::max();
  if (finished_) answered();
}

void Connection::finish() {
  finished_ = true;
  if (output_.empty()) answered();
}

void Connection::answered() {
  finished_ = false;
  if (answer_) answer_->gone = true;
  answer_.reset();
  if (keep_alive_) {
    next_request();
    take_input();
    return read();
  }
  // Closing at once, with input unread, would take from the client what it was answered.
  state_ = State::kDrain;
  deadline_ = Clock::now() + kDrainTime;
  Error ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  input_.consume(input_.size());
  read();
}

}  // namespace

std::shared_ptr<HttpConnection> make_connection(std::shared_ptr<asio::io_context> io,
                                                int descriptor, const ConnectionRules& rules) {
  return std::make_shared<Connection>(std::move(io), descriptor, rules);
}

std::string refusal_bytes(const HttpResponse& response) {
  return head_of(response.status, response.content_type,
                 fmt::format("Content-Length: {}\r\nConnection: close\r\n", response.body.size())) +
         response.body;
}

}  // namespace ballast::serving
