#pragma once

#include <string_view>

#include "gyre/base/timeline.h"
#include "gyre/engine/engine.h"

namespace gyre::data {
struct BatchWait;
}

namespace gyre::train {

/// Shows the wait for a batch in the job's timeline, where that runs: in the row `row` a phase WAIT_FOR_DATA, and
/// within it one for each stage, SOURCE, INFLATE, DECODE, TRANSFORM and ASSEMBLE. How long each of these is says what
/// share of the work on the batch it was; the order in which they follow each other says nothing.
void add_wait_to_timeline(engine::Engine& engine, std::string_view row, const data::BatchWait& wait);
void add_wait_to_timeline(Timeline& timeline, std::string_view row, const data::BatchWait& wait);

}  // namespace gyre::train
