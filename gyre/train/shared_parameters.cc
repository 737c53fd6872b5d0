#include "gyre/train/shared_parameters.h"

#include <ATen/ATen.h>

#include <utility>

namespace gyre::train {

SharedParameters::SharedParameters(group::Group& group, const params::Layout& layout,
                                   const params::ConsistencyOptions& consistency, std::shared_ptr<Timeline> timeline)
    : WorkerExchange(group, layout, consistency, params::Rule::kSgd, std::move(timeline)), consistency_(consistency) {}

void SharedParameters::attach(const NamedTensors& parameters) {
  static_cast<void>(values_of(parameters));  // Checks them.
  WorkerExchange::attach(parameters);
  held_.emplace(client(), consistency_);
}

void SharedParameters::synchronize() {
  client();  // Checks that there is one.
  held_->begin(values_of(parameters()));
}

bool SharedParameters::begin_step() { return held_->begin_step(values_of(parameters())); }

void SharedParameters::finish_step() { held_->finish_step(values_of(parameters())); }

void SharedParameters::settle() {
  client();
  held_->settle(values_of(parameters()));
}

}  // namespace gyre::train
