// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast::config {

struct ModelConfig;

// Throws UserError where the decoder's parts do not fit each other.
void check_decoder(const ModelConfig& model);

}  // namespace ballast::config
