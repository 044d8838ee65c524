// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/decoder_config.h"

#include "ballast/config/config.h"
#include "ballast/system/error.h"

namespace ballast::config {

int64_t ModelConfig::feed_forward_width() const {
  if (hidden > 0) return hidden;
  if (!is_gated()) return 4 * width;
  constexpr int64_t kUnit = 64;
  return (8 * width / 3 + kUnit - 1) / kUnit * kUnit;
}

void check_decoder(const ModelConfig& m) {
  if (m.head_width == 0 && m.width % m.heads != 0)
    fail("model.heads: {} heads do not divide the width {}", m.heads, m.width);
  if (m.heads % m.kv_heads() != 0) {
    fail("model.heads_kv: {} heads of keys and values do not divide {} heads", m.heads_kv, m.heads);
  }
  if (m.positions == Positions::kRope && m.width_of_head() % 2 != 0) {
    fail("model.positions: rope turns pairs of numbers, and a head has {}; want an even width",
         m.width_of_head());
  }
  if (m.positions != Positions::kRope && m.rope_scaling != RopeScaling::kNone)
    fail("model.rope_scaling is for model.positions rope, which is {}", name_of(m.positions));
  if (m.rope_scaling == RopeScaling::kLlama3 && m.rope_low >= m.rope_high) {
    fail("model.rope_low: want less than model.rope_high {:g}, got {:g}", m.rope_high, m.rope_low);
  }
}

}  // namespace ballast::config
