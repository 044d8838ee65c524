// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/run_directory.h"

#include <fmt/chrono.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/json.h"

namespace ballast::record {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "ballast-run";
constexpr uint64_t kVersion = 1;

json describe(const RunStart& start) {
  return {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"step", start.step},
          {"program_version", start.program_version},
          {"command_line", start.command_line},
          {"workers", start.workers},
          {"process", ::getpid()},
          {"hardware", parse_json(start.hardware)}};
}

void write_record(const fs::path& path, const json& record) {
  // Command lines may hold file names that are not UTF-8.
  write_text_atomically(path, record.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

json read_record(const fs::path& path) {
  json record = parse_json_or_discard(read_text(path));
  if (!record.is_object() || record.value("format", json()) != kFormat ||
      !record.value("version", json()).is_number_unsigned() ||
      !record.value("starts", json()).is_array()) {
    fail("{} is damaged or not the record of a run: restore it, or start a new run", path.string());
  }
  if (record["version"] > kVersion) {
    fail("{} is of format version {}, and this ballast reads up to {}: use a newer ballast",
         path.string(), record["version"].get<uint64_t>(), kVersion);
  }
  return record;
}

// A folder of a run whose start failed and could not be cleared away. It has no checkpoint.
bool is_left_over(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code code;
  return name == "tokenizer" || name == "tensorboard" ||
         (name == "checkpoints" && fs::is_empty(entry, code) && !code);
}

// A folder that holds nothing, or what a start that died before it wrote run.json left.
bool is_free(const fs::path& path) {
  static const std::set<std::string> ours = {"lock", "config.toml", "config.toml.tmp",
                                             "run.json.tmp"};
  std::error_code code;
  std::set<std::string> found;
  auto entry = fs::directory_iterator(path, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    found.insert(entry->path().filename().string());
    if (!ours.contains(entry->path().filename().string()) && !is_left_over(*entry)) return false;
  }
  if (code) fail("cannot look into {}: {}", path.string(), code.message());
  return found.empty() || found.contains("lock");  // without one, a config.toml is the user's own
}

// Creates the folder where missing, and makes sure that we may write there.
void make_writable_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (!code && ::access(path.c_str(), W_OK | X_OK) != 0) {
    code = std::error_code(errno, std::generic_category());
  }
  if (code) {
    fail("cannot write to the run directory {}: {}; choose another, or change its permissions",
         path.string(), code.message());
  }
}

void refuse_existing_run(const fs::path& path) {
  if (RunDirectory::is_run(path)) {
    fail("{} already holds a run: continue it with --resume auto, or choose another directory",
         path.string());
  }
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& path)
    : path_(path),
      lock_(std::make_unique<FileLock>(path / "lock", "run directory " + path.string())) {}

bool RunDirectory::is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "run.json", ignored);
}

bool RunDirectory::in_use(const fs::path& path) {
  struct stat lock = {};
  if (::lstat((path / "lock").c_str(), &lock) != 0 || !S_ISREG(lock.st_mode)) return false;
  // "3: FLOCK  ADVISORY  WRITE 4711 08:01:1835022 0 EOF". The device is another than stat's on some
  // file systems. There the process, which the file names, tells equal inodes apart.
  const std::string inode = fmt::format(":{}", lock.st_ino);
  const std::string here =
      fmt::format("{:02x}:{:02x}{}", major(lock.st_dev), minor(lock.st_dev), inode);
  std::ifstream holder(path / "lock"), locks("/proc/locks");
  std::string pid;
  holder >> pid;
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, process, file;
    words >> number >> kind >> advisory >> access >> process >> file;
    if (kind == "FLOCK" && (file == here || (process == pid && file.ends_with(inode)))) return true;
  }
  return false;
}

RunDirectory RunDirectory::create(const fs::path& path, std::string_view config,
                                  const RunStart& start) {
  refuse_existing_run(path);
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    if (!fs::is_directory(path, ignored)) {
      fail("{} is a file, not a run directory: choose another", path.string());
    }
    if (!is_free(path)) {
      fail("{} is not empty and not a run directory: choose another", path.string());
    }
  }
  make_writable_folder(path);
  RunDirectory run(path);
  refuse_existing_run(path);  // again: another process may have been faster
  write_text_atomically(run.config(), config);
  write_record(
      run.record(),
      {{"format", kFormat}, {"version", kVersion}, {"starts", json::array({describe(start)})}});
  make_folder(run.tensorboard());
  make_folder(run.checkpoints());
  return run;
}

void RunDirectory::clear() const {
  std::error_code code;
  fs::remove(record(), code);
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(path(), code); !code && entry != fs::directory_iterator();
       entry.increment(code))
    if (entry->path().filename() != "lock") entries.push_back(entry->path());
  bool cleared = !code;
  for (const fs::path& entry : entries) {
    fs::remove_all(entry, code);
    cleared = cleared && !code;
  }
  if (cleared) fs::remove(path() / "lock", code);
}

RunDirectory RunDirectory::open(const fs::path& path) {
  std::error_code code;
  if (!fs::exists(path, code)) {
    fail("there is no run directory {}: {}", path.string(),
         code ? code.message() : "nothing has that name");
  }
  if (!is_run(path)) fail("{} is not a run directory: it has no run.json", path.string());
  make_writable_folder(path);
  RunDirectory run(path);
  read_record(run.record());
  return run;
}

void RunDirectory::record_start(const RunStart& start) {
  json record = read_record(path_ / "run.json");
  record["starts"].push_back(describe(start));
  write_record(path_ / "run.json", record);
}

std::string RunDirectory::stored_config() const { return read_text(config()); }

void RunDirectory::remove_validation() {
  std::error_code none;  // what cannot be removed is replaced at the end, or told then
  fs::remove(validation(), none);
}

void RunDirectory::store_config(std::string_view text) { write_text_atomically(config(), text); }

}  // namespace ballast::record
