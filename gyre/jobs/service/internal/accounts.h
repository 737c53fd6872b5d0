#pragma once

#include <string>

#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/service/service.h"

// Who may submit jobs, and as which account of the machine they run (ADR 93).
namespace gyre::jobs::service {

/// The account of the user's jobs, unless everybody may submit; empty: the service's `job_user`.
/// api::ServiceError(kForbidden) "NoAccount" says what an administrator has to do.
std::string account_for_jobs(const ServiceOptions& options, const catalog::User& user);

/// api::ServiceError(kInvalid) "AccountNotUsable" for an account that jobs cannot have.
void check_account(const ServiceOptions& options, const std::string& account);

}  // namespace gyre::jobs::service
