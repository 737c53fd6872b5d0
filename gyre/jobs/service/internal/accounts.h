#pragma once

#include <string>

#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/resources/resources.h"
#include "gyre/jobs/service/service.h"

// Who may submit jobs, and as which account of the machine they run (ADR 93).
namespace gyre::jobs::service {

/// The account of the user's jobs, where these are those of users (Submitters::kAccounts); empty: the service's
/// `job_user`. resources::ServiceError(kForbidden) "NoAccount" says what an administrator has to do.
std::string account_for_jobs(const ServiceOptions& options, const catalog::User& user);

/// resources::ServiceError(kForbidden) "NotTrusted" for a user who may only look.
void check_may_change(const ServiceOptions& options, const catalog::User& user);

/// resources::ServiceError(kQuota) "TooManyQueuedJobs" for a user who has filled their part of the queue.
void check_share_of_queue(const ServiceOptions& options, catalog::Catalog& catalog, const resources::User& sender);

/// What users of a server that runs all jobs as one account have to accept of each other.
std::string words_of_trust();

/// resources::ServiceError(kInvalid) "AccountNotUsable" for an account that jobs cannot have.
void check_account(const ServiceOptions& options, const std::string& account);

}  // namespace gyre::jobs::service
