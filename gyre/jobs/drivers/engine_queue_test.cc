// An engine serves a whole site: however many jobs come at once, one service must not ask it all the time.
#include "gyre/jobs/drivers/internal/engine_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/test_support.h"

namespace gyre::jobs::drivers {
namespace {

constexpr std::chrono::milliseconds kPoll{100};

/// Runs whatever it is asked for at once, and notes when it was asked for its list.
class CountingEngine final : public NodeEngine {
 public:
  struct Listing {
    SteadyClock::time_point begin;
    SteadyClock::time_point end;
  };

  std::string title() const override { return "the counter"; }
  Capacity capacity() const override { return {.most_nodes = 1}; }
  std::vector<Missing> check() override { return {}; }
  std::vector<Artifact> describe(const NodeRequest& /*request*/) const override { return {}; }

  std::string ask(const NodeRequest& request) override {
    const MutexLock lock(mutex_);
    holdings_.push_back({.id = request.name, .name = request.name, .state = Holding::State::kRuns, .text = "host"});
    return request.name;
  }
  std::vector<Holding> list() override {
    const auto begin = SteadyClock::now();
    const MutexLock lock(mutex_);
    listings_.push_back({begin, SteadyClock::now()});
    return holdings_;
  }
  void release(const std::string& id) override {
    const MutexLock lock(mutex_);
    for (Holding& holding : holdings_) {
      if (holding.id == id) holding.state = Holding::State::kCanceled;
    }
  }

  std::vector<Listing> listings() {
    const MutexLock lock(mutex_);
    return listings_;
  }

 private:
  Mutex mutex_;
  std::vector<Holding> holdings_ GYRE_GUARDED_BY(mutex_);
  std::vector<Listing> listings_ GYRE_GUARDED_BY(mutex_);
};

class EngineQueues : public testing::Test {
 protected:
  static QueuedRequest request(int number) {
    QueuedRequest request;
    request.request.name = "gyre-" + std::to_string(number);
    request.request.order.attempt = std::to_string(number);
    return request;
  }

  /// Until the queue has said that of so many attempts.
  void wait_for(Sighting::Kind kind, std::size_t count) {
    EXPECT_TRUE(conformance::wait_until([&] {
      for (const Sighting& sighting : queue_.take()) seen_[sighting.kind].insert(sighting.attempt);
      return seen_[kind].size() >= count;
    }));
  }

  std::shared_ptr<CountingEngine> engine_ = std::make_shared<CountingEngine>();
  EngineQueue queue_{engine_, {.poll = kPoll, .outage = kPoll}, null_logger()};
  std::map<Sighting::Kind, std::set<std::string>> seen_;
};

// Each was listed once when it was submitted, once when the engine had it, and once when it was cancelled.
TEST_F(EngineQueues, fifty_requests_at_once_are_listed_once_per_interval) {
  constexpr int kJobs = 50;
  for (int job = 0; job < kJobs; ++job) {
    queue_.submit(request(job));
    wait_for(Sighting::Kind::kSubmitted, static_cast<std::size_t>(job) + 1);
  }
  wait_for(Sighting::Kind::kRuns, kJobs);
  for (int job = 0; job < kJobs; ++job) {
    queue_.cancel(std::to_string(job));
    queue_.forget(std::to_string(job));
  }
  wait_for(Sighting::Kind::kGone, kJobs);
  const auto listings = engine_->listings();
  ASSERT_GE(listings.size(), 2U);
  for (std::size_t i = 1; i < listings.size(); ++i) {
    EXPECT_GE(listings[i].begin - listings[i - 1].end, kPoll) << "listing " << i << " of " << listings.size();
  }
}

}  // namespace
}  // namespace gyre::jobs::drivers
