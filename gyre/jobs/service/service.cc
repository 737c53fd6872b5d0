#include "gyre/jobs/service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/internal/accounts.h"
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/internal/work.h"

// Users, workspaces and experiments; events. Clusters and jobs are in service_clusters.cc and service_jobs.cc.
namespace gyre::jobs::service {

using resources::ServiceError;

namespace {

resources::User shown(const catalog::User& user) {
  return {user.name, user.is_administrator, user.account, user.is_trusted};
}

}  // namespace

Service::Service(const ServiceOptions& options) : work_(std::make_unique<Work>(options)) {}
Service::~Service() = default;

std::optional<resources::User> Service::authenticate(std::string_view token) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const auto user = ledger.catalog.users().authenticate(token);
  if (!user) return std::nullopt;
  return shown(*user);
}

std::optional<resources::User> Service::user_with_account(const std::string& account) {
  const MutexLock lock(work_->ledger.mutex);
  const auto user = work_->ledger.catalog.users().find_by_account(account);
  return user ? std::optional(shown(*user)) : std::nullopt;
}

bool Service::may_use(const resources::User& user, const std::string& workspace) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const auto found = ledger.catalog.workspaces().find(workspace);
  const auto known = ledger.catalog.users().find(user.name);
  return found && known && ledger.catalog.users().may_use(*known, found->id);
}

void Service::check_may_change(const resources::User& user) {
  if (work_->options.submitters != Submitters::kTrusted) return;
  const MutexLock lock(work_->ledger.mutex);
  service::check_may_change(work_->options, work_->ledger.user(user.name));
}

std::vector<resources::User> Service::users() {
  const MutexLock lock(work_->ledger.mutex);
  std::vector<resources::User> users;
  for (const catalog::User& user : work_->ledger.catalog.users().list()) {
    users.push_back(shown(user));
  }
  return users;
}

void Service::check_user(const resources::User& user) {
  if (!user.account.empty()) check_account(work_->options, user.account);
  if (user.is_trusted && work_->options.submitters == Submitters::kAccounts) {
    throw ServiceError(
        ServiceError::Kind::kInvalid, "TrustHasNoEffect",
        "this server runs the jobs of each user as that user's account, so nobody has to be trusted; name "
        "the account with --account");
  }
  const std::string& account = user.account.empty() ? user.name : user.account;
  const MutexLock lock(work_->ledger.mutex);
  const auto other = work_->ledger.catalog.users().find_by_account(account);
  if (!other || other->name == user.name) return;
  throw ServiceError(
      ServiceError::Kind::kConflict, "AccountTaken",
      fmt::format("account '{}' is that of user '{}'; each user needs an account of their own", account, other->name),
      account);
}

std::string Service::create_user(const resources::User& user) {
  check_user(user);
  const MutexLock lock(work_->ledger.mutex);
  auto users = work_->ledger.catalog.users();
  if (users.find(user.name)) {
    throw ServiceError(ServiceError::Kind::kConflict, "UserExists", fmt::format("user '{}' exists", user.name));
  }
  std::string token;
  work_->ledger.catalog.together([&]() GYRE_REQUIRES(work_->ledger.mutex) {
    const catalog::UserWithToken made = users.create(user.name, user.is_administrator);
    users.set_account(made.user.id, user.account);
    users.set_trusted(made.user.id, user.is_trusted);
    token = made.token;
  });
  return token;
}

resources::User Service::change_user(const std::string& name, const resources::UserChange& change) {
  resources::User user;
  {
    const MutexLock lock(work_->ledger.mutex);
    user = shown(work_->ledger.user(name));
  }
  user.account = change.account.value_or(user.account);
  user.is_trusted = change.is_trusted.value_or(user.is_trusted);
  check_user(user);
  const MutexLock lock(work_->ledger.mutex);
  work_->ledger.catalog.together([&]() GYRE_REQUIRES(work_->ledger.mutex) {
    const catalog::Id id = work_->ledger.user(name).id;
    work_->ledger.catalog.users().set_account(id, user.account);
    work_->ledger.catalog.users().set_trusted(id, user.is_trusted);
  });
  return user;
}

std::string Service::renew_token(const std::string& user) {
  const MutexLock lock(work_->ledger.mutex);
  return work_->ledger.catalog.users().renew_token(work_->ledger.user(user).id);
}

void Service::delete_user(const std::string& user) {
  const MutexLock lock(work_->ledger.mutex);
  work_->ledger.catalog.users().remove(work_->ledger.user(user).id);
}

resources::Page<resources::Workspace> Service::workspaces(const resources::User& user,
                                                          const resources::PageRequest& page) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  auto list = ledger.catalog.workspaces().list(kept(page));
  if (!user.is_administrator) {
    const std::vector<catalog::Id> own = ledger.catalog.users().workspaces_of(ledger.user(user.name).id);
    std::erase_if(list.items, [&](const catalog::Workspace& workspace) {
      return std::ranges::find(own, workspace.id) == own.end();
    });
  }
  return shown_page(list, [&](const catalog::Workspace& workspace) { return work_->shown(workspace); });
}

resources::Workspace Service::workspace(const std::string& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return work_->shown(ledger.workspace(name));
}

resources::Created<resources::Workspace> Service::create_workspace(const resources::User& user,
                                                                   const resources::NewWorkspace& workspace) {
  const MutexLock lock(work_->ledger.mutex);
  if (const auto found = work_->ledger.catalog.workspaces().find(workspace.name)) return {work_->shown(*found), false};
  resources::Created<resources::Workspace> created{{}, true};
  work_->ledger.catalog.together([&]() GYRE_REQUIRES(work_->ledger.mutex) {
    const auto made = work_->ledger.catalog.workspaces().create(workspace.name, workspace.location);
    if (const auto owner = work_->ledger.catalog.users().find(user.name)) {
      work_->ledger.catalog.users().add_member(made.id, owner->id);
    }
    created.item = work_->shown(made);
  });
  return created;
}

void Service::delete_workspace(const std::string& name) {
  const MutexLock lock(work_->ledger.mutex);
  const catalog::Workspace workspace = work_->ledger.workspace(name);
  if (!work_->ledger.catalog.clusters().list(workspace.id, {.limit = 1}).items.empty()) {
    throw ServiceError(ServiceError::Kind::kConflict, "WorkspaceInUse",
                       fmt::format("workspace '{}' has clusters; delete them first", name));
  }
  work_->require_finished({.workspace = workspace.id}, "WorkspaceInUse", fmt::format("workspace '{}'", name));
  work_->ledger.catalog.together([&]() GYRE_REQUIRES(work_->ledger.mutex) {
    work_->ledger.remove_experiments(workspace.id);
    work_->ledger.catalog.workspaces().remove(workspace.id);
  });
}

std::vector<resources::Usage> Service::usages(const std::string& workspace) {
  const catalog::Workspace found = [&] {
    const MutexLock lock(work_->ledger.mutex);
    return work_->ledger.workspace(workspace);
  }();
  const CoresInUse cores = work_->dispatcher.cores_in_use(workspace);
  return {{.name = "cores", .current_value = cores.dedicated, .limit = found.quotas.cores},
          {.name = "lowPriorityCores", .current_value = cores.low_priority, .limit = found.quotas.low_priority_cores}};
}

void Service::set_quotas(const std::string& workspace, const resources::Quotas& quotas) {
  const auto text = [](const std::optional<std::int64_t>& cores) {
    return cores ? std::to_string(*cores) : std::string("any number of");
  };
  {
    const MutexLock lock(work_->ledger.mutex);
    work_->ledger.catalog.workspaces().set_quotas(
        work_->ledger.workspace(workspace).id, quotas,
        {"request", fmt::format("its jobs may use {} dedicated cores and {} low-priority cores at once",
                                text(quotas.cores), text(quotas.low_priority_cores))});
  }
  work_->changed();
}

std::vector<std::string> Service::owners(const std::string& workspace) {
  const MutexLock lock(work_->ledger.mutex);
  const catalog::Id id = work_->ledger.workspace(workspace).id;
  std::vector<std::string> names;
  for (const catalog::User& user : work_->ledger.catalog.users().list()) {
    const std::vector<catalog::Id> own = work_->ledger.catalog.users().workspaces_of(user.id);
    if (std::ranges::find(own, id) != own.end()) names.push_back(user.name);
  }
  return names;
}

void Service::add_owner(const std::string& workspace, const std::string& user) {
  const MutexLock lock(work_->ledger.mutex);
  work_->ledger.catalog.users().add_member(work_->ledger.workspace(workspace).id, work_->ledger.user(user).id);
}

void Service::remove_owner(const std::string& workspace, const std::string& user) {
  const MutexLock lock(work_->ledger.mutex);
  work_->ledger.catalog.users().remove_member(work_->ledger.workspace(workspace).id, work_->ledger.user(user).id);
}

resources::Page<resources::Experiment> Service::experiments(const std::string& workspace,
                                                            const resources::PageRequest& page) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const auto list = ledger.catalog.experiments().list(ledger.workspace(workspace).id, kept(page));
  return shown_page(list, [&](const catalog::Experiment& item) { return work_->shown(item, workspace); });
}

resources::Experiment Service::experiment(const resources::ExperimentName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return work_->shown(ledger.experiment(name), name.workspace);
}

resources::Created<resources::Experiment> Service::create_experiment(const resources::ExperimentName& name) {
  const MutexLock lock(work_->ledger.mutex);
  const catalog::Id workspace = work_->ledger.workspace(name.workspace).id;
  if (const auto found = work_->ledger.catalog.experiments().find(workspace, name.experiment)) {
    return {work_->shown(*found, name.workspace), false};
  }
  return {work_->shown(work_->ledger.catalog.experiments().create(workspace, name.experiment), name.workspace), true};
}

void Service::delete_experiment(const resources::ExperimentName& name) {
  const MutexLock lock(work_->ledger.mutex);
  const catalog::Experiment experiment = work_->ledger.experiment(name);
  work_->require_finished({.experiment = experiment.id}, "ExperimentInUse",
                          fmt::format("experiment '{}'", name.experiment));
  work_->ledger.catalog.together(
      [&]() GYRE_REQUIRES(work_->ledger.mutex) { work_->ledger.remove_experiment(experiment.id); });
}

std::vector<resources::Event> Service::events(const resources::EventScope& scope, std::int64_t after, int most) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const catalog::EventFilter filter = ledger.filter(scope);
  std::vector<resources::Event> events;
  for (const catalog::Event& event : ledger.catalog.events().list(filter, {.after = after, .limit = most}).items) {
    events.push_back(shown(event));
  }
  return events;
}

std::unique_ptr<JobService::Watch> Service::watch(const resources::EventScope& scope, std::function<void()> changed) {
  catalog::EventFilter filter;
  {
    const MutexLock lock(work_->ledger.mutex);
    filter = work_->ledger.filter(scope);
  }
  return work_->watchers.add(work_->ledger, filter, std::move(changed));
}

}  // namespace gyre::jobs::service
