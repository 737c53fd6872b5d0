#include "gyre/jobs/service/internal/drivers.h"

namespace gyre::jobs::service {

drivers::Driver& Drivers::of(const spec::ClusterSpec& cluster) {
  const Key key{cluster.gyre.driver, cluster.gyre.driver_options};
  if (const auto found = drivers_.find(key); found != drivers_.end()) return *found->second;
  drivers::DriverSettings settings;
  settings.folder = options_.folder;
  settings.gyre_program = options_.gyre_program;
  settings.environment = options_.environment;
  settings.job_user = options_.job_user;
  settings.lease = options_.lease;
  settings.margin = options_.margin;
  settings.logger = options_.logger;
  auto driver = drivers::make_driver(key.first, key.second, settings);
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
