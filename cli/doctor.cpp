// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/system/progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/machine.h"

namespace ballast::cli {
namespace {

using nlohmann::json;

constexpr const char* kExamples = R"(
Examples:
  ballast doctor
  ballast doctor --json | python3 -m json.tool

Keys of the JSON object: version; hardware {cpu, cores, instruction_sets, memory_bytes, ...};
libtorch {version, path, threads, cpu_capability, onednn {max_cpu_isa, reason}: null where nothing
limits it}; cuda {usable, plugin {path, loaded, reason}, driver {version, reason}, devices [{name,
memory_bytes, compute_capability}]}; nccl and mpi {version, path} or null; parquet {plugin {path,
loaded, reason}}; programs {mpirun, rsvg-convert}: a path or null; disk {path, free_bytes}; missing
[{name, needed_for, how_to_get}].)";

std::string bytes_of(const json& number) {
  return number.is_null() ? "unknown" : format_bytes(number.get<double>());
}

std::string describe_plugin(const json& plugin) {
  if (plugin.at("loaded")) return "loaded from " + plugin.at("path").get<std::string>();
  return "not loaded: " + plugin.at("reason").get<std::string>();
}

std::string describe_gpus(const json& cuda) {
  const json& driver = cuda.at("driver");
  if (cuda.at("devices").empty()) return "none: " + driver.at("reason").get<std::string>();
  std::vector<std::string> gpus;
  for (const json& device : cuda.at("devices")) {
    gpus.push_back(fmt::format(
        "{}, {}, compute capability {}", device.at("name").get<std::string>(),
        bytes_of(device.at("memory_bytes")), device.at("compute_capability").get<std::string>()));
  }
  return fmt::format("{} (driver for CUDA {}{})", fmt::join(gpus, "; "),
                     driver.at("version").is_null() ? "?" : driver.at("version").get<std::string>(),
                     cuda.at("usable").get<bool>() ? "" : "; not usable without the plugin");
}

std::string describe_library(const json& library) {
  if (library.is_null()) return "not found";
  return library.at("version").get<std::string>() + " in " + library.at("path").get<std::string>();
}

std::string describe_program(const json& path) {
  return path.is_null() ? "not found" : path.get<std::string>();
}

// Empty where oneDNN uses what it finds, as nearly everywhere.
std::string describe_onednn(const json& onednn) {
  if (onednn.at("max_cpu_isa").is_null()) return "";
  const std::string limit = "up to " + onednn.at("max_cpu_isa").get<std::string>();
  return onednn.at("reason").is_null() ? limit
                                       : limit + ": " + onednn.at("reason").get<std::string>();
}

void print_row(const char* name, const std::string& value) {
  fmt::print("  {:<14} {}\n", name, value);
}

void print_table(const json& machine) {
  const json& hardware = machine.at("hardware");
  const json& libtorch = machine.at("libtorch");
  const auto sets = hardware.at("instruction_sets").get<std::vector<std::string>>();
  fmt::print("ballast {}\n\n", machine.at("version").get<std::string>());
  print_row("system", fmt::format("{}, {}", hardware.at("os").get<std::string>(),
                                  hardware.at("kernel").get<std::string>()));
  print_row("CPU", fmt::format("{}, {} cores", hardware.at("cpu").get<std::string>(),
                               hardware.at("cores").get<int>()));
  print_row("", fmt::format("{}", fmt::join(sets, " ")));
  print_row("memory", fmt::format("{}, {} available", bytes_of(hardware.at("memory_bytes")),
                                  bytes_of(hardware.at("memory_available_bytes"))));
  print_row("disk", fmt::format("{} free in {}", bytes_of(machine.at("disk").at("free_bytes")),
                                machine.at("disk").at("path").get<std::string>()));
  print_row("libtorch", fmt::format("{}, {} threads, {}", libtorch.at("version").get<std::string>(),
                                    libtorch.at("threads").get<int>(),
                                    libtorch.at("cpu_capability").get<std::string>()));
  print_row("", describe_program(libtorch.at("path")));
  if (const std::string onednn = describe_onednn(libtorch.at("onednn")); !onednn.empty()) {
    print_row("oneDNN", onednn);
  }
  print_row("GPU", describe_gpus(machine.at("cuda")));
  print_row("CUDA plugin", describe_plugin(machine.at("cuda").at("plugin")));
  print_row("Parquet plugin", describe_plugin(machine.at("parquet").at("plugin")));
  print_row("NCCL", describe_library(machine.at("nccl")));
  print_row("MPI", describe_library(machine.at("mpi")));
  for (const char* name : {"mpirun", "rsvg-convert"}) {
    print_row(name, describe_program(machine.at("programs").at(name)));
  }

  if (machine.at("missing").empty()) {
    fmt::print("\nNothing is missing.\n");
    return;
  }
  fmt::print("\nMissing, and needed only for what is named:\n");
  for (const json& item : machine.at("missing")) {
    print_row(item.at("name").get<std::string>().c_str(), item.at("needed_for").get<std::string>());
    print_row("", "get it: " + item.at("how_to_get").get<std::string>());
  }
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  CLI::App* command = add_command(
      app, "doctor",
      "Show what hardware and libraries are found, what is missing and how to get it", kExamples);
  const auto as_json = std::make_shared<bool>(false);
  add_json_flag(*command, *as_json);
  command->callback([as_json, &chosen] {
    chosen = [as_json] {
      const json machine = examine_machine();
      if (*as_json) {
        fmt::print("{}\n", machine.dump(2, ' ', false, json::error_handler_t::replace));
      } else {
        print_table(machine);
      }
      return 0;
    };
  });
}

}  // namespace ballast::cli
