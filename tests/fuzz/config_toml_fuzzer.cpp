// SPDX-License-Identifier: Apache-2.0
// A configuration, as a user writes it and as a run recorded it.
#include "ballast/config/config.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const std::string text(fuzz::text_of(data, size));
  fuzz::expect_answer([&] {
    config::Config config;
    config::read_config_text(config, text, "config.toml");
    config::Config again;
    config::read_config_text(again, config::to_toml(config), "config.toml");
    fuzz::require(config::differences(config, again).empty(), "what is written is read again");
    config::check_config(config);
    config::check_workers(config, 2);
  });
  fuzz::expect_answer([&] {
    config::Config config;
    config::read_config_text(config, text, "config.toml", "laptop");
  });
  fuzz::expect_answer([&] {
    config::Config config;
    config::read_recorded_config(config, text, "config.toml");
  });
  return 0;
}
