#include "gyre/jobs/service/internal/drivers.h"

namespace gyre::jobs::service {

drivers::Driver& Drivers::of(const spec::ClusterSpec& cluster) {
  const Key key{cluster.gyre.driver, cluster.gyre.driver_options};
  if (const auto found = drivers_.find(key); found != drivers_.end()) return *found->second;
  auto driver = drivers::make_driver(key.first, key.second, options_);
  drivers::Driver& made = *driver;
  new_.push_back(&made);
  drivers_.emplace(key, std::move(driver));
  return made;
}

std::vector<drivers::Driver*> Drivers::all() const {
  std::vector<drivers::Driver*> all;
  for (const auto& [key, driver] : drivers_) all.push_back(driver.get());
  return all;
}

}  // namespace gyre::jobs::service
