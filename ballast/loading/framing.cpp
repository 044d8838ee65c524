// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/framing.h"

#include <algorithm>

namespace ballast::loading {

checkpoint::DataEntry entry_of_frame() { return {"frame", "of the tokenizer", "framed"}; }

tokenizer::Framing framing_of(const std::vector<checkpoint::DataEntry>& data) {
  const bool framed = std::ranges::find(data, entry_of_frame()) != data.end();
  return framed ? tokenizer::Framing::kFramed : tokenizer::Framing::kPlain;
}

}  // namespace ballast::loading
