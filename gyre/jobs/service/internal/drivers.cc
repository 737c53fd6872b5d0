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

void Drivers::try_out(const Key& key, const std::function<void(const drivers::Driver&)>& look) {
  Place& place = place_of(key);
  if (place.made == nullptr) {
    const MutexLock lock(place.making);
    if (!place.driver) {
      auto driver = options_.make_driver(key.first, key.second, options_);
      look(*driver);
      place.driver = std::move(driver);
      place.made = place.driver.get();
      return;
    }
  }
  look(*place.made);
}

drivers::Driver* Drivers::find(const Key& key) { return place_of(key).made; }

}  // namespace gyre::jobs::service
