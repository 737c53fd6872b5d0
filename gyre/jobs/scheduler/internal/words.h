#pragma once

#include <string>
#include <string_view>

#include "gyre/jobs/scheduler/state.h"

namespace gyre::jobs::scheduler {

/// "1 node", "3 nodes"; "1 node is", "3 nodes are" where the plural is given.
std::string counted(int count, std::string_view singular, std::string_view plural = {});

/// Rounded to two units: "7 days", "2 h 5 min", "1 min 30 s", "250 ms".
std::string duration_text(Time duration);

}  // namespace gyre::jobs::scheduler
