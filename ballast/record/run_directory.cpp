// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/run_directory.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

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

// A folder that holds nothing, or what a start that died before it wrote run.json left.
bool is_free(const fs::path& path) {
  static const std::set<std::string> ours = {"lock", "config.toml", "config.toml.tmp",
                                             "run.json.tmp"};
  std::error_code code;
  std::set<std::string> found;
  auto entry = fs::directory_iterator(path, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    found.insert(entry->path().filename().string());
    if (!ours.contains(entry->path().filename().string())) return false;
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
