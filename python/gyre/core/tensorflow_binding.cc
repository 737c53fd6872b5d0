#include "python/gyre/core/tensorflow_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/window.h"
#include "python/gyre/_tensorflow/plan_functions.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;

/// A place in the arena as TensorFlow sees it: tensors over it keep their values, whatever happens in the arena.
struct Place {
  std::shared_ptr<net::Window> window;
  std::vector<std::int64_t> shape;
  std::atomic<int> loans{0};
};

/// A plan that TensorFlow's ops use. Contributions come from one thread at a time, which may be another each time.
class LentPlan {
 public:
  LentPlan(std::shared_ptr<engine::Runtime> runtime, std::shared_ptr<engine::Plan> plan,
           std::vector<engine::Shape> shapes)
      : runtime_(std::move(runtime)),
        plan_(std::move(plan)),
        shapes_(std::move(shapes)),
        places_(shapes_.size()),
        caller_(ThreadIdentity::current()) {}

  void contribute(std::size_t index, std::span<const std::byte> gradient) {
    auto& place = places_.at(index);
    if (place != nullptr && place->loans > 0) {
      place->window->keep_values();
      place.reset();
    }
    plan_->contribute(index, gradient);
  }

  void finish() {
    const auto acting = runtime_->engine().act_for(caller_);
    plan_->finish_step();
  }

  std::shared_ptr<Place> lend(std::size_t index) {
    auto& place = places_.at(index);
    if (place == nullptr) {
      place = std::make_shared<Place>();
      place->window = net::Window::over(plan_->tensor(index));
      place->shape = shapes_[index];
    }
    ++place->loans;
    return place;
  }

  /// What made a function fail, until somebody asks.
  void keep_failure(std::exception_ptr failure) {
    const MutexLock lock(mutex_);
    failure_ = std::move(failure);
  }
  std::exception_ptr take_failure() {
    const MutexLock lock(mutex_);
    return std::exchange(failure_, nullptr);
  }

 private:
  std::shared_ptr<engine::Runtime> runtime_;  // Before the plan, which must be destroyed first.
  std::shared_ptr<engine::Plan> plan_;
  std::vector<engine::Shape> shapes_;
  std::vector<std::shared_ptr<Place>> places_;
  ThreadIdentity caller_;  // Waits for the function in which finish() runs.
  Mutex mutex_;
  std::exception_ptr failure_ GYRE_GUARDED_BY(mutex_);
};

/// The plans that are lent, by number: a graph can hold a number for longer than a plan lives.
class LentPlans {
 public:
  std::int64_t add(std::shared_ptr<LentPlan> plan) {
    const MutexLock lock(mutex_);
    plans_.emplace(++last_, std::move(plan));
    return last_;
  }

  std::shared_ptr<LentPlan> remove(std::int64_t number) {
    const MutexLock lock(mutex_);
    const auto node = plans_.extract(number);
    return node.empty() ? nullptr : node.mapped();
  }

  std::shared_ptr<LentPlan> find(std::int64_t number) {
    const MutexLock lock(mutex_);
    const auto found = plans_.find(number);
    if (found != plans_.end()) return found->second;
    throw Error(ErrorCode::kShutDown,
                "the job that this function exchanges gradients in has been shut down: make the DistributedOptimizer "
                "and what was traced with it anew");
  }

 private:
  Mutex mutex_;
  std::int64_t last_ GYRE_GUARDED_BY(mutex_) = 0;
  std::map<std::int64_t, std::shared_ptr<LentPlan>> plans_ GYRE_GUARDED_BY(mutex_);
};

LentPlans& lent_plans() {
  static LentPlans plans;
  return plans;
}

/// Calls work(plan); what it throws becomes -1, a message, and the plan's failure.
template <typename Work>
int run(std::int64_t number, char* message, std::size_t capacity, const Work& work) {
  std::shared_ptr<LentPlan> plan;
  try {
    plan = lent_plans().find(number);
    work(*plan);
    return 0;
  } catch (const std::exception& error) {
    if (plan != nullptr) plan->keep_failure(std::current_exception());
    std::strncpy(message, error.what(), capacity - 1);
    message[capacity - 1] = '\0';
    return -1;
  }
}

int contribute(std::int64_t plan, std::int64_t index, const void* data, std::size_t size_bytes, char* message,
               std::size_t capacity) {
  return run(plan, message, capacity, [&](LentPlan& lent) {
    lent.contribute(static_cast<std::size_t>(index), {static_cast<const std::byte*>(data), size_bytes});
  });
}

int finish(std::int64_t plan, char* message, std::size_t capacity) {
  return run(plan, message, capacity, [](LentPlan& lent) { lent.finish(); });
}

int lend(std::int64_t plan, std::int64_t index, void** data, std::size_t* size_bytes, const std::int64_t** shape,
         int* dimensions, void** loan, char* message, std::size_t capacity) {
  return run(plan, message, capacity, [&](LentPlan& lent) {
    auto holder = std::make_unique<std::shared_ptr<Place>>(lent.lend(static_cast<std::size_t>(index)));
    const Place& place = **holder;
    *data = place.window->bytes().data();
    *size_bytes = place.window->bytes().size();
    *shape = place.shape.data();
    *dimensions = static_cast<int>(place.shape.size());
    *loan = holder.release();
  });
}

void give_back(void* loan) {
  const std::unique_ptr<std::shared_ptr<Place>> holder(static_cast<std::shared_ptr<Place>*>(loan));
  --(*holder)->loans;
}

constexpr GyrePlanFunctions kFunctions{&contribute, &finish, &lend, &give_back};

void take_back_plan(std::int64_t number) {
  auto plan = lent_plans().remove(number);
  const nb::gil_scoped_release released;  // Ending a plan may wait for other ranks.
  plan.reset();
}

void raise_failure_of_plan(std::int64_t number) {
  if (const auto failure = lent_plans().find(number)->take_failure()) std::rethrow_exception(failure);
}

}  // namespace

std::int64_t lend_plan(std::shared_ptr<engine::Runtime> runtime, std::shared_ptr<engine::Plan> plan,
                       std::vector<engine::Shape> shapes) {
  return lent_plans().add(std::make_shared<LentPlan>(std::move(runtime), std::move(plan), std::move(shapes)));
}

void bind_tensorflow(nb::module_& module) {
  module.def(
      "plan_functions", [] { return reinterpret_cast<std::uintptr_t>(&kFunctions); },
      "The address of the table of python/gyre/_tensorflow/plan_functions.h.");
  module.def("take_back_plan", &take_back_plan, nb::arg("number"), "TensorFlow's ops know it no more.");
  module.def("raise_failure_of_plan", &raise_failure_of_plan, nb::arg("number"),
             "Raises what the ops of Plan.lend()'s number have failed with since the last call, if anything.");
}

}  // namespace gyre::python
