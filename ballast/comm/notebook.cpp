// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/notebook.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ballast::comm {
namespace {

constexpr const char* kVariable = "BALLAST_LAUNCHER_NOTEBOOK";
// Of a launcher on another machine: its words as hexadecimal digits, each with a 0 behind it.
constexpr const char* kCommand = "BALLAST_LAUNCHER_COMMAND";
constexpr std::string_view kStderr = "stderr";  // in place of a path
constexpr std::string_view kMark =
    "\x1e"
    "ballast note ";  // before a note in a line of stderr
constexpr char kTriedOut = 't';

void write_line(const char* path, const char* line, size_t size) noexcept {
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  (void)!::write(fd, line, size);
  ::close(fd);
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string hexadecimal(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

std::string bytes_of(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(&digits[i], &digits[i] + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

}  // namespace

void tell_launcher(Note note, int worker, int code) noexcept {
  const char* path = std::getenv(kVariable);
  if (path == nullptr) return;
  const bool by_stderr = path == kStderr;
  std::array<char, 64> line{};
  const int size =
      std::snprintf(line.data(), line.size(), "%s%c %d %d\n", by_stderr ? kMark.data() : "",
                    static_cast<char>(note), worker, code);
  if (by_stderr) {
    (void)!::write(STDERR_FILENO, line.data(), static_cast<size_t>(size));
  } else {
    write_line(path, line.data(), static_cast<size_t>(size));
  }
}

bool has_launcher() noexcept {
  const char* path = std::getenv(kVariable);
  return path != nullptr && path != kStderr;
}

std::vector<std::string> launcher_command_line() {
  std::string all;
  if (has_launcher()) {
    const std::string notebook = std::getenv(kVariable);  // in the launcher's folder of /proc
    all = read_all(notebook.substr(0, notebook.find("/fd/")) + "/cmdline");
  } else if (const char* digits = std::getenv(kCommand); digits != nullptr) {
    all = bytes_of(digits);
  }
  std::istringstream lines(all);
  std::vector<std::string> words;
  for (std::string word; std::getline(lines, word, '\0');) words.push_back(word);
  return words;
}

Notebook::Notebook(Reach reach) : reach_(reach) {
  if (reach == Reach::kNetwork) {
    variables_ = {fmt::format("{}={}", kVariable, kStderr),
                  fmt::format("{}={}", kCommand, hexadecimal(read_all("/proc/self/cmdline")))};
    works_ = true;
    return;
  }
  fd_ = ::memfd_create("ballast workers", MFD_CLOEXEC);
  variables_ = {fmt::format("{}=/proc/{}/fd/{}", kVariable, ::getpid(), fd_)};
}

Notebook::~Notebook() {
  if (fd_ >= 0) ::close(fd_);
}

void Notebook::try_out() const noexcept {
  if (reach_ == Reach::kNetwork) return;
  constexpr std::array<char, 6> kLine{kTriedOut, ' ', '0', ' ', '0', '\n'};
  const std::string& variable = variables_.front();
  write_line(variable.c_str() + variable.find('=') + 1, kLine.data(), kLine.size());
}

void Notebook::read() {
  std::array<char, 4096> piece;
  for (ssize_t got; fd_ >= 0 && (got = ::pread(fd_, piece.data(), piece.size(), end_)) > 0;) {
    end_ += got;
    rest_.append(piece.data(), static_cast<size_t>(got));
  }
  size_t from = 0;
  for (size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1) {
    char note = 0;
    int worker = 0, code = 0;
    if (std::sscanf(&rest_[from], "%c %d %d", &note, &worker, &code) == 3) take(note, worker, code);
  }
  rest_.erase(0, from);
}

bool Notebook::take_line(std::string_view line) {
  const size_t mark = line.find(kMark);  // mpirun may have put a tag before it
  if (reach_ != Reach::kNetwork || mark == std::string_view::npos) return false;
  rest_.append(line.substr(mark + kMark.size())).push_back('\n');
  read();
  return true;
}

bool Notebook::all_arrived(int workers) const {
  return arrived_.size() >= (reach_ == Reach::kNetwork ? 1 : static_cast<size_t>(workers));
}

void Notebook::take(char note, int worker, int code) {
  works_ = true;
  if (note == kTriedOut) return;
  const auto kind = static_cast<Note>(note);
  if (kind == Note::kArrived) arrived_.insert(worker);
  if (kind == Note::kClosed) closed_ = true;
  if (kind == Note::kEnds) ending_ = true;
  if (failure_ || (kind != Note::kEnds && kind != Note::kReturned)) return;
  failure_ = WorkerFailure{worker, code, 0, true,
                           fmt::format("worker {} ended the job with code {}", worker, code)};
}

}  // namespace ballast::comm
