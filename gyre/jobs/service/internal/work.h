#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "gyre/jobs/service/internal/dispatcher.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// The callbacks of clients that watch events. Thread-safe.
class Watchers : public std::enable_shared_from_this<Watchers> {
 public:
  std::unique_ptr<api::JobService::Watch> add(std::function<void()> changed);
  /// Calls them all, without a lock held: one may destroy its answer, or any other.
  void call();

 private:
  class Entry;

  Mutex mutex_;
  std::list<std::weak_ptr<std::function<void()>>> entries_ GYRE_GUARDED_BY(mutex_);
};

class Service::Work {
 public:
  explicit Work(const ServiceOptions& service_options);

  /// Call after each change by a client: wakes the dispatcher and the watchers.
  void changed();

  // What answers show.
  api::Workspace shown(const catalog::Workspace& workspace) const;
  api::Cluster shown(const catalog::Cluster& cluster, const std::string& workspace) GYRE_REQUIRES(ledger.mutex);
  api::Experiment shown(const catalog::Experiment& experiment, const std::string& workspace) const;
  api::Job shown(const catalog::Job& job, const api::JobName& name) const;
  /// Refuses to delete what jobs still need. kConflict `code`.
  void require_finished(const catalog::JobFilter& filter, const std::string& code, const std::string& what)
      GYRE_REQUIRES(ledger.mutex);

  const ServiceOptions options;
  Ledger ledger;
  std::shared_ptr<Watchers> watchers = std::make_shared<Watchers>();
  Dispatcher dispatcher;  // Last: its thread uses the others.
};

/// The page behind `after`, which is a number as text. Error(kInvalidArgument) when it is none.
catalog::PageRequest kept(const api::PageRequest& page);

template <typename Kept, typename Show>
auto shown_page(const catalog::Page<Kept>& page, const Show& show) {
  api::Page<decltype(show(page.items.front()))> result;
  for (const Kept& item : page.items) result.items.push_back(show(item));
  if (page.next) result.next = std::to_string(*page.next);
  return result;
}

}  // namespace gyre::jobs::service
