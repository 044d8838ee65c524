// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/tokenizer/text_bounds.h"

namespace ballast::loading {

// Stands among a model's data where its texts are framed. Models of before there were frames have
// none, and their texts are plain.
checkpoint::DataEntry entry_of_frame();
tokenizer::Framing framing_of(const std::vector<checkpoint::DataEntry>& data);

}  // namespace ballast::loading
