#include "gyre/jobs/service/internal/accounts.h"

#include <fmt/format.h>
#include <unistd.h>

#include "gyre/base/account.h"
#include "gyre/jobs/resources/service_error.h"

namespace gyre::jobs::service {

using resources::ServiceError;

std::string account_for_jobs(const ServiceOptions& options, const catalog::User& user) {
  const std::string& account = user.account_name();
  const auto number = options.account_number(account);
  if (number && *number != 0) return account;
  if (number && user.is_administrator) return "";  // Root's own jobs run as the service's job_user.
  throw ServiceError(
      ServiceError::Kind::kForbidden, "NoAccount",
      fmt::format(
          "jobs of this server run as their users' accounts, and user '{}' has none: {}. An administrator names "
          "one with `gyre user change {} --account ACCOUNT`{}",
          user.name,
          number ? fmt::format("account '{}' is root, as which no job runs", account)
                 : fmt::format("the server's machine has no account '{}'", account),
          user.name, number ? "" : fmt::format(", or makes it there (`useradd {}`)", account)),
      user.name);
}

std::string words_of_trust() {
  return fmt::format(
      "all jobs of this server run as account '{}', so whoever submits jobs can read and change what the jobs of all "
      "others read and write, their secrets and processes, and the server's own files and tokens",
      name_of_account(::geteuid()));
}

void check_may_change(const ServiceOptions& options, const catalog::User& user) {
  if (options.submitters != Submitters::kTrusted || user.is_administrator || user.is_trusted) return;
  throw ServiceError(
      ServiceError::Kind::kForbidden, "NotTrusted",
      fmt::format("user '{}' may only look: {}. An administrator who accepts that for '{}' runs `gyre user "
                  "change {} --trusted`; on a server that root runs, each user's jobs run as an account "
                  "of their own",
                  user.name, words_of_trust(), user.name, user.name),
      user.name);
}

void check_share_of_queue(const ServiceOptions& options, catalog::Catalog& catalog, const resources::User& sender) {
  const std::int64_t most = options.queued_jobs_per_user;
  if (options.submitters == Submitters::kEverybody || sender.is_administrator) return;
  if (catalog.jobs().queued_of(sender.name, most) < most) return;
  throw ServiceError(ServiceError::Kind::kQuota, "TooManyQueuedJobs",
                     fmt::format("{} jobs of user '{}' wait already, as many as one user may have in the queue; submit "
                                 "more when some of them have started, or stop some",
                                 most, sender.name));
}

void check_account(const ServiceOptions& options, const std::string& account) {
  const bool own = ::geteuid() != 0 && account == name_of_account(::geteuid());  // It may have a number alone.
  const auto number = options.account_number(account);
  if (own || (number && *number != 0)) return;
  throw ServiceError(
      ServiceError::Kind::kInvalid, "AccountNotUsable",
      number ? fmt::format("account '{}' is root, as which no job runs; name another one", account)
             : fmt::format("the server's machine has no account '{}'; make it first (`useradd {}`)", account, account),
      account);
}

}  // namespace gyre::jobs::service
