#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/make_driver.h"
#include "gyre/jobs/service/service.h"
#include "gyre/jobs/spec/cluster_spec.h"

namespace gyre::jobs::service {

/// The drivers of a service: one for each kind and set of options that a cluster names, made when first needed. They
/// stay until the service ends. Thread-safe; of a driver itself, only its worker (worker.h) calls what is not.
class Drivers {
 public:
  using Key = std::pair<std::string, drivers::DriverOptions>;

  explicit Drivers(const ServiceOptions& options) : options_(options) {}

  static Key key_of(const spec::ClusterSpec& cluster) { return {cluster.gyre.driver, cluster.gyre.driver_options}; }

  /// Makes it where there is none, which may take as long as a file server takes to answer: hold no lock. Error(
  /// kUnsupported | kInvalidArgument | kIo) when there cannot be such a driver.
  drivers::Driver& of(const Key& key);
  /// Has `look` judge it. One that is made for that stays only where `look` does not throw. Otherwise as of().
  void try_out(const Key& key, const std::function<void(const drivers::Driver&)>& look);
  /// Null where it has not been made, or is being made. Waits for nothing.
  drivers::Driver* find(const Key& key);

 private:
  struct Place {
    Mutex making;
    std::unique_ptr<drivers::Driver> driver GYRE_GUARDED_BY(making);
    std::atomic<drivers::Driver*> made{nullptr};
  };
  Place& place_of(const Key& key) GYRE_EXCLUDES(mutex_);

  const ServiceOptions& options_;
  Mutex mutex_;
  std::map<Key, Place> places_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::service
