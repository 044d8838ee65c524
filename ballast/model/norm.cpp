// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/norm.h"

#include "ballast/experts/decoder_parts.h"
#include "ballast/model/initialization.h"

namespace ballast::model {

Norm::Norm(const config::ModelConfig& config, const std::string& name,
           parameters::ParameterTable& table)
    : form_(experts::norm_form_of(config)),
      weight_(
          table.declare(vector(name + ".weight", config.width, parameters::Initialization::one()))),
      bias_(form_.takes_mean() ? table.declare(vector(name + ".bias", config.width,
                                                      parameters::Initialization::zero()))
                               : kernels::no_parameter()) {}

at::Tensor Norm::operator()(ResidualStream& x) const { return x.normed(weight_, bias_, form_); }

}  // namespace ballast::model
