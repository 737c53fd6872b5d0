#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "gyre/jobs/service/internal/dispatcher.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/internal/readers.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// The callbacks of clients that watch events. Thread-safe.
class Watchers {
 public:
  std::unique_ptr<JobService::Watch> add(Ledger& ledger, const catalog::EventFilter& filter,
                                         std::function<void()> changed) GYRE_EXCLUDES(ledger.mutex);
  /// Calls those whose filter an event since the last call has passed, without a lock held: one may destroy its answer,
  /// or any other.
  void call(Ledger& ledger) GYRE_EXCLUDES(ledger.mutex);

 private:
  struct Entry {
    catalog::EventFilter filter;
    std::function<void()> changed;
  };
  class Holder;

  std::vector<std::shared_ptr<Entry>> present();
  /// Since the last call, in order.
  std::vector<catalog::Event> news(Ledger& ledger) GYRE_EXCLUDES(ledger.mutex);

  Mutex mutex_;
  std::list<std::weak_ptr<Entry>> entries_ GYRE_GUARDED_BY(mutex_);
  catalog::Id last_ GYRE_GUARDED_BY(mutex_) = 0;  // The number of the last event that was looked at.
};

class Service::Work {
 public:
  explicit Work(const ServiceOptions& service_options);

  /// Call after each change by a client: wakes the dispatcher and the watchers.
  void changed();

  // What answers show.
  resources::Workspace shown(const catalog::Workspace& workspace) const;
  resources::Cluster shown(Ledger& from, const catalog::Cluster& cluster, const std::string& workspace)
      GYRE_REQUIRES(from.mutex);
  resources::Experiment shown(const catalog::Experiment& experiment, const std::string& workspace) const;
  resources::Job shown(const catalog::Job& job, const resources::JobName& name) const;
  /// Refuses to delete what jobs still need. kConflict `code`.
  void require_finished(const catalog::JobFilter& filter, const std::string& code, const std::string& what)
      GYRE_REQUIRES(ledger.mutex);

  const ServiceOptions options;
  Ledger ledger;
  Readers readers;
  Watchers watchers;
  Dispatcher dispatcher;  // Last: its thread uses the others.
};

/// The page behind `after`, which is a number as text. Error(kInvalidArgument) when it is none.
catalog::PageRequest kept(const resources::PageRequest& page);

template <typename Kept, typename Show>
auto shown_page(const catalog::Page<Kept>& page, const Show& show) {
  resources::Page<decltype(show(page.items.front()))> result;
  for (const Kept& item : page.items) result.items.push_back(show(item));
  if (page.next) result.next = std::to_string(*page.next);
  return result;
}

}  // namespace gyre::jobs::service
