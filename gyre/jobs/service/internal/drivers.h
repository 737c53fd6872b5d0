#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gyre/jobs/drivers/make_driver.h"
#include "gyre/jobs/service/service.h"
#include "gyre/jobs/spec/cluster_spec.h"

namespace gyre::jobs::service {

/// The drivers of a service: one for each kind and set of options that a cluster names, made when first needed. They
/// stay until the service ends. Not thread-safe; the drivers themselves are the dispatcher's.
class Drivers {
 public:
  explicit Drivers(const ServiceOptions& options) : options_(options) {}

  /// Error(kUnsupported | kInvalidArgument | kIo) when there cannot be such a driver.
  drivers::Driver& of(const spec::ClusterSpec& cluster);
  std::vector<drivers::Driver*> all() const;
  /// Since the last call.
  std::vector<drivers::Driver*> take_new() { return std::exchange(new_, {}); }

 private:
  using Key = std::pair<std::string, drivers::DriverOptions>;

  const ServiceOptions& options_;
  std::map<Key, std::unique_ptr<drivers::Driver>> drivers_;
  std::vector<drivers::Driver*> new_;
};

}  // namespace gyre::jobs::service
