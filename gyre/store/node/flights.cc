#include "gyre/store/node/flights.h"

#include <algorithm>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/thread.h"

namespace gyre::store::node {

namespace {

constexpr std::chrono::milliseconds kLookForStop{50};
constexpr std::chrono::seconds kBetweenSigns{1};

}  // namespace

bool MemoryCredits::take(std::uint64_t bytes, const std::stop_token& stop) {
  const std::uint64_t needed = charge(bytes);
  const MutexLock lock(mutex_);
  while (free_bytes_ < needed) {
    if (stop.stop_requested()) return false;
    freed_.wait_until(mutex_, SteadyClock::now() + kLookForStop);
  }
  free_bytes_ -= needed;
  return true;
}

void MemoryCredits::give(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  free_bytes_ += charge(bytes);
  freed_.notify_all();
}

Flights::Flights(int threads, std::uint64_t memory_bytes, Fetch fetch, Ahead ahead)
    : fetch_(std::move(fetch)),
      ahead_(std::move(ahead)),
      most_ahead_(threads - threads / 4),
      credits_(std::make_shared<MemoryCredits>(memory_bytes)) {
  for (int i = 0; i < threads; ++i) threads_.push_back(start_thread("fetching chunks", [this] { work(); }));
}

Flights::~Flights() { stop(); }

void Flights::stop() {
  stop_.request_stop();
  {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Flights::FetchedBytes Flights::demand(const Piece& chunk, const std::function<void()>& still_waiting) {
  MutexLock lock(mutex_);
  std::shared_ptr<Flight>& place = flights_[number_of(chunk)];
  if (!place) {
    place = std::make_shared<Flight>();
    demanded_.push_back(chunk);
    changed_.notify_all();
  }
  const std::shared_ptr<Flight> flight = place;
  auto sign = SteadyClock::now() + kBetweenSigns;
  while (!flight->done) {
    if (stop_.stop_requested()) throw Error(ErrorCode::kShutDown, "the store's daemon is ending");
    if (changed_.wait_until(mutex_, sign) || SteadyClock::now() < sign) continue;
    sign = SteadyClock::now() + kBetweenSigns;
    lock.unlock();
    still_waiting();
    lock.lock();
  }
  if (flight->failure) throw Error(*flight->failure);
  return flight->bytes;
}

void Flights::look_ahead() {
  const MutexLock lock(mutex_);
  nothing_ahead_ = false;
  ++plan_;
  changed_.notify_all();
}

bool Flights::ahead_is_done() const {
  const MutexLock lock(mutex_);
  return nothing_ahead_ && ahead_under_way_ == 0;
}

void Flights::work() {
  while (!stop_.stop_requested()) {
    MutexLock lock(mutex_);
    if (!demanded_.empty()) {
      const Piece chunk = demanded_.front();
      demanded_.pop_front();
      const std::shared_ptr<Flight> flight = flights_.at(number_of(chunk));
      lock.unlock();
      fly(chunk, flight);
    } else if (!nothing_ahead_ && ahead_under_way_ < most_ahead_) {
      lock.unlock();
      go_ahead();
    } else if (!stop_.stop_requested()) {
      changed_.wait(mutex_);
    }
  }
}

void Flights::go_ahead() {
  MutexLock lock(mutex_);
  ++ahead_under_way_;
  const std::uint64_t plan = plan_;
  lock.unlock();
  const Step step = ahead_();
  lock.lock();
  if (step.is_last && plan == plan_) nothing_ahead_ = true;
  if (step.chunk && !flights_.contains(number_of(*step.chunk))) {
    const auto flight = std::make_shared<Flight>();
    flights_[number_of(*step.chunk)] = flight;
    lock.unlock();
    fly(*step.chunk, flight);
    lock.lock();
  }
  --ahead_under_way_;
  changed_.notify_all();
}

void Flights::fly(const Piece& chunk, const std::shared_ptr<Flight>& flight) {
  FetchedBytes bytes;
  std::optional<Error> failure;
  try {
    if (!credits_->take(chunk.size_bytes, stop_.get_token())) {
      throw Error(ErrorCode::kShutDown, "the store's daemon is ending");
    }
    // The credit returns when the last reader lets go.
    const std::shared_ptr<Bytes> buffer(new Bytes(), [credits = credits_, size = chunk.size_bytes](const Bytes* held) {
      delete held;
      credits->give(size);
    });
    buffer->resize(chunk.size_bytes);
    fetch_(chunk, *buffer, stop_.get_token());
    bytes = buffer;
  } catch (const std::exception& error) {
    failure = as_error(error);
  }
  const MutexLock lock(mutex_);
  flight->bytes = std::move(bytes);
  flight->failure = std::move(failure);
  flight->done = true;
  flights_.erase(number_of(chunk));
  changed_.notify_all();
}

}  // namespace gyre::store::node
