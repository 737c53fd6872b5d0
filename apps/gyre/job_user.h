#pragma once

#include <string>

namespace gyre::app {

/// Whether jobs can run as `name` where root starts them: UsageError for root itself and for a user who does not exist,
/// because every node would end at once. Anybody else's jobs run as that person, and the name is not looked at.
void check_job_user(const std::string& name);

}  // namespace gyre::app
