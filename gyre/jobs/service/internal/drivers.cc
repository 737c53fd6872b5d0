#include "gyre/jobs/service/internal/drivers.h"

namespace gyre::jobs::service {

Drivers::Place& Drivers::place_of(const Key& key) {
  const MutexLock lock(mutex_);
  return places_[key];
}

drivers::Driver& Drivers::of(const Key& key) {
  Place& place = place_of(key);
  const MutexLock lock(place.making);
  if (!place.driver) {
    place.driver = options_.make_driver(key.first, key.second, options_);
    place.made = place.driver.get();
  }
  return *place.driver;
}

drivers::Driver* Drivers::find(const Key& key) { return place_of(key).made; }

}  // namespace gyre::jobs::service
