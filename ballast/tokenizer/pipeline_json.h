// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/tokenizer/json_field.h"
#include "ballast/tokenizer/text_pipeline.h"

namespace ballast::tokenizer {

// normalizer, pre_tokenizer, decoder and the options of `model` in a tokenizer.json. Refuses by
// name what we would not do exactly alike. `unknown` and `first_added` are the caller's to set.
TextPipeline read_pipeline(const JsonField& file);

// post_processor: what it puts around one text.
TextFrame read_frame(const JsonField& file);

}  // namespace ballast::tokenizer
