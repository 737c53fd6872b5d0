#pragma once

#include <string>

namespace gyre::app {

/// `name`, as whom jobs will run where root starts them; UsageError for root itself and for a user who does not exist,
/// because every node would end at once. Anybody else's jobs run as that person, and the name is not looked at.
const std::string& checked_job_user(const std::string& name);

}  // namespace gyre::app
